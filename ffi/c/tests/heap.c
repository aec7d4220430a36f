/* Tests the heap from C: every function, wrong arguments, wrong frees, two processes. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "haul.h"

static int failures;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "heap.c:%d: %s does not hold\n", __LINE__, #condition); \
            failures++;                                                        \
        }                                                                      \
    } while (0)

/* Small enough for the address space under valgrind. */
static const haul_heap_options options = {
    .limit = 64 << 20, .pages = HAUL_HEAP_PAGES_PLAIN, .nodes = 1, .caches = 64};

static void blocks(void)
{
    haul_heap *heap = NULL;
    CHECK(haul_heap_create(&options, &heap) == HAUL_OK && heap != NULL);
    CHECK(haul_heap_fd(heap) == -1);
    static const size_t sizes[] = {0, 1, 64, 65, 4096, 262144, 262145, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t align = 1; align <= 1 << 20; align *= 32) {
            unsigned char *block = haul_heap_alloc(heap, sizes[i], align);
            CHECK(block != NULL && (uintptr_t)block % align == 0);
            CHECK(haul_heap_usable_size(heap, block) >= sizes[i]);
            memset(block, 0xA5, sizes[i]);
            CHECK(haul_heap_free(heap, block) == HAUL_OK);
            unsigned char *zeros = haul_heap_zalloc(heap, sizes[i], align);
            CHECK(zeros != NULL);
            for (size_t j = 0; j < sizes[i]; j += 61) {
                CHECK(zeros[j] == 0);
            }
            CHECK(haul_heap_free(heap, zeros) == HAUL_OK);
        }
    }
    char *grown = haul_heap_realloc(heap, NULL, 10, 1);
    CHECK(grown != NULL);
    strcpy(grown, "haul");
    for (size_t size = 100; size < 4 << 20; size *= 3) {
        grown = haul_heap_realloc(heap, grown, size, 64);
        CHECK(grown != NULL && strcmp(grown, "haul") == 0);
    }
    haul_iova iova = {0, 0, 7};
    CHECK(haul_heap_iova(heap, &iova, &iova) == HAUL_ERROR_FOREIGN_POINTER && iova.reserved == 7);
    CHECK(haul_heap_iova(heap, grown, &iova) == HAUL_OK && iova.reserved == 0);
    /* A virtual address is not reported as a physical one. */
    CHECK(iova.kind == HAUL_IOVA_PHYSICAL || iova.kind == HAUL_IOVA_VIRTUAL);
    CHECK((iova.kind == HAUL_IOVA_VIRTUAL) == (iova.address == (uintptr_t)grown));
    CHECK(haul_heap_free(heap, grown) == HAUL_OK);
    CHECK(haul_heap_free(heap, NULL) == HAUL_OK);
    CHECK(haul_heap_validate(heap) == HAUL_OK);
    haul_heap_maintain(heap);
    CHECK(haul_heap_reap(heap) == 0);
    haul_heap_destroy(heap);
}

static void ready(void)
{
    haul_heap *heap = NULL;
    haul_heap_stats stats;
    haul_heap_options with_ready = options;
    with_ready.ready_mib = 8;
    CHECK(haul_heap_create(&with_ready, &heap) == HAUL_OK);
    CHECK(haul_heap_get_stats(heap, HAUL_NODE_ANY, &stats) == HAUL_OK);
    CHECK(stats.ready_bytes == 8 << 20 && stats.live_blocks == 0);
    haul_heap_maintain(heap);
    CHECK(haul_heap_get_stats(heap, HAUL_NODE_ANY, &stats) == HAUL_OK);
    CHECK(stats.ready_bytes == 8 << 20);
    haul_heap_destroy(heap);
    heap = NULL;
    with_ready.ready_mib = 65;
    CHECK(haul_heap_create(&with_ready, &heap) == HAUL_ERROR_NO_MEMORY && heap == NULL);
}

