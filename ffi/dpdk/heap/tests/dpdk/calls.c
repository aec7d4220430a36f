/* The calls of rte_malloc's family and their required results, with the drop-in and without. A failed
 * check prints its line. The last line is "passed" or the number of failures. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <pthread.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_memzone.h>
#include <rte_mempool.h>
#include <rte_ring.h>

static int failures;

#define CHECK(claim)                                                                               \
	do {                                                                                       \
		if (!(claim)) {                                                                    \
			printf("calls.c:%d: %s\n", __LINE__, #claim);                              \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

static int is_filled(const unsigned char *block, unsigned char value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (block[i] != value)
			return 0;
	return 1;
}

static void before_init(void)
{
	CHECK(rte_malloc("early", 64, 0) == NULL);
	CHECK(rte_zmalloc_socket("early", 64, 0, 0) == NULL);
	rte_free(NULL);
}

static void sizes_and_alignments(void)
{
	static const size_t sizes[] = {1, 63, 64, 65, 1000, 4096, 5000, 65536, 262144, 262145,
				       1 << 20, (1 << 20) + 1, 3 << 20};
	static const unsigned int aligns[] = {0, 1, 8, 64, 128, 2048, 4096, 65536, 1 << 20};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (size_t j = 0; j < sizeof(aligns) / sizeof(*aligns); j++) {
			size_t least = aligns[j] < 64 ? 64 : aligns[j], usable = 0;
			unsigned char *block = rte_malloc("sizes", sizes[i], aligns[j]);

			CHECK(block != NULL && (uintptr_t)block % least == 0);
			if (block == NULL)
				continue;
			CHECK(rte_malloc_validate(block, &usable) == 0 && usable >= sizes[i]);
			memset(block, 0xa5, sizes[i]);
			rte_free(block);
			block = rte_zmalloc("sizes", sizes[i], aligns[j]);
			CHECK(block != NULL && is_filled(block, 0, sizes[i]));
			rte_free(block);
		}
}

static void bad_requests(void)
{
	CHECK(rte_malloc(NULL, 0, 0) == NULL);
	CHECK(rte_malloc(NULL, 64, 17) == NULL);
	CHECK(rte_malloc(NULL, SIZE_MAX, 0) == NULL);
	CHECK(rte_malloc(NULL, (size_t)1 << 63, 64) == NULL);
	CHECK(rte_malloc(NULL, (size_t)1 << 50, 64) == NULL);
	CHECK(rte_malloc_socket(NULL, 64, 0, 7777) == NULL || !rte_eal_has_hugepages());
	CHECK(rte_realloc(NULL, 0, 64) == NULL);
	CHECK(rte_malloc_validate(NULL, NULL) == -1);
}

static void realloc_keeps_contents(void)
{
	static const size_t sizes[] = {100, 64, 1000, 4096, 4097, 100000, 300000, 600000, 1 << 20,
				       2 << 20, 5 << 20, 300000, 50};
	size_t before = 10;
	unsigned char *block = rte_malloc("realloc", before, 0);

	CHECK(block != NULL);
	memset(block, 0x5a, before);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t kept = before < sizes[i] ? before : sizes[i];

		block = rte_realloc(block, sizes[i], 64);
		CHECK(block != NULL && is_filled(block, 0x5a, kept));
		if (block == NULL)
			return;
		memset(block, 0x5a, sizes[i]);
		before = sizes[i];
	}
	block = rte_realloc_socket(block, 200, 8192, SOCKET_ID_ANY);
	CHECK(block != NULL && (uintptr_t)block % 8192 == 0 && is_filled(block, 0x5a, 50));
	rte_free(block);
}

static void external_heap(void)
{
	size_t bytes = 4 << 20, page = 4096, usable;
	void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(area != MAP_FAILED && rte_malloc_heap_create("outside") == 0);
	CHECK(rte_malloc_heap_memory_add("outside", area, bytes, NULL, bytes / page, page) == 0);
	int socket = rte_malloc_heap_get_socket("outside");
	unsigned char *block = rte_zmalloc_socket("outside", 3000, 128, socket);

	CHECK(block >= (unsigned char *)area && block < (unsigned char *)area + bytes);
	CHECK(rte_malloc_validate(block, &usable) == 0 && usable >= 3000);
	block = rte_realloc_socket(block, 6000, 128, socket);
	CHECK(block >= (unsigned char *)area && block < (unsigned char *)area + bytes);
	/* Moves the block from the external heap to a native one, and back. */
	memset(block, 7, 6000);
	block = rte_realloc_socket(block, 7000, 4096, rte_socket_id_by_idx(0));
	CHECK(block < (unsigned char *)area || block >= (unsigned char *)area + bytes);
	CHECK(is_filled(block, 7, 6000));
	block = rte_realloc_socket(block, 9000, 64, socket);
	CHECK(block >= (unsigned char *)area && block < (unsigned char *)area + bytes);
	CHECK(is_filled(block, 7, 6000));
	rte_free(block);
	CHECK(rte_malloc_heap_memory_remove("outside", area, bytes) == 0);
	CHECK(rte_malloc_heap_destroy("outside") == 0);
	munmap(area, bytes);
}

