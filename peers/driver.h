/* The common part of the drivers in C: the protocol with the run, memory, content, clocks.
 *
 * A driver includes this, defines transport_send and transport_receive, and calls begin() and serve() in
 * main. Protocol and content are the same as in crates/experiments/src/channel. */
#ifndef HAUL_PEERS_DRIVER_H
#define HAUL_PEERS_DRIVER_H

#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Each returns NULL, or the reason of a failure. A message is complete when its call returns. */
static const char *transport_send(const void *message, size_t bytes);
static const char *transport_receive(void *target, size_t bytes);

struct region {
    unsigned char *base;
    size_t bytes;
};

struct costs {
    uint64_t start_ns, end_ns, cpu_ns, faults, switches;
};

/* Memory at the start. The transport's own memory is the growth beyond this and the buffers. */
static uint64_t bytes_at_start;
static struct region source, target;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* RssAnon and RssShmem of proc(5), status. */
static uint64_t own_and_shared_bytes(void) {
    uint64_t sum = 0, kib;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    if (!status)
        return 0;
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1 ||
            sscanf(line, "RssShmem: %" SCNu64, &kib) == 1)
            sum += kib * 1024;
    fclose(status);
    return sum;
}

static void release(struct region *region) {
    if (region->base)
        munmap(region->base, region->bytes);
    region->base = NULL;
    region->bytes = 0;
}

/* Allocates private memory aligned to 2 MiB, as in haul's own drivers, and touches it if it is to be warm. */
static const char *allocate(struct region *region, size_t bytes, int warm) {
    const size_t huge = 2u << 20;
    size_t length = (bytes + 4095) / 4096 * 4096;
    if (warm && region->base && region->bytes == length)
        return NULL;
    release(region);
    unsigned char *map = mmap(NULL, length + huge, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return "cannot map memory for the messages";
    size_t skip = (huge - (uintptr_t)map % huge) % huge;
    if (skip)
        munmap(map, skip);
    if (huge - skip)
        munmap(map + skip + length, huge - skip);
    region->base = map + skip;
    region->bytes = length;
    if (warm)
        memset(region->base, 0x5a, length);
    return NULL;
}

static uint64_t word(uint64_t seed, uint64_t index) {
    uint64_t word = (index + seed) * UINT64_C(0x9e3779b97f4a7c15);
    return word ^ (word >> 32);
}

static void fill(unsigned char *messages, size_t bytes, uint64_t seed) {
    size_t index = 0;
    for (; index < bytes / 8; index++) {
        uint64_t value = word(seed, index);
        memcpy(messages + index * 8, &value, 8);
    }
    uint64_t last = word(seed, index);
    memcpy(messages + index * 8, &last, bytes % 8);
}

/* Whether every byte is that of the sender. */
static int is_content(const unsigned char *messages, size_t bytes, uint64_t seed) {
    uint64_t different = 0, found;
    size_t index = 0;
    for (; index < bytes / 8; index++) {
        memcpy(&found, messages + index * 8, 8);
        different |= found ^ word(seed, index);
    }
    uint64_t last = word(seed, index);
    return !different && !memcmp(messages + index * 8, &last, bytes % 8);
}

static const char *perform(int is_b, int echo, size_t size, size_t count) {
    const char *failed = NULL;
    for (size_t index = 0; index < count && !failed; index++) {
        const unsigned char *from = source.base + index * size;
        unsigned char *to = target.base + index * size;
        if (!is_b)
            failed = transport_send(from, size);
        if (!failed && (is_b || echo))
            failed = transport_receive(to, size);
        if (!failed && is_b && echo)
            failed = transport_send(to, size);
    }
    return failed;
}

static const char *timed(int is_b, int echo, size_t size, size_t count, uint64_t at_ns,
                         struct costs *costs) {
    struct rusage before, after;
    while (clock_ns(CLOCK_MONOTONIC_RAW) < at_ns)
        ;
    getrusage(RUSAGE_SELF, &before);
    uint64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    costs->start_ns = clock_ns(CLOCK_MONOTONIC_RAW);
    const char *failed = perform(is_b, echo, size, count);
    costs->end_ns = clock_ns(CLOCK_MONOTONIC_RAW);
    getrusage(RUSAGE_SELF, &after);
    costs->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    costs->faults = (uint64_t)(after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt);
    costs->switches = (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
    return failed;
}

/* Runs this process on the processors of a list such as "0,1". */
static const char *pin(char *list) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (char *cpu = strtok(list, ", \n"); cpu; cpu = strtok(NULL, ", \n"))
        CPU_SET((size_t)atol(cpu), &set);
    return sched_setaffinity(0, sizeof set, &set) ? "cannot run on the given processors" : NULL;
}

/* Serves the run until it closes the connection. Returns the exit code of the process. */
static int serve(const char *control, int is_b, const char *version) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char line[512], kind[16], temperature[16];
    size_t size = 0, count = 0;
    uint64_t seed = 0, at_ns;
    int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", control);
    if (socket_fd < 0 || connect(socket_fd, (struct sockaddr *)&address, sizeof address)) {
        perror("cannot connect to the run's socket");
        return 1;
    }
    FILE *in = fdopen(socket_fd, "r"), *out = fdopen(dup(socket_fd), "w");
    fprintf(out, "hello %s %s\n", is_b ? "B" : "A", version);
    fflush(out);
    int echo = 0;
    while (fgets(line, sizeof line, in)) {
        const char *failed = NULL;
        struct costs costs = {0};
        int timing = 0;
        if (!strncmp(line, "pin ", 4)) {
            failed = pin(line + 4);
        } else if (sscanf(line, "prepare %15s %zu %zu %15s %" SCNu64, kind, &size, &count,
                          temperature, &seed) == 5) {
            echo = !strcmp(kind, "echo");
            if (!is_b) {
                failed = allocate(&source, size * count, 1);
                if (!failed)
                    fill(source.base, size * count, seed);
            }
            if (!failed && (is_b || echo))
                failed = allocate(&target, size * count, strcmp(temperature, "cold"));
        } else if (sscanf(line, "go %" SCNu64, &at_ns) == 1) {
            timing = 1;
            failed = timed(is_b, echo, size, count, at_ns, &costs);
            if (!failed && (is_b || echo) && !is_content(target.base, size * count, seed))
                failed = "the received content differs from the sent content";
        } else {
            failed = "unknown line";
        }
        if (failed) {
            fprintf(out, "failed %s\n", failed);
        } else if (timing) {
            uint64_t used = bytes_at_start + source.bytes + target.bytes;
            uint64_t now = own_and_shared_bytes();
            fprintf(out, "done %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " -\n",
                    costs.start_ns, costs.end_ns, costs.cpu_ns, costs.faults, costs.switches,
                    now > used ? now - used : 0);
        } else {
            fprintf(out, "ready\n");
        }
        fflush(out);
    }
    return 0;
}

/* Must be called first in main. It records the memory before the transport starts, and makes this process
 * end with its parent. */
static void begin(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bytes_at_start = own_and_shared_bytes();
}

#endif
