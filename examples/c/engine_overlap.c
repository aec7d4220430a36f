/* A copy beside the program's own work: a helper thread copies, and the program computes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <haul.h>

enum { BYTES = 16 << 20, NUMBERS = 1 << 20 };

/* The work of the program: the number of primes below n. */
static long primes(unsigned char *is_composite, long n)
{
    long count = 0;
    for (long i = 2; i < n; i++) {
        if (is_composite[i])
            continue;
        count++;
        for (long j = 2 * i; j < n; j += i)
            is_composite[j] = 1;
    }
    return count;
}

int main(void)
{
    unsigned char *source = malloc(BYTES), *target = malloc(BYTES), *numbers = calloc(NUMBERS, 1);
    haul_engine *engine;
    haul_status status = haul_engine_open("auto", NULL, &engine);
    if (source == NULL || target == NULL || numbers == NULL || status != HAUL_OK) {
        fprintf(stderr, "cannot start: %s\n", haul_strerror(status));
        return 1;
    }
    memset(source, 7, BYTES);

    /* Until the copy has ended, the program does not write the source, nor use the target. The sum
     * is of the bytes that the copy writes, so the engine starts it after the copy. */
    uint64_t copy, sum;
    if (haul_engine_copy(engine, target, source, BYTES, HAUL_HINT_UNKNOWN, &copy) != HAUL_OK ||
        haul_engine_crc32c(engine, target, BYTES, 0, &sum) != HAUL_OK)
        return 1;
    long count = primes(numbers, NUMBERS);

    /* A program that does not know whether its bytes are in use asks the engine. */
    uint32_t uses;
    if (haul_engine_conflicts(engine, numbers, NUMBERS, &uses) != HAUL_OK || uses != 0)
        return 1;

    haul_engine_result result;
    if (haul_engine_wait(engine, copy, NULL) != HAUL_OK ||
        haul_engine_wait(engine, sum, &result) != HAUL_OK)
        return 1;
    printf("copied %d B while the program computed %ld primes; CRC-32C %08x\n", BYTES, count,
           (unsigned)result.crc32c);
    int failed = memcmp(target, source, BYTES) != 0;
    haul_engine_close(engine);
    free(source);
    free(target);
    free(numbers);
    return failed;
}
