/* DPDK's copy engine without hardware, dma_skeleton: a thread that executes the copies of a ring.
 *
 * A run compiles this as a shared library against the installed DPDK and loads it, so that one measured loop
 * calls every engine. peers/copier.h has the interface. EAL starts once in a process; a device starts and
 * stops with each open and close, because its thread polls for as long as the device is started. */
#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API
#include "copier.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include <rte_dmadev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_version.h>

/* The most copies that a run has pending is 8; the ring loses one entry. */
#define ENTRIES 128

static int device = -1;
static uint64_t ended;
static char why[160];

static const char *fail(const char *attempt, int code) {
    snprintf(why, sizeof why, "%s: %s", attempt, rte_strerror(code < 0 ? -code : code));
    return why;
}

/* Starts EAL. EAL pins the calling thread, which gets its processors back. */
static const char *start_eal(unsigned own_cpu, unsigned copier_cpu) {
    char lcores[32], vdev[48];
    snprintf(lcores, sizeof lcores, "0@%u,1@%u", own_cpu, copier_cpu);
    snprintf(vdev, sizeof vdev, "--vdev=dma_skeleton,lcore=1");
    static char *arguments[] = {"haul", "--no-pci", "--no-huge", "-m", "512", "--no-shconf", "--no-telemetry",
                                "--iova-mode=va", "--log-level=error", "--lcores", NULL, NULL, NULL};
    const int count = sizeof arguments / sizeof *arguments - 1;
    arguments[count - 2] = strdup(lcores);
    arguments[count - 1] = strdup(vdev);
    cpu_set_t before;
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    int parsed = rte_eal_init(count, arguments);
    int code = rte_errno;
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    return parsed < 0 ? fail("rte_eal_init", code) : NULL;
}

const char *haul_copier_open(const char *name, unsigned own_cpu, unsigned copier_cpu) {
    if (device < 0) {
        const char *failed = start_eal(own_cpu, copier_cpu);
        if (failed)
            return failed;
        device = rte_dma_get_dev_id_by_name(name);
        if (device < 0)
            return "EAL has no such device: librte-dma-skeleton23 is not installed";
    }
    struct rte_dma_conf conf = {.nb_vchans = 1};
    struct rte_dma_vchan_conf vchan = {.direction = RTE_DMA_DIR_MEM_TO_MEM, .nb_desc = ENTRIES};
    int code = rte_dma_configure(device, &conf);
    if (code)
        return fail("rte_dma_configure", code);
    code = rte_dma_vchan_setup(device, 0, &vchan);
    if (code)
        return fail("rte_dma_vchan_setup", code);
    code = rte_dma_start(device);
    ended = 0;
    return code ? fail("rte_dma_start", code) : NULL;
}

void haul_copier_close(void) { rte_dma_stop(device); }

int haul_copier_submit(void *target, const void *source, size_t bytes) {
    return rte_dma_copy(device, 0, (rte_iova_t)(uintptr_t)source, (rte_iova_t)(uintptr_t)target, bytes,
                        RTE_DMA_OP_FLAG_SUBMIT) >= 0;
}

uint64_t haul_copier_ended(void) {
    uint16_t last;
    bool failed = false;
    ended += rte_dma_completed(device, 0, ENTRIES, &last, &failed);
    return ended;
}

const char *haul_copier_version(void) { return rte_version(); }