static void io_addresses(void)
{
	unsigned char *block = rte_malloc("iova", 4096, 4096);
	const struct rte_memseg *page = rte_mem_virt2memseg(block, NULL);

	CHECK(page != NULL);
	if (rte_eal_iova_mode() == RTE_IOVA_VA)
		CHECK(rte_malloc_virt2iova(block) == (uintptr_t)block);
	else if (page != NULL && page->iova != RTE_BAD_IOVA)
		CHECK(rte_malloc_virt2iova(block) ==
		      page->iova + (block - (unsigned char *)page->addr));
	CHECK(rte_mem_virt2iova(block) == rte_malloc_virt2iova(block));
	rte_free(block);
}

static void statistics(void)
{
	struct rte_malloc_socket_stats before, during, after;
	void *blocks[100];

	/* The first round makes the heap grow and fills the threads' caches. */
	for (int round = 0; round < 2; round++) {
		CHECK(rte_malloc_get_socket_stats(0, &before) == 0);
		for (int i = 0; i < 100; i++)
			blocks[i] = rte_malloc("stats", 1024, 0);
		CHECK(rte_malloc_get_socket_stats(0, &during) == 0);
		for (int i = 0; i < 100; i++)
			rte_free(blocks[i]);
		CHECK(rte_malloc_get_socket_stats(0, &after) == 0);
	}
	CHECK(during.alloc_count == before.alloc_count + 100);
	CHECK(during.heap_allocsz_bytes >= before.heap_allocsz_bytes + 100 * 1024);
	CHECK(during.heap_freesz_bytes + during.heap_allocsz_bytes == during.heap_totalsz_bytes);
	CHECK(after.alloc_count == before.alloc_count);
	CHECK(after.heap_allocsz_bytes == before.heap_allocsz_bytes);
	CHECK(rte_malloc_get_socket_stats(4242, &after) == -1);
	rte_malloc_dump_stats(stdout, NULL);
}

