/* A heap that two processes share: one writes to a block, the other reads it in place. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <haul.h>

static const char text[] = "from one process to the other, without a copy";

static int read_block(const char *name, uint64_t offset)
{
    haul_heap *heap;
    haul_status status = haul_heap_attach(name, &heap);
    if (status != HAUL_OK) {
        fprintf(stderr, "cannot attach: %s\n", haul_strerror(status));
        return 1;
    }
    const char *block = haul_heap_pointer(heap, offset);
    int failed = block == NULL || strcmp(block, text) != 0;
    printf("process %ld reads: %s\n", (long)getpid(), block == NULL ? "nothing" : block);
    haul_heap_destroy(heap);
    return failed;
}

int main(int count, char **arguments)
{
    if (count == 3)
        return read_block(arguments[1], strtoull(arguments[2], NULL, 10));

    char name[64], number[32];
    snprintf(name, sizeof name, "example-c-%ld", (long)getpid());
    haul_heap *heap;
    haul_status status = haul_heap_create_named(&(haul_heap_options){.limit = 1 << 30}, name, &heap);
    if (status != HAUL_OK) {
        fprintf(stderr, "cannot create a heap: %s\n", haul_strerror(status));
        return 1;
    }
    char *block = haul_heap_alloc(heap, sizeof text, 64);
    uint64_t offset;
    if (block == NULL || haul_heap_offset(heap, block, &offset) != HAUL_OK)
        return 1;
    memcpy(block, text, sizeof text);

    /* Each process maps the heap at another address, so processes exchange offsets. */
    snprintf(number, sizeof number, "%llu", (unsigned long long)offset);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", arguments[0], name, number, (char *)NULL);
        _exit(127);
    }
    int ended = 1;
    waitpid(child, &ended, 0);
    haul_heap_free(heap, block);
    haul_heap_remove_name(name);
    haul_heap_destroy(heap);
    return ended != 0;
}
