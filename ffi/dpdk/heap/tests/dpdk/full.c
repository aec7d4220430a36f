/* Exhausts memory twice: allocates small blocks until there is no more memory, then frees all.
 *
 *   full EAL-OPTIONS
 *
 * When memory is exhausted, it makes 5,000 more requests. Prints "blocks" with the number of blocks of the
 * first time, "again" with that of the second time, and "used" with the seconds of processor time of both. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_malloc.h>

#define BLOCKS_MAX ((size_t)4 << 20)

static void **blocks;

static size_t fill(void)
{
	size_t count = 0;

	while (count < BLOCKS_MAX && (blocks[count] = rte_zmalloc("full", 64, 0)) != NULL) {
		/* A block that was allocated twice is not zero. */
		if (*(uint64_t *)blocks[count] != 0)
			exit(1);
		*(uint64_t *)blocks[count] = count + 1;
		count++;
	}
	/* A program that has exhausted its memory continues to request more. */
	for (int i = 0; i < 5000; i++)
		rte_free(rte_zmalloc("full", 64, 0));
	for (size_t i = 0; i < count; i++) {
		if (*(uint64_t *)blocks[i] != i + 1)
			exit(1);
		rte_free(blocks[i]);
	}
	return count;
}

int main(int argc, char **argv)
{
	if (rte_eal_init(argc, argv) < 0)
		return 2;
	blocks = calloc(BLOCKS_MAX, sizeof(*blocks));
	if (blocks == NULL)
		return 2;
	struct timespec start, end;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
	printf("blocks %zu\n", fill());
	printf("again %zu\n", fill());
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	printf("used %.3f\n", end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9);
	free(blocks);
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
