/* Tests copy engines from C: every function, wrong arguments, order, threads, a child of fork. With the
 * argument "no-fork" it does not fork: a child leaks the state of threads that it does not have, which
 * valgrind reports. With the argument "faults" it tests the results of a fake DSA, whose settings are in
 * tests/programs/main.rs. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "haul.h"

static int failures;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "engine.c:%d: %s does not hold\n", __LINE__, #condition); \
            failures++;                                                        \
        }                                                                      \
    } while (0)

enum { LARGE = 1 << 20, PAGE = 4096 };

static unsigned char source[LARGE], target[LARGE], third[LARGE];

static const uint64_t none = UINT64_MAX;

static void fill(unsigned char *bytes, size_t size, unsigned first)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(i * 31 + (i >> 8) + first);
    }
}

static haul_engine *opened(const char *name, uint32_t flags)
{
    const haul_engine_options options = {.flags = flags};
    haul_engine *engine = NULL;
    CHECK(haul_engine_open(name, &options, &engine) == HAUL_OK && engine != NULL);
    return engine;
}

static void operations(haul_engine *engine)
{
    uint64_t ticket = 0;
    bool is_done = false;
    size_t bytes = 7;
    haul_engine_result result;
    fill(source, LARGE, 1);
    memset(target, 0, LARGE);
    CHECK(haul_engine_copy(engine, target, source, LARGE, HAUL_HINT_STREAMED, &ticket) == HAUL_OK);
    CHECK(ticket != 0);
    CHECK(haul_engine_bytes_done(engine, ticket, &bytes) == HAUL_OK && bytes <= LARGE);
    CHECK(memcmp(target, source, bytes) == 0);
    while (!is_done) {
        CHECK(haul_engine_is_done(engine, ticket, &is_done) == HAUL_OK);
        sched_yield();
    }
    CHECK(haul_engine_bytes_done(engine, ticket, &bytes) == HAUL_OK && bytes == LARGE);
    CHECK(haul_engine_wait_for(engine, ticket, 0, &result) == HAUL_OK);
    CHECK(result.difference == none && result.bytes_done == 0 && result.address == 0);
    CHECK(result.access == HAUL_ENGINE_ACCESS_NONE && result.crc32c == 0 && result.reserved == 0);
    CHECK(memcmp(target, source, LARGE) == 0);

    /* A move to the byte after the first one. */
    CHECK(haul_engine_copy(engine, target + 1, target, LARGE - 1, 99, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
    CHECK(target[0] == source[0] && memcmp(target + 1, source, LARGE - 1) == 0);

    CHECK(haul_engine_fill(engine, target, 0x1a5, LARGE, HAUL_HINT_UNKNOWN, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_OK);
    CHECK(target[0] == 0xa5 && memcmp(target, target + 1, LARGE - 1) == 0);

    memcpy(target, source, LARGE);
    target[70001] ^= 1;
    CHECK(haul_engine_compare(engine, target, source, LARGE, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_OK && result.difference == 70001);
    CHECK(haul_engine_compare(engine, target, source, 70001, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_OK && result.difference == none);

    CHECK(haul_engine_crc32c(engine, "123456789", 9, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_OK && result.crc32c == 0xe3069283);
    CHECK(haul_engine_crc32c(engine, "1234", 4, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_OK);
    CHECK(haul_engine_copy_crc32c(engine, target, "56789", 5, result.crc32c, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_OK && result.crc32c == 0xe3069283);
    CHECK(memcmp(target, "56789", 5) == 0 && target[5] == source[5]);

    CHECK(haul_engine_copy(engine, NULL, NULL, 0, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_OK);
}

static void lists(haul_engine *engine)
{
    haul_engine_region from[] = {{source, 5}, {NULL, 0}, {source + 100, 300}};
    haul_engine_region to[] = {{target + 50, 301}, {target + 7, 4}};
    haul_engine_region same[] = {{source + 4, 305}};
    uint64_t ticket;
    fill(source, LARGE, 2);
    memset(target, 0, 500);
    CHECK(haul_engine_lists(engine, to, 2, from, 3, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
    CHECK(memcmp(target + 50, source, 5) == 0 && memcmp(target + 55, source + 100, 296) == 0);
    CHECK(memcmp(target + 7, source + 396, 4) == 0 && target[11] == 0 && target[6] == 0);
    CHECK(target[49] == 0 && target[351] == 0);
    CHECK(haul_engine_lists(engine, NULL, 0, NULL, 0, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);

    ticket = 7;
    CHECK(haul_engine_lists(engine, to, 1, from, 3, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_lists(engine, same, 1, from, 3, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_lists(engine, to, SIZE_MAX, from, 3, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_lists(engine, NULL, 1, from, 3, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_lists(engine, to, 2, NULL, 3, 0, &ticket) == HAUL_ERROR_NULL);
    from[2].length = SIZE_MAX;
    CHECK(haul_engine_lists(engine, to, 2, from, 3, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    from[2] = (haul_engine_region){NULL, 300};
    CHECK(haul_engine_lists(engine, to, 2, from, 3, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(ticket == 7);
}

static void batches(haul_engine *engine)
{
    haul_engine_pair pairs[] = {{target, source + 5, 300}, {NULL, NULL, 0}, {target + 9000, source, 5000}};
    haul_engine_pair same[] = {{target, source, 10}, {target + 9, source, 10}};
    haul_engine_pair chained[] = {{target, source, 10}, {third, target + 9, 1}};
    uint64_t ticket;
    fill(source, LARGE, 6);
    memset(target, 0, 20000);
    CHECK(haul_engine_batch(engine, pairs, 3, HAUL_HINT_STREAMED, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
    CHECK(memcmp(target, source + 5, 300) == 0 && target[300] == 0 && target[8999] == 0);
    CHECK(memcmp(target + 9000, source, 5000) == 0 && target[14000] == 0);
    CHECK(haul_engine_batch(engine, NULL, 0, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
    CHECK(haul_engine_batch(engine, pairs, 3, 0, NULL) == HAUL_OK);
    CHECK(haul_engine_drain(engine) == HAUL_OK);

    ticket = 7;
    CHECK(haul_engine_batch(engine, NULL, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_batch(engine, pairs, SIZE_MAX, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_batch(engine, same, 2, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_batch(engine, chained, 2, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    pairs[1].length = 1;
    CHECK(haul_engine_batch(engine, pairs, 3, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(ticket == 7);
}

/* Each operation reads what the one before writes, and only the last ticket is wanted. */
static void order(haul_engine *engine)
{
    uint64_t ticket, last;
    fill(source, LARGE, 3);
    for (int round = 0; round < 20; round++) {
        CHECK(haul_engine_fill(engine, target, round, LARGE, 0, NULL) == HAUL_OK);
        CHECK(haul_engine_copy(engine, target + round, source, LARGE / 2, 0, &ticket) == HAUL_OK);
        CHECK(haul_engine_forget(engine, ticket) == HAUL_OK);
        CHECK(haul_engine_forget(engine, ticket) == HAUL_ERROR_NO_TICKET);
        CHECK(haul_engine_copy(engine, third, target, LARGE, 0, &last) == HAUL_OK);
        if (round % 5 == 0) {
            CHECK(haul_engine_drain(engine) == HAUL_OK);
        }
        CHECK(haul_engine_wait(engine, last, NULL) == HAUL_OK);
        CHECK(memcmp(third + round, source, LARGE / 2) == 0 && third[LARGE - 1] == round);
        CHECK(round == 0 || third[round - 1] == round);
    }
    CHECK(haul_engine_drain(engine) == HAUL_OK);
}

static void conflicts(haul_engine *engine, bool is_inline)
{
    uint32_t reads = 0, writes = 0, beside = 7;
    uint64_t ticket;
    /* A helper thread may end a copy before the question, but not a thousand times. */
    for (int i = 0; i < 1000 && !(reads && writes); i++) {
        CHECK(haul_engine_copy(engine, target, source, LARGE - PAGE, 0, &ticket) == HAUL_OK);
        CHECK(haul_engine_conflicts(engine, target + LARGE / 2, 10, &writes) == HAUL_OK);
        CHECK(haul_engine_conflicts(engine, source + 1, 10, &reads) == HAUL_OK);
        CHECK(haul_engine_conflicts(engine, target + LARGE - PAGE, PAGE, &beside) == HAUL_OK);
        CHECK(beside == 0);
        CHECK(writes == 0 || writes == HAUL_ENGINE_WRITES);
        CHECK(reads == 0 || reads == HAUL_ENGINE_READS);
        CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
        if (is_inline) {
            break;
        }
    }
    CHECK(is_inline == !(reads && writes));
    CHECK(haul_engine_conflicts(engine, target, LARGE, &writes) == HAUL_OK && writes == 0);
    CHECK(haul_engine_conflicts(engine, NULL, SIZE_MAX, &writes) == HAUL_OK && writes == 0);
    CHECK(haul_engine_conflicts(engine, (void *)UINTPTR_MAX, 9, &writes) == HAUL_OK && writes == 0);
}

static void bells(haul_engine *engine)
{
    haul_engine_bell *bell = NULL;
    uint64_t tickets[3], ended = 0;
    CHECK(haul_engine_bell_create(&bell) == HAUL_OK && haul_engine_bell_fd(bell) > 2);
    CHECK(haul_engine_bell_clear(bell) == 0);
    for (int i = 0; i < 3; i++) {
        unsigned char *to = target + i * (LARGE / 3);
        CHECK(haul_engine_copy(engine, to, source, LARGE / 3, 0, &tickets[i]) == HAUL_OK);
        CHECK(haul_engine_ring(engine, tickets[i], bell) == HAUL_OK);
    }
    while (ended < 3) {
        struct pollfd wanted = {.fd = haul_engine_bell_fd(bell), .events = POLLIN};
        if (poll(&wanted, 1, 60000) != 1) {
            CHECK(!"a bell rings");
            break;
        }
        ended += haul_engine_bell_clear(bell);
    }
    CHECK(ended == 3);
    for (int i = 0; i < 3; i++) {
        CHECK(haul_engine_wait_for(engine, tickets[i], 0, NULL) == HAUL_OK);
        CHECK(haul_engine_ring(engine, tickets[i], bell) == HAUL_ERROR_NO_TICKET);
    }
    /* A bell that is freed while an operation is pending. */
    CHECK(haul_engine_fill(engine, target, 1, LARGE, 0, &tickets[0]) == HAUL_OK);
    CHECK(haul_engine_ring(engine, tickets[0], bell) == HAUL_OK);
    haul_engine_bell_free(bell);
    CHECK(haul_engine_wait(engine, tickets[0], NULL) == HAUL_OK);
}

struct chain {
    haul_engine *engine;
    int calls;
    haul_status status;
    uint32_t crc32c;
};

/* Submits the next operation until three have ended. */
static void next(void *context, haul_status status, const haul_engine_result *result)
{
    struct chain *chain = context;
    uint64_t ticket;
    chain->status = status;
    chain->crc32c = result->crc32c;
    if (++chain->calls < 3) {
        CHECK(haul_engine_crc32c(chain->engine, "123456789", 9, 0, &ticket) == HAUL_OK);
        CHECK(haul_engine_call(chain->engine, ticket, next, chain) == HAUL_OK);
    }
}

static void callbacks(haul_engine *engine)
{
    struct chain chain = {engine, 0, HAUL_ERROR_INTERNAL, 0};
    uint64_t ticket;
    CHECK(haul_engine_run(engine, SIZE_MAX) == 0);
    CHECK(haul_engine_copy(engine, target, source, LARGE, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_call(engine, ticket, next, &chain) == HAUL_OK);
    while (chain.calls < 3) {
        CHECK(haul_engine_run(engine, 16) <= 1);
        sched_yield();
    }
    CHECK(chain.status == HAUL_OK && chain.crc32c == 0xe3069283);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_ERROR_NO_TICKET);

    /* A result that was taken before the callback. */
    CHECK(haul_engine_fill(engine, target, 2, LARGE, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_call(engine, ticket, next, &chain) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
    while (haul_engine_run(engine, 1) == 0) {
        sched_yield();
    }
    CHECK(chain.calls == 4 && chain.status == HAUL_ERROR_NO_TICKET);

    /* A callback that does not run before the engine is closed. */
    CHECK(haul_engine_fill(engine, target, 3, LARGE, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_call(engine, ticket, next, &chain) == HAUL_OK);
}

static void *copies(void *engine)
{
    unsigned char from[5000], to[5000];
    uint64_t ticket;
    for (unsigned i = 0; i < 200; i++) {
        fill(from, sizeof from, i);
        CHECK(haul_engine_copy(engine, to, from, sizeof from, 0, &ticket) == HAUL_OK);
        CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
        CHECK(memcmp(to, from, sizeof from) == 0);
    }
    return NULL;
}

static void threads(haul_engine *engine)
{
    pthread_t others[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&others[i], NULL, copies, engine) == 0);
    }
    copies(engine);
    for (int i = 0; i < 2; i++) {
        pthread_join(others[i], NULL);
    }
}

static void forks(haul_engine *engine)
{
    uint64_t tickets[2];
    fill(source, LARGE, 4);
    memset(target, 0, LARGE);
    CHECK(haul_engine_copy(engine, target, source, LARGE, 0, &tickets[0]) == HAUL_OK);
    CHECK(haul_engine_copy(engine, third, target, LARGE, 0, &tickets[1]) == HAUL_OK);
    fflush(NULL);
    pid_t child = fork();
    for (int i = 0; i < 2; i++) {
        CHECK(haul_engine_wait(engine, tickets[i], NULL) == HAUL_OK);
    }
    CHECK(memcmp(third, source, LARGE) == 0);
    CHECK(haul_engine_fill(engine, third, 9, LARGE, 0, NULL) == HAUL_OK);
    CHECK(haul_engine_drain(engine) == HAUL_OK && third[LARGE - 1] == 9);
    if (child == 0) {
        haul_engine_close(engine);
        _exit(failures != 0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void wrong_opens(void)
{
    haul_engine *engine = (haul_engine *)&failures;
    haul_engine_options bad = {.flags = 2};
    char name[5000];
    memset(name, 'w', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK(haul_engine_open("worker", NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_open(NULL, NULL, &engine) == HAUL_ERROR_NULL);
    CHECK(haul_engine_open("", NULL, &engine) == HAUL_ERROR_NO_ENGINE);
    CHECK(haul_engine_open(name, NULL, &engine) == HAUL_ERROR_NO_ENGINE);
    CHECK(haul_engine_open("dsa:../../etc", NULL, &engine) == HAUL_ERROR_NO_ENGINE);
    CHECK(haul_engine_open("\xff", NULL, &engine) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_open("worker", &bad, &engine) == HAUL_ERROR_ARGUMENT);
    bad = (haul_engine_options){.entries = 65537};
    CHECK(haul_engine_open("worker", &bad, &engine) == HAUL_ERROR_ARGUMENT);
    CHECK(engine == (haul_engine *)&failures);
    for (int status = HAUL_ERROR_NO_ENGINE; status <= HAUL_ERROR_ENGINE_GONE; status++) {
        CHECK(strcmp(haul_strerror(status), haul_strerror(-1)) != 0);
        CHECK(strcmp(haul_strerror(status), haul_strerror(status - 1)) != 0);
    }
}

static void no_engine(void)
{
    haul_engine_bell *bell = NULL;
    uint64_t ticket = 7;
    uint32_t found = 7;
    size_t bytes = 7;
    bool is_done = true;
    CHECK(haul_engine_copy(NULL, target, source, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_fill(NULL, target, 1, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_compare(NULL, target, source, 1, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_crc32c(NULL, source, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_copy_crc32c(NULL, target, source, 1, 0, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_lists(NULL, NULL, 0, NULL, 0, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_batch(NULL, NULL, 0, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_troubles(NULL, NULL, 0, &bytes) == HAUL_ERROR_NULL);
    CHECK(haul_engine_is_done(NULL, 1, &is_done) == HAUL_ERROR_NULL);
    CHECK(haul_engine_bytes_done(NULL, 1, &bytes) == HAUL_ERROR_NULL);
    CHECK(haul_engine_wait(NULL, 1, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_wait_for(NULL, 1, 1, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_forget(NULL, 1) == HAUL_ERROR_NULL);
    CHECK(haul_engine_ring(NULL, 1, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_call(NULL, 1, next, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_conflicts(NULL, target, 1, &found) == HAUL_ERROR_NULL);
    CHECK(haul_engine_drain(NULL) == HAUL_ERROR_NULL && haul_engine_name(NULL) == NULL);
    CHECK(haul_engine_run(NULL, 1) == 0 && haul_engine_bell_clear(NULL) == 0);
    CHECK(haul_engine_bell_fd(NULL) == -1 && haul_engine_bell_create(NULL) == HAUL_ERROR_NULL);
    CHECK(ticket == 7 && found == 7 && bytes == 7 && is_done && bell == NULL);
    haul_engine_bell_free(NULL);
    haul_engine_close(NULL);
}

static void arguments(haul_engine *engine)
{
    static const uint64_t wrong[] = {0, 1, 12345, UINT64_MAX, UINT64_C(1) << 32 | 0xffffffff};
    haul_engine_result result = {.crc32c = 7};
    uint64_t ticket = 7;
    bool is_done;
    size_t bytes;
    void *high = (void *)(UINTPTR_MAX - 3);
    CHECK(haul_engine_copy(engine, NULL, source, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_copy(engine, target, NULL, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_copy(engine, target, high, 5, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_copy(engine, high, source, 5, 0, NULL) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_copy(engine, target, source, SIZE_MAX, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_fill(engine, NULL, 1, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_fill(engine, target, 1, SIZE_MAX / 2 + 1, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_engine_compare(engine, target, NULL, 1, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_crc32c(engine, NULL, 1, 0, &ticket) == HAUL_ERROR_NULL);
    CHECK(haul_engine_copy_crc32c(engine, target, target + 9, 10, 0, 0, &ticket) == HAUL_ERROR_ARGUMENT);
    CHECK(ticket == 7);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(haul_engine_is_done(engine, wrong[i], &is_done) == HAUL_ERROR_NO_TICKET);
        CHECK(haul_engine_bytes_done(engine, wrong[i], &bytes) == HAUL_ERROR_NO_TICKET);
        CHECK(haul_engine_wait(engine, wrong[i], &result) == HAUL_ERROR_NO_TICKET);
        CHECK(haul_engine_wait_for(engine, wrong[i], none, &result) == HAUL_ERROR_NO_TICKET);
        CHECK(haul_engine_forget(engine, wrong[i]) == HAUL_ERROR_NO_TICKET);
        CHECK(haul_engine_call(engine, wrong[i], next, NULL) == HAUL_ERROR_NO_TICKET);
    }
    CHECK(result.crc32c == 7);
    CHECK(haul_engine_troubles(engine, NULL, 0, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_troubles(engine, NULL, 1, &bytes) == HAUL_ERROR_NULL);
    CHECK(haul_engine_troubles(engine, NULL, 0, &bytes) == HAUL_OK && bytes == 0);
    CHECK(haul_engine_call(engine, 1, NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_ring(engine, 1, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_conflicts(engine, target, 1, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_fill(engine, target, 5, 10, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_is_done(engine, ticket, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, NULL) == HAUL_ERROR_NO_TICKET);
}

/* A fake DSA that refuses every CRC-32C with status 0x20, executes nothing from the first fill on, and
 * removes itself at the first comparison. */
static void faults(void)
{
    haul_engine *engine = opened("dsa", HAUL_ENGINE_REPORT_FAULTS);
    haul_engine_result result;
    haul_engine_trouble troubles[2] = {{.status = 7}, {.status = 7}};
    size_t count = 0;
    uint32_t found = 7;
    uint64_t ticket, other;
    if (engine == NULL) {
        return;
    }
    CHECK(strcmp(haul_engine_name(engine), "dsa:wq0.0") == 0);
    unsigned char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + PAGE, PAGE) == 0);
    fill(source, 2 * PAGE, 5);
    CHECK(haul_engine_copy(engine, pages + 96, source, 2 * PAGE - 96, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_ERROR_PARTIAL);
    CHECK(result.bytes_done == PAGE - 96 && result.address == (uintptr_t)(pages + PAGE));
    CHECK(result.access == HAUL_ENGINE_ACCESS_WRITE && memcmp(pages + 96, source, PAGE - 96) == 0);
    CHECK(haul_engine_copy(engine, target, pages, 2 * PAGE, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_ERROR_PARTIAL);
    CHECK(result.bytes_done == PAGE && result.address == (uintptr_t)(pages + PAGE));
    CHECK(result.access == HAUL_ENGINE_ACCESS_READ && memcmp(target, pages, PAGE) == 0);
    CHECK(haul_engine_copy(engine, target, pages, 2 * PAGE, 0, NULL) == HAUL_OK);
    CHECK(haul_engine_drain(engine) == HAUL_ERROR_PARTIAL);
    CHECK(haul_engine_drain(engine) == HAUL_OK);

    CHECK(haul_engine_crc32c(engine, source, PAGE, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_ERROR_REFUSED);
    CHECK(result.device_status == 0x20 && result.crc32c == 0 && result.bytes_done == 0);
    CHECK(haul_engine_troubles(engine, troubles, 2, &count) == HAUL_OK && count == 1);
    CHECK(troubles[0].status == 0x20 && troubles[0].count == 1 && troubles[0].reserved == 0);
    CHECK(strstr(troubles[0].text, "accel-config") != NULL && troubles[1].status == 7);
    CHECK(haul_engine_troubles(engine, NULL, 0, &count) == HAUL_OK && count == 1);

    memset(target, 1, LARGE);
    CHECK(haul_engine_fill(engine, target, 2, LARGE, 0, &ticket) == HAUL_OK);
    CHECK(haul_engine_conflicts(engine, target, 1, &found) == HAUL_OK && found == HAUL_ENGINE_WRITES);
    CHECK(haul_engine_wait_for(engine, ticket, 1000, &result) == HAUL_ERROR_PENDING);
    CHECK(haul_engine_compare(engine, source, source, PAGE, &other) == HAUL_OK);
    CHECK(haul_engine_wait(engine, ticket, &result) == HAUL_ERROR_ENGINE_GONE);
    CHECK(result.bytes_done == 0 && result.address == 0);
    CHECK(haul_engine_conflicts(engine, target, 1, &found) == HAUL_OK && found == 0);
    /* The CPU does what the device does not take. */
    CHECK(haul_engine_wait(engine, other, &result) == HAUL_OK && result.difference == none);
    operations(engine);
    haul_engine_close(engine);
    munmap(pages, PAGE);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"inline", "worker", "auto"};
    const char *argument = argc == 2 ? argv[1] : "";
    if (strcmp(argument, "faults") == 0) {
        faults();
        return failures != 0;
    }
    wrong_opens();
    no_engine();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        haul_engine *engine = opened(names[i], i == 1 ? HAUL_ENGINE_REPORT_FAULTS : 0);
        CHECK(strcmp(haul_engine_name(engine), names[i]) == 0);
        arguments(engine);
        operations(engine);
        lists(engine);
        batches(engine);
        order(engine);
        if (i < 2) {
            conflicts(engine, i == 0);
        }
        bells(engine);
        threads(engine);
        if (strcmp(argument, "no-fork") != 0) {
            forks(engine);
        }
        callbacks(engine);
        haul_engine_close(engine);
    }
    return failures != 0;
}
