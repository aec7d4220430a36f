/* Two processes of one application.
 *
 *   peers EAL-OPTIONS -- exchange    the primary and a secondary free each other's blocks
 *   peers EAL-OPTIONS -- loop        a secondary allocates and frees until it is killed
 *
 * The primary reads lines from its standard input: "give" allocates blocks for the secondary, "take"
 * checks and frees the blocks of the secondary, "work" allocates and frees for a while, "end" ends. It
 * answers each line with a line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_memzone.h>

#define COUNT 2000

struct shared {
	unsigned char *blocks[COUNT];
	size_t sizes[COUNT];
};

static unsigned int state = 1;

static unsigned int draw(unsigned int below)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % below;
}

static int fill(struct shared *shared, unsigned char value)
{
	for (int i = 0; i < COUNT; i++) {
		/* Some are larger than the blocks that the drop-in serves. */
		shared->sizes[i] = i % 500 == 0 ? 2 << 20 : 1 + draw(9000);
		shared->blocks[i] = rte_malloc("peers", shared->sizes[i], 0);
		if (shared->blocks[i] == NULL)
			return -1;
		memset(shared->blocks[i], value, shared->sizes[i]);
	}
	return 0;
}

/* Checks all blocks and frees them. */
static int drain(struct shared *shared, unsigned char value)
{
	for (int i = 0; i < COUNT; i++) {
		for (size_t j = 0; j < shared->sizes[i]; j++)
			if (shared->blocks[i][j] != value)
				return -1;
		if (rte_malloc_validate(shared->blocks[i], NULL) != 0)
			return -1;
		rte_free(shared->blocks[i]);
	}
	return 0;
}

static int work(long rounds)
{
	static void *held[512];

	for (long round = 0; rounds == 0 || round < rounds; round++) {
		unsigned int slot = draw(512);

		rte_free(held[slot]);
		held[slot] = rte_malloc("work", 1 + draw(20000), draw(8) == 0 ? 4096 : 0);
		if (held[slot] == NULL)
			return -1;
		memset(held[slot], 1, 64);
	}
	return 0;
}

static int primary(struct shared *shared)
{
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin) != NULL) {
		int result = 0;
		unsigned int allocated = 0;
		struct rte_malloc_socket_stats stats;

		if (strcmp(line, "give\n") == 0)
			result = fill(shared, 0x11);
		else if (strcmp(line, "take\n") == 0)
			result = drain(shared, 0x22);
		else if (strcmp(line, "work\n") == 0)
			result = work(300000);
		else
			break;
		if (rte_malloc_get_socket_stats(0, &stats) == 0)
			allocated = stats.alloc_count;
		printf("%s %u\n", result == 0 ? "done" : "failed", allocated);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);

	if (used < 0)
		return 2;
	const char *role = argc > used + 1 ? argv[used + 1] : "";

	if (rte_eal_process_type() == RTE_PROC_PRIMARY) {
		const struct rte_memzone *zone =
			rte_memzone_reserve("peers", sizeof(struct shared), SOCKET_ID_ANY, 0);

		if (zone == NULL)
			return 2;
		int result = primary(zone->addr);

		rte_eal_cleanup();
		return result;
	}
	const struct rte_memzone *zone = rte_memzone_lookup("peers");

	if (zone == NULL)
		return 2;
	if (strcmp(role, "loop") == 0) {
		printf("looping\n");
		fflush(stdout);
		state = getpid();
		return work(0) == 0 ? 0 : 1;
	}
	int result = drain(zone->addr, 0x11) == 0 && fill(zone->addr, 0x22) == 0 ? 0 : 1;

	rte_eal_cleanup();
	return result;
}
