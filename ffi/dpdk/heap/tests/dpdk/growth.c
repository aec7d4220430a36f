/* A growth test: rounds of allocations without frees between them.
 *
 *   growth EAL-OPTIONS -- SIZE ALIGN ROUNDS COUNT
 *
 * Prints one line per round with the nanoseconds per allocation, then "footprint" with the bytes that DPDK
 * used per byte of payload, then frees all blocks and prints "freed" with the nanoseconds per free. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_memory.h>

static double now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);

	if (used < 0 || argc - used != 5)
		return 2;
	argv += used;
	size_t size = strtoull(argv[1], NULL, 0), align = strtoull(argv[2], NULL, 0);
	size_t rounds = strtoull(argv[3], NULL, 0), count = strtoull(argv[4], NULL, 0);
	void **blocks = calloc(rounds * count, sizeof(*blocks));

	if (blocks == NULL)
		return 2;
	for (size_t round = 0; round < rounds; round++) {
		double start = now_ns();

		for (size_t i = 0; i < count; i++) {
			void *block = rte_malloc("growth", size, align);

			if (block == NULL || (uintptr_t)block % align != 0) {
				printf("round %zu: block %zu: %p\n", round, i, block);
				return 1;
			}
			blocks[round * count + i] = block;
		}
		printf("round %zu %.1f\n", round, (now_ns() - start) / count);
	}
	uint64_t taken = rte_eal_get_physmem_size();
	struct rte_malloc_socket_stats stats;

	if (rte_malloc_get_socket_stats(0, &stats) != 0)
		return 1;
	printf("footprint %.3f\n", (double)taken / (rounds * count * size));
	printf("allocated %zu\n", stats.heap_allocsz_bytes);
	double start = now_ns();

	for (size_t i = 0; i < rounds * count; i++)
		rte_free(blocks[i]);
	printf("freed %.1f\n", (now_ns() - start) / (rounds * count));
	free(blocks);
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
