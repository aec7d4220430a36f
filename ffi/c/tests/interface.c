/* Tests the interface apart from copying: codes, messages, outputs, NULL. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "haul.h"
/* A second #include is harmless. */
#include "haul.h"

static int failures;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "interface.c:%d: %s does not hold\n", __LINE__, #condition); \
            failures++;                                                        \
        }                                                                      \
    } while (0)

static void version(void)
{
    CHECK(strcmp(haul_version(), HAUL_VERSION) == 0);
}

static void messages(void)
{
    /* The numbers are part of the interface. */
    CHECK(HAUL_OK == 0);
    CHECK(HAUL_ERROR_NULL == 1);
    CHECK(HAUL_ERROR_NO_SUCH_THRESHOLD == 2);
    CHECK(HAUL_ERROR_TUNING_IGNORED == 3);
    CHECK(HAUL_ERROR_INTERNAL == 4);
    CHECK(HAUL_ERROR_ARGUMENT == 5);
    CHECK(HAUL_ERROR_DAMAGED == 17);
    for (int code = -2; code < 100; code++) {
        const char *message = haul_strerror(code);
        CHECK(message != NULL && message[0] != '\0');
        for (int other = 0; other < code && other <= HAUL_ERROR_DAMAGED && code > 0; other++) {
            CHECK(strcmp(message, haul_strerror(other)) != 0);
        }
    }
}

/* Lengths of one burst: none, small, an Ethernet frame, a jumbo frame. */
static void batches(void)
{
    static const size_t lengths[] = {0, 1, 12, 64, 65, 512, 1500, 9000};
    static unsigned char source[16384], target[16384];
    haul_copy_part parts[sizeof lengths / sizeof *lengths];
    size_t count = 0, at = 0;
    for (size_t index = 0; index < sizeof source; index++) {
        source[index] = (unsigned char)(index * 7 + 1);
    }
    for (; count < sizeof lengths / sizeof *lengths; count++) {
        parts[count].target = target + at;
        parts[count].source = source + at;
        parts[count].n = lengths[count];
        at += lengths[count] + 1;
    }
    haul_copy_batch(NULL, 0);
    haul_copy_batch(parts, 0);
    CHECK(target[1] == 0);
    haul_copy_batch(parts, count);
    for (count = 0, at = 0; count < sizeof lengths / sizeof *lengths; count++) {
        CHECK(memcmp(target + at, source + at, lengths[count]) == 0);
        CHECK(target[at + lengths[count]] == 0);
        at += lengths[count] + 1;
    }
}

static void thresholds(void)
{
    size_t count = 0, bytes = 12345;
    const char *name = NULL;
    while ((name = haul_thresholds_name(count)) != NULL) {
        size_t before = 0;
        CHECK(haul_thresholds_get(name, &before) == HAUL_OK);
        CHECK(haul_thresholds_set(name, 100000 + count) == HAUL_OK);
        CHECK(haul_thresholds_get(name, &bytes) == HAUL_OK && bytes == 100000 + count);
        /* A value that is too small is raised; the largest means never. */
        CHECK(haul_thresholds_set(name, 0) == HAUL_OK);
        CHECK(haul_thresholds_get(name, &bytes) == HAUL_OK && bytes > 0);
        CHECK(haul_thresholds_set(name, SIZE_MAX) == HAUL_OK);
        CHECK(haul_thresholds_get(name, &bytes) == HAUL_OK && bytes == SIZE_MAX);
        CHECK(haul_thresholds_set(name, before) == HAUL_OK);
        count++;
    }
    CHECK(count >= 6);
    CHECK(haul_thresholds_name(SIZE_MAX) == NULL);

    bytes = 12345;
    CHECK(haul_thresholds_get("no_such_name", &bytes) == HAUL_ERROR_NO_SUCH_THRESHOLD);
    CHECK(haul_thresholds_get("", &bytes) == HAUL_ERROR_NO_SUCH_THRESHOLD);
    CHECK(haul_thresholds_get("\xff\xfe", &bytes) == HAUL_ERROR_NO_SUCH_THRESHOLD);
    CHECK(haul_thresholds_get(NULL, &bytes) == HAUL_ERROR_NULL);
    CHECK(haul_thresholds_get("rep_movsb_min", NULL) == HAUL_ERROR_NULL);
    CHECK(haul_thresholds_get(NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_thresholds_set(NULL, 1) == HAUL_ERROR_NULL);
    CHECK(haul_thresholds_set("no_such_name", 1) == HAUL_ERROR_NO_SUCH_THRESHOLD);
    /* Outputs are written only on success. */
    CHECK(bytes == 12345);
}

/* If there are no bytes, the pointers may have any value. */
static void nothing_to_copy(void)
{
    void *const nowhere = (void *)(uintptr_t)64;
    volatile size_t none = 0;
    CHECK(haul_memcpy(NULL, NULL, none) == NULL);
    CHECK(haul_memmove(NULL, NULL, none) == NULL);
    CHECK(haul_memset(NULL, 1, none) == NULL);
    CHECK((haul_memcpy)(NULL, NULL, 0) == NULL);
    CHECK((haul_memmove)(NULL, NULL, 0) == NULL);
    CHECK((haul_memset)(NULL, 1, 0) == NULL);
    CHECK((haul_memcpy)(nowhere, nowhere, 0) == nowhere);
    CHECK(haul_memcpy_hinted(nowhere, nowhere, 0, HAUL_HINT_STREAMED) == nowhere);
    CHECK(haul_memset_hinted(nowhere, 1, 0, HAUL_HINT_READ_SOON) == nowhere);
}

/* Arguments that contain commas, at which a macro of three parameters would split. */
static void commas(void)
{
    int target[2] = {0, 0};
    CHECK(haul_memcpy(target, (int[]){1, 2}, sizeof target) == target);
    CHECK(target[0] == 1 && target[1] == 2);
    CHECK(haul_memmove(target, (int[]){3, 4}, sizeof target) == target);
    CHECK(target[0] == 3 && target[1] == 4);
    CHECK(haul_memset(target, (int[]){5, 6}[1], sizeof target) == target);
    CHECK(target[0] == 0x06060606 && target[1] == 0x06060606);
}

/* Calls through pointers, as from another language. */
static void pointers(void)
{
    void *(*const copy)(void *, const void *, size_t) = haul_memcpy;
    void *(*const set)(void *, int, size_t) = &haul_memset;
    char source[300], target[300];
    set(source, 'x', sizeof source);
    set(target, 0, sizeof target);
    CHECK(copy(target, source, sizeof source) == target);
    CHECK(memcmp(target, source, sizeof source) == 0);
}

/* A number that is not a hint counts as HAUL_HINT_UNKNOWN. */
static void hints(void)
{
    static unsigned char source[20000], target[20000];
    for (int number = -1; number < 5; number++) {
        memset(source, 40 + number, sizeof source);
        CHECK(haul_memcpy_hinted(target, source, sizeof source, (haul_hint)number) == target);
        CHECK(memcmp(target, source, sizeof source) == 0);
        CHECK(haul_memset_hinted(target, 0x1ff, sizeof target, (haul_hint)number) == target);
        CHECK(target[0] == 0xff && target[sizeof target - 1] == 0xff);
    }
}

int main(void)
{
    CHECK(haul_init() == HAUL_OK);
    CHECK(haul_init() == HAUL_OK);
    version();
    messages();
    batches();
    thresholds();
    nothing_to_copy();
    commas();
    pointers();
    hints();
    return failures == 0 ? 0 : 1;
}