static void statistics(void)
{
    haul_heap *heap = NULL;
    haul_heap_stats stats;
    CHECK(haul_heap_create(&options, &heap) == HAUL_OK);
    unsigned tag = haul_heap_tag(heap, "mbuf");
    CHECK(tag != 0 && haul_heap_tag(heap, "mbuf") == tag && haul_heap_tag(heap, NULL) == 0);
    void *block = haul_heap_alloc_on(heap, 2048, 64, 0, tag);
    CHECK(block != NULL);
    CHECK(haul_heap_get_stats(heap, HAUL_NODE_ANY, &stats) == HAUL_OK);
    CHECK(stats.live_blocks == 1 && stats.live_bytes == 2048);
    CHECK(stats.limit_bytes == 64 << 20 && stats.ready_bytes > 0);
    CHECK(haul_heap_free(heap, block) == HAUL_OK);
    CHECK(haul_heap_get_stats(heap, 0, &stats) == HAUL_OK && stats.live_blocks == 0);
    CHECK(haul_heap_alloc_on(heap, 64, 64, 1, 0) == NULL);
    CHECK(haul_heap_alloc_on(heap, 64, 64, -2, 0) == NULL);
    CHECK(haul_heap_alloc_on(heap, 64, 64, 0, 256) == NULL);
    CHECK(haul_heap_get_stats(heap, -7, &stats) == HAUL_ERROR_ARGUMENT);
    haul_heap_destroy(heap);
}

static void misuse(void)
{
    haul_heap *heap = NULL;
    CHECK(haul_heap_create(&options, &heap) == HAUL_OK);
    char *block = haul_heap_alloc(heap, 640, 64);
    CHECK(haul_heap_free(heap, block + 64) == HAUL_ERROR_INTERIOR_POINTER);
    CHECK(haul_heap_free(heap, &heap) == HAUL_ERROR_FOREIGN_POINTER);
    CHECK(haul_heap_free(heap, block) == HAUL_OK);
    CHECK(haul_heap_free(heap, block) == HAUL_ERROR_DOUBLE_FREE);
    CHECK(haul_heap_free(heap, block + (32 << 20)) == HAUL_ERROR_WILD_POINTER);
    CHECK(haul_heap_usable_size(heap, block) == 0);
    CHECK(haul_heap_alloc(heap, SIZE_MAX, 64) == NULL);
    CHECK(haul_heap_alloc(heap, (size_t)1 << 63, 64) == NULL);
    CHECK(haul_heap_alloc(heap, 64, 0) == NULL);
    CHECK(haul_heap_alloc(heap, 64, 3) == NULL);
    haul_heap_destroy(heap);
}