/* Small blocks leave idle memory. Large blocks may use it, and DPDK gets the rest. */
static void memory_used_before(void)
{
	static void *blocks[6000];
	size_t count = sizeof(blocks) / sizeof(*blocks), small = 65536, large = 3 << 20, usable;
	struct rte_malloc_socket_stats before, after;
	unsigned char *some[8];

	rte_malloc_get_socket_stats(0, &before);
	for (size_t i = 0; i < count; i++) {
		blocks[i] = rte_malloc("small", small, 0);
		CHECK(blocks[i] != NULL);
		if (blocks[i] != NULL)
			memset(blocks[i], 0xee, small);
	}
	for (size_t i = 0; i < count; i++)
		rte_free(blocks[i]);
	for (int i = 0; i < 8; i++) {
		some[i] = rte_zmalloc("large", large, 4096);
		CHECK(some[i] != NULL && (uintptr_t)some[i] % 4096 == 0);
		CHECK(is_filled(some[i], 0, large));
		CHECK(rte_malloc_validate(some[i], &usable) == 0 && usable >= large);
		memset(some[i], i, large);
	}
	rte_malloc_get_socket_stats(0, &after);
	CHECK(after.alloc_count == before.alloc_count + 8);
	for (int i = 0; i < 8; i++) {
		some[i] = rte_realloc(some[i], 2 * large, 0);
		CHECK(some[i] != NULL && is_filled(some[i], (unsigned char)i, large));
	}
	for (int i = 0; i < 8; i++)
		rte_free(some[i]);
	/* The request exceeds DPDK's memory without that of the small blocks. */
	unsigned char *most = rte_malloc("most", (size_t)600 << 20, 0);

	CHECK(most != NULL);
	rte_free(most);
	CHECK(rte_malloc("too much", (size_t)2 << 30, 0) == NULL);
	CHECK(rte_malloc("crooked", 1 << 20, 48) == NULL);
	rte_malloc_get_socket_stats(0, &after);
	CHECK(after.alloc_count == before.alloc_count);
}

static void *in_a_thread(void *argument)
{
	unsigned int state = (uintptr_t)argument;
	void *held[64] = {NULL};

	for (int i = 0; i < 200000; i++) {
		state = state * 1664525 + 1013904223;
		unsigned int slot = state >> 26;

		rte_free(held[slot]);
		size_t size = 1 + (state >> 8) % 5000;

		held[slot] = rte_malloc("thread", size, 0);
		if (held[slot] == NULL)
			return "out of memory";
		memset(held[slot], (int)state, size);
	}
	for (int i = 0; i < 64; i++)
		rte_free(held[i]);
	return NULL;
}

static void threads(void)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, in_a_thread, (void *)(i + 1)) == 0);
	for (int i = 0; i < 4; i++) {
		void *problem;

		pthread_join(threads[i], &problem);
		CHECK(problem == NULL);
	}
}

/* DPDK's own libraries allocate too, so that blocks of DPDK and of the heaps mix in one program. */
static void libraries(void)
{
	struct rte_ring *ring = rte_ring_create("ring", 1024, SOCKET_ID_ANY, 0);
	struct rte_mempool *pool = rte_mempool_create("pool", 1023, 2048, 32, 0, NULL, NULL, NULL,
						      NULL, SOCKET_ID_ANY, 0);
	const struct rte_memzone *zone = rte_memzone_reserve("zone", 100000, SOCKET_ID_ANY, 0);

	CHECK(ring != NULL && pool != NULL && zone != NULL);
	CHECK(rte_memzone_free(zone) == 0);
	rte_mempool_free(pool);
	rte_ring_free(ring);
}

/* A heap serves a large block from idle memory that it has not returned yet. The usable size shows this,
 * because the heap rounds large blocks to 64 KiB and DPDK rounds them to cache lines. */
static void idle_memory(void)
{
	enum { COUNT = 3000, SMALL = 4096, LARGE = (1 << 20) + 64, SLICE = 65536 };
	static unsigned char *blocks[COUNT];
	size_t usable;

	for (int i = 0; i < COUNT; i++) {
		blocks[i] = rte_malloc("small", SMALL, 0);
		CHECK(blocks[i] != NULL);
	}
	for (int i = 0; i < COUNT; i++)
		rte_free(blocks[i]);
	unsigned char *large = rte_malloc("large", LARGE, 0);

	CHECK(large != NULL && rte_malloc_validate(large, &usable) == 0 && usable % SLICE == 0);
	memset(large, 0x3c, LARGE);
	CHECK(is_filled(large, 0x3c, LARGE));
	rte_free(large);
}

