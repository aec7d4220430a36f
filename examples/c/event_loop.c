/* Messages in an event loop: no call waits, and a descriptor becomes readable when there is work. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <haul.h>

enum { MESSAGES = 20, BYTES = 4 << 20 };

/* One turn of the loop. A real program would poll all its descriptors here. */
static int turn(int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    return poll(&wanted, 1, 60000) == 1;
}

static int send_messages(int fd)
{
    haul_channel *channel;
    unsigned char *bytes = malloc(BYTES);
    if (bytes == NULL || haul_channel_connect_fd(fd, NULL, &channel) != HAUL_OK)
        return 1;
    memset(bytes, 7, BYTES);
    long turns = 0;
    for (int i = 0; i < MESSAGES; i++) {
        haul_channel_sending *sending;
        bool is_complete = false;
        if (haul_channel_start_send(channel, bytes, BYTES, &sending) != HAUL_OK)
            return 1;
        while (!is_complete) {
            if (haul_channel_sending_advance(sending, &is_complete) != HAUL_OK)
                return 1;
            if (!is_complete && !turn(haul_channel_sending_fd(sending)))
                return 1;
            turns++;
        }
        if (haul_channel_sending_finish(sending, NULL) != HAUL_OK)
            return 1;
    }
    printf("sent %d messages in %ld turns of the loop\n", MESSAGES, turns);
    int ended = 0;
    wait(&ended);
    haul_channel_close(channel);
    free(bytes);
    return ended != 0;
}

static int receive_messages(int fd)
{
    haul_channel *channel;
    if (haul_channel_accept_fd(fd, NULL, &channel) != HAUL_OK)
        return 1;
    for (int received = 0; received < MESSAGES;) {
        haul_channel_buffer *message;
        if (haul_channel_try_recv(channel, &message) != HAUL_OK)
            return 1;
        if (message == NULL) {
            if (!turn(haul_channel_fd(channel)))
                return 1;
            continue;
        }
        const unsigned char *bytes = haul_channel_buffer_data(message);
        if (haul_channel_buffer_size(message) != BYTES || bytes[BYTES - 1] != 7)
            return 1;
        haul_channel_buffer_free(message);
        received++;
    }
    printf("received %d messages\n", MESSAGES);
    fflush(stdout);
    haul_channel_close(channel);
    return 0;
}

int main(void)
{
    int fds[2];
    if (haul_channel_pair(fds) != HAUL_OK)
        return 1;
    if (fork() == 0) {
        close(fds[1]);
        _exit(receive_messages(fds[0]));
    }
    close(fds[0]);
    return send_messages(fds[1]);
}
