/* Receives messages of any size into blocks of a heap. The sender has them in blocks of its own. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <haul.h>

static const size_t sizes[] = {64, 4096, 1 << 20, 8 << 20};
enum { MESSAGES = sizeof sizes / sizeof sizes[0] };

static int failed(const char *attempt, haul_status status)
{
    fprintf(stderr, "cannot %s: %s\n", attempt, haul_strerror(status));
    return 1;
}

static int send_messages(haul_heap *heap, int fd)
{
    haul_channel *channel;
    haul_status status = haul_channel_connect_fd(fd, NULL, &channel);
    if (status != HAUL_OK)
        return failed("connect", status);
    for (size_t i = 0; i < MESSAGES && status == HAUL_OK; i++) {
        void *block = haul_heap_alloc(heap, sizes[i], 64);
        if (block == NULL) {
            status = HAUL_ERROR_NO_MEMORY; /* a block has no status of its own */
            break;
        }
        memset(block, (int)i + 1, sizes[i]);
        status = haul_channel_send(channel, block, sizes[i], NULL);
        haul_heap_free(heap, block); /* after the call the bytes are this process's again */
    }
    haul_channel_close(channel);
    return status == HAUL_OK ? 0 : failed("send", status);
}

static int receive_messages(haul_heap *heap, int fd)
{
    haul_channel *channel;
    haul_status status = haul_channel_accept_fd(fd, NULL, &channel);
    if (status != HAUL_OK)
        return failed("accept", status);
    unsigned char *blocks[MESSAGES];
    size_t count = 0, size, wrong = 0;
    while (count < MESSAGES && (status = haul_channel_wait_size(channel, &size)) == HAUL_OK) {
        unsigned char *block = haul_heap_alloc(heap, size, 64);
        if (block == NULL) {
            status = HAUL_ERROR_NO_MEMORY;
            break;
        }
        status = haul_channel_recv_into(channel, block, size, NULL);
        if (status != HAUL_OK)
            break;
        wrong += size != sizes[count] || block[0] != count + 1 || block[size - 1] != count + 1;
        blocks[count++] = block;
    }
    if (status == HAUL_OK && haul_channel_wait_size(channel, &size) != HAUL_ERROR_CLOSED)
        wrong++; /* the sender has closed its end: no further message */
    haul_channel_close(channel);

    haul_heap_stats stats;
    if (haul_heap_get_stats(heap, HAUL_NODE_ANY, &stats) == HAUL_OK)
        printf("received %zu messages into %llu blocks of the heap\n", count,
               (unsigned long long)stats.live_blocks);
    while (count > 0)
        if (haul_heap_free(heap, blocks[--count]) != HAUL_OK)
            wrong++;
    return status == HAUL_OK ? wrong != 0 : failed("receive", status);
}

int main(void)
{
    int fds[2];
    haul_status status = haul_channel_pair(fds);
    if (status != HAUL_OK)
        return failed("make a channel", status);
    pid_t child = fork();
    if (child < 0)
        return 1;
    close(fds[child == 0 ? 1 : 0]);
    haul_heap *heap; /* each process has a heap of its own, created after the fork */
    status = haul_heap_create(&(haul_heap_options){.limit = 1 << 30}, &heap);
    if (status != HAUL_OK)
        return failed("create a heap", status);
    int failure = child == 0 ? send_messages(heap, fds[0]) : receive_messages(heap, fds[1]);
    haul_heap_destroy(heap);
    int ended = 0;
    if (child > 0)
        waitpid(child, &ended, 0);
    return failure || ended != 0;
}