static void arguments(void)
{
    haul_heap *heap = (haul_heap *)&failures;
    haul_heap_options bad = options;
    uint64_t offset = 7;
    haul_heap_stats stats;
    CHECK(haul_heap_create(&options, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_heap_create_named(&options, NULL, &heap) == HAUL_ERROR_NULL);
    CHECK(haul_heap_attach(NULL, &heap) == HAUL_ERROR_NULL);
    CHECK(haul_heap_attach("no-such-heap", &heap) == HAUL_ERROR_NOT_FOUND);
    CHECK(haul_heap_attach("../etc", &heap) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_heap_attach_fd(-1, &heap) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_heap_attach_fd(1000000, &heap) == HAUL_ERROR_SYSTEM);
    CHECK(haul_heap_remove_name(NULL) == HAUL_ERROR_NULL);
    CHECK(haul_heap_remove_name("no-such-heap") == HAUL_ERROR_NOT_FOUND);
    CHECK(haul_heap_is_name("a.b-c_1") && !haul_heap_is_name("a/b") && !haul_heap_is_name(NULL));
    bad.limit = 1;
    CHECK(haul_heap_create(&bad, &heap) == HAUL_ERROR_ARGUMENT);
    bad = options;
    bad.nodes = 99;
    CHECK(haul_heap_create(&bad, &heap) == HAUL_ERROR_ARGUMENT);
    CHECK(heap == (haul_heap *)&failures);
    CHECK(haul_heap_alloc(NULL, 64, 64) == NULL && haul_heap_zalloc(NULL, 64, 64) == NULL);
    CHECK(haul_heap_realloc(NULL, NULL, 64, 64) == NULL);
    CHECK(haul_heap_free(NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_heap_usable_size(NULL, &heap) == 0 && haul_heap_fd(NULL) == -1);
    CHECK(haul_heap_offset(NULL, &heap, &offset) == HAUL_ERROR_NULL && offset == 7);
    CHECK(haul_heap_pointer(NULL, 0) == NULL && haul_heap_iova(NULL, &heap, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_heap_get_stats(NULL, HAUL_NODE_ANY, &stats) == HAUL_ERROR_NULL);
    CHECK(haul_heap_validate(NULL) == HAUL_ERROR_NULL && haul_heap_reap(NULL) == 0);
    haul_heap_maintain(NULL);
    haul_heap_set_heir(NULL, 1);
    haul_heap_destroy(NULL);
}

/* A child attaches, allocates and is killed; its block is reclaimed. */
static void processes(void)
{
    haul_heap *heap = NULL, *other = NULL;
    char name[64];
    uint64_t offset = 0;
    haul_heap_stats stats;
    snprintf(name, sizeof name, "test-c-%ld", (long)getpid());
    CHECK(haul_heap_create_named(&options, name, &heap) == HAUL_OK);
    CHECK(haul_heap_create_named(&options, name, &other) == HAUL_ERROR_EXISTS);
    CHECK(haul_heap_attach(name, &other) == HAUL_OK);
    char *block = haul_heap_alloc(heap, 4096, 4096);
    strcpy(block, "shared");
    CHECK(haul_heap_offset(heap, block, &offset) == HAUL_OK);
    CHECK(haul_heap_offset(heap, &heap, &offset) == HAUL_ERROR_FOREIGN_POINTER);
    char *seen = haul_heap_pointer(other, offset);
    CHECK(seen != NULL && strcmp(seen, "shared") == 0);
    CHECK(haul_heap_pointer(other, UINT64_MAX) == NULL);
    haul_heap_destroy(other);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        haul_heap *theirs = NULL;
        if (haul_heap_attach(name, &theirs) != HAUL_OK || haul_heap_alloc(theirs, 640, 64) == NULL) {
            _exit(1);
        }
        raise(SIGKILL);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(haul_heap_get_stats(heap, HAUL_NODE_ANY, &stats) == HAUL_OK && stats.live_blocks == 2);
    CHECK(haul_heap_reap(heap) == 1);
    CHECK(haul_heap_get_stats(heap, HAUL_NODE_ANY, &stats) == HAUL_OK && stats.live_blocks == 1);
    CHECK(haul_heap_free(heap, block) == HAUL_OK);
    CHECK(haul_heap_remove_name(name) == HAUL_OK);
    haul_heap_destroy(heap);

    CHECK(haul_heap_create_shared(&options, &heap) == HAUL_OK);
    CHECK(haul_heap_attach_fd(haul_heap_fd(heap), &other) == HAUL_OK);
    CHECK(haul_heap_attach_fd(STDERR_FILENO, &other) != HAUL_OK);
    FILE *unsealed = tmpfile();
    const char *message = haul_strerror(HAUL_ERROR_NOT_SEALED);
    CHECK(haul_heap_attach_fd(fileno(unsealed), &other) == HAUL_ERROR_NOT_SEALED);
    CHECK(strstr(message, "sealed") && !strstr(message, "user"));
    fclose(unsealed);
    haul_heap_destroy(other);
    haul_heap_destroy(heap);
}

int main(void)
{
    blocks();
    ready();
    statistics();
    misuse();
    arguments();
    processes();
    return failures != 0;
}
