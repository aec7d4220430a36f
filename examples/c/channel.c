/* Sends 64 MiB to another process, which gets a private copy, whole or not at all. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <haul.h>

enum { BYTES = 64 << 20 };

static int failed(const char *attempt, haul_status status)
{
    fprintf(stderr, "cannot %s: %s\n", attempt, haul_strerror(status));
    return 1;
}

static int send_message(int fd)
{
    haul_channel *channel;
    haul_status status = haul_channel_connect_fd(fd, NULL, &channel);
    if (status != HAUL_OK)
        return failed("connect", status);
    unsigned char *bytes = malloc(BYTES);
    if (bytes == NULL)
        return 1;
    memset(bytes, 7, BYTES);
    /* After the call this process may change the bytes. */
    status = haul_channel_send(channel, bytes, BYTES, NULL);
    char answer[9];
    if (status == HAUL_OK)
        status = haul_channel_recv_into(channel, answer, sizeof answer, NULL);
    free(bytes);
    haul_channel_close(channel);
    return status == HAUL_OK ? memcmp(answer, "thank you", 9) != 0 : failed("send", status);
}

static int receive_message(int fd)
{
    haul_channel *channel;
    haul_status status = haul_channel_accept_fd(fd, NULL, &channel);
    if (status != HAUL_OK)
        return failed("accept", status);
    haul_channel_buffer *message;
    status = haul_channel_recv(channel, &message); /* private, and writable */
    if (status != HAUL_OK)
        return failed("receive", status);
    size_t size = haul_channel_buffer_size(message);
    const unsigned char *bytes = haul_channel_buffer_data(message);
    int is_whole = size == BYTES && bytes[0] == 7 && bytes[size - 1] == 7;
    printf("received %zu B\n", size);
    haul_channel_buffer_free(message);
    status = haul_channel_send(channel, "thank you", 9, NULL);
    int ended = 0;
    wait(&ended);
    haul_channel_close(channel);
    return status != HAUL_OK || !is_whole || ended != 0;
}

int main(void)
{
    /* Two connected ends. haul_channel_listen() and haul_channel_connect() use a path instead. */
    int fds[2];
    haul_status status = haul_channel_pair(fds);
    if (status != HAUL_OK)
        return failed("make a channel", status);
    if (fork() == 0) {
        close(fds[1]);
        int failure = send_message(fds[0]);
        fflush(stdout);
        _exit(failure);
    }
    close(fds[0]);
    return receive_message(fds[1]);
}
