/* Compares haul with libc: the same random calls on two equal arenas must keep them equal.
 *
 * differential SEED ROUNDS. Calls go through the functions and through the inline code of the header.
 * Source and target overlap by random amounts. The exit code is 0 if the arenas are equal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "haul.h"

enum { ARENA_BYTES = 1 << 20, GUARD_BYTES = 256 };

static unsigned char ours[ARENA_BYTES], theirs[ARENA_BYTES];
static uint64_t state;

/* xorshift64*: the same sequence on every machine. */
static uint64_t draw(uint64_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * UINT64_C(2685821657736338717)) % limit;
}

/* Most sizes are small, as in real programs; some are at the edges of size classes; few are hundreds of
 * KiB. */
static size_t draw_size(void)
{
    switch (draw(16)) {
    case 0:
        return (size_t)draw(ARENA_BYTES / 4);
    case 1:
    case 2:
        return (size_t)draw(8192);
    case 3:
    case 4:
        return ((size_t)1 << draw(16)) + (size_t)draw(3) - 1;
    case 5:
    case 6:
    case 7:
        return (size_t)draw(300);
    default:
        return (size_t)draw(80);
    }
}

static void fail(const char *what, size_t target, size_t source, size_t n)
{
    fprintf(stderr, "%s differs: target %zu, source %zu, %zu bytes\n", what, target, source, n);
    exit(1);
}

/* Compares the arenas around the target. Only the end of the program compares all of them. */
static void compare(const char *what, size_t target, size_t source, size_t n)
{
    size_t from = target < GUARD_BYTES ? 0 : target - GUARD_BYTES;
    size_t to = target + n + GUARD_BYTES;
    if (to > ARENA_BYTES) {
        to = ARENA_BYTES;
    }
    if (memcmp(ours + from, theirs + from, to - from) != 0) {
        fail(what, target, source, n);
    }
}

static void copy_once(size_t target, size_t source, size_t n)
{
    static const char *const names[] = {"haul_memcpy", "haul_memmove", "(haul_memcpy)",
                                        "(haul_memmove)", "haul_memcpy_hinted"};
    const unsigned function = (unsigned)draw(5);
    void *result = NULL;
    switch (function) {
    case 0:
        result = haul_memcpy(ours + target, ours + source, n);
        break;
    case 1:
        result = haul_memmove(ours + target, ours + source, n);
        break;
    case 2:
        result = (haul_memcpy)(ours + target, ours + source, n);
        break;
    case 3:
        result = (haul_memmove)(ours + target, ours + source, n);
        break;
    default:
        result = haul_memcpy_hinted(ours + target, ours + source, n, (haul_hint)draw(4));
    }
    memmove(theirs + target, theirs + source, n);
    compare(names[function], target, source, n);
    if (result != ours + target) {
        fail("the returned pointer", target, source, n);
    }
}

static void set_once(size_t target, size_t n)
{
    static const char *const names[] = {"haul_memset", "(haul_memset)", "haul_memset_hinted"};
    const unsigned function = (unsigned)draw(3);
    const int byte = (int)draw(1024) - 512;
    void *result = NULL;
    switch (function) {
    case 0:
        result = haul_memset(ours + target, byte, n);
        break;
    case 1:
        result = (haul_memset)(ours + target, byte, n);
        break;
    default:
        result = haul_memset_hinted(ours + target, byte, n, (haul_hint)draw(4));
    }
    memset(theirs + target, byte, n);
    compare(names[function], target, 0, n);
    if (result != ours + target) {
        fail("the returned pointer", target, 0, n);
    }
}

/* Every small size, at every distance at which source and target overlap, through the inline code. */
static void small_sizes(void)
{
    for (size_t n = 0; n <= 80; n++) {
        for (size_t source = 0; source <= 160; source++) {
            const size_t target = 80;
            haul_memmove(ours + target, ours + source, n);
            memmove(theirs + target, theirs + source, n);
            compare("haul_memmove", target, source, n);
            ours[source] = theirs[source] = (unsigned char)draw(256);
            /* haul_memcpy must behave the same, but has different code. */
            haul_memcpy(ours + target, ours + source, n);
            memmove(theirs + target, theirs + source, n);
            compare("haul_memcpy", target, source, n);
            ours[source] = theirs[source] = (unsigned char)draw(256);
        }
        haul_memset(ours + 64, (int)n, n);
        memset(theirs + 64, (int)n, n);
        compare("haul_memset", 64, 0, n);
    }
}

/* Sizes that are known at compile time. */
static void known_sizes(void)
{
#define CHECK(n)                                                    \
    do {                                                            \
        if (haul_memcpy(ours + 100, ours + 90, (n)) != ours + 100) { \
            fail("the returned pointer", 100, 90, (n));             \
        }                                                           \
        memmove(theirs + 100, theirs + 90, (n));                    \
        haul_memset(ours + 200, 7, (n));                            \
        memset(theirs + 200, 7, (n));                               \
        compare("a known size", 90, 200, 300);                      \
    } while (0)
    CHECK(0);
    CHECK(1);
    CHECK(7);
    CHECK(8);
    CHECK(16);
    CHECK(17);
    CHECK(31);
    CHECK(32);
    CHECK(33);
    CHECK(64);
    CHECK(65);
    CHECK(200);
#undef CHECK
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: differential SEED ROUNDS\n");
        return 2;
    }
    state = strtoull(argv[1], NULL, 10) | 1;
    const unsigned long rounds = strtoul(argv[2], NULL, 10);
    for (size_t i = 0; i < ARENA_BYTES; i++) {
        ours[i] = theirs[i] = (unsigned char)draw(256);
    }
    small_sizes();
    known_sizes();
    for (unsigned long round = 0; round < rounds; round++) {
        const size_t n = draw_size();
        const size_t source = (size_t)draw(ARENA_BYTES - n);
        size_t target = (size_t)draw(ARENA_BYTES - n);
        if (draw(4) == 0 && source + n + 128 < ARENA_BYTES) {
            target = source + (size_t)draw(128);
        } else if (draw(4) == 0 && source >= 128) {
            target = source - (size_t)draw(128);
        }
        copy_once(target, source, n);
        set_once((size_t)draw(ARENA_BYTES - n), draw(64) == 0 ? n : n % 512);
    }
    if (memcmp(ours, theirs, ARENA_BYTES) != 0) {
        fail("the arena", 0, 0, ARENA_BYTES);
    }
    printf("%lu rounds, no difference\n", rounds);
    return 0;
}