/* The number of bytes that DPDK itself has allocated. DPDK's dump prints it first. */
static size_t dpdk_allocated(void)
{
	static const char title[] = "Alloc_size:";
	char *text = NULL;
	size_t length, bytes = 0;
	FILE *file = open_memstream(&text, &length);

	CHECK(file != NULL);
	rte_malloc_dump_stats(file, NULL);
	fclose(file);
	char *found = strstr(text, title);

	CHECK(found != NULL && sscanf(found + sizeof(title) - 1, "%zu", &bytes) == 1);
	free(text);
	return bytes;
}

/* Some seconds after small blocks were freed, a large block uses their memory while a live block keeps it
 * from DPDK. DPDK gets the memory when no block is left in it. */
static void idle_pages(void)
{
	/* Blocks in the thread's cache keep whole extents in use. */
	enum { COUNT = 2000, KEPT = 400, SMALL = 65536, LARGE = 3 << 20, GONE = 32 << 20 };
	static unsigned char *blocks[COUNT];
	size_t allocated;
	int inside = 0;

	for (int i = 0; i < COUNT; i++) {
		blocks[i] = rte_malloc("small", SMALL, 0);
		CHECK(blocks[i] != NULL);
	}
	allocated = dpdk_allocated();
	for (int i = 0; i < COUNT; i++)
		if (i % KEPT != 0)
			rte_free(blocks[i]);
	unsigned char *large = NULL;

	/* On a busy machine the thread that returns memory runs late. */
	for (int tries = 0; inside == 0 && tries < 60; tries++) {
		rte_free(large);
		sleep(tries == 0 ? 2 : 1);
		large = rte_malloc("large", LARGE, 0);
		CHECK(large != NULL);
		for (int i = 0; i < COUNT; i++)
			inside += blocks[i] >= large && blocks[i] < large + LARGE;
	}
	CHECK(inside > 0);
	memset(large, 0x3d, LARGE);
	for (int i = 0; i < COUNT; i += KEPT)
		rte_free(blocks[i]);
	rte_free(large);
	for (int tries = 0; dpdk_allocated() + GONE > allocated && tries < 600; tries++)
		usleep(100000);
	CHECK(dpdk_allocated() + GONE <= allocated);
}

/* Makes the misuse that corrupts DPDK's own heap, but not the drop-in's heaps. */
static void misuse(void)
{
	unsigned char *block = rte_malloc("misuse", 100, 0);
	struct rte_malloc_socket_stats before, after;

	rte_free(block);
	rte_malloc_get_socket_stats(0, &before);
	rte_free(block);
	rte_free(block + 8);
	CHECK(rte_malloc_validate(block, NULL) == -1);
	CHECK(rte_realloc(block, 4000, 0) == NULL);
	rte_malloc_get_socket_stats(0, &after);
	CHECK(after.alloc_count == before.alloc_count);
	void *first = rte_malloc("misuse", 100, 0), *second = rte_malloc("misuse", 100, 0);

	CHECK(first != NULL && second != NULL && first != second);
	rte_free(first);
	rte_free(second);
}

int main(int argc, char **argv)
{
	before_init();
	int used = rte_eal_init(argc, argv);

	if (used < 0)
		return 2;
	sizes_and_alignments();
	bad_requests();
	realloc_keeps_contents();
	external_heap();
	io_addresses();
	statistics();
	memory_used_before();
	threads();
	libraries();
	if (argc > used + 1 && strcmp(argv[used + 1], "misuse") == 0) {
		idle_memory();
		idle_pages();
		misuse();
	}
	void *late = rte_malloc("late", 64, 0);

	CHECK(late != NULL);
	CHECK(rte_eal_cleanup() == 0);
	if (failures == 0)
		printf("passed\n");
	else
		printf("%d failures\n", failures);
	return failures != 0;
}
