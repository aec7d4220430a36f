/* Tests channels from C: every function, wrong arguments, two processes, closed and killed ends. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "haul.h"

static int failures;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "channel.c:%d: %s does not hold\n", __LINE__, #condition); \
            failures++;                                                        \
        }                                                                      \
    } while (0)

enum { LARGE = 3000001 };

static const haul_channel_options patient = {.deadline_ms = 60000, .wait_ms = 60000};

static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(i * 31 + (i >> 8) + seed);
    }
}

static int is_filled(const unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != (unsigned char)(i * 31 + (i >> 8) + seed)) {
            return 0;
        }
    }
    return 1;
}

/* The other process: it sends six messages and waits until they were received. */
static void child(int fd, const haul_channel_options *options)
{
    haul_channel *channel = NULL;
    CHECK(haul_channel_connect_fd(fd, options, &channel) == HAUL_OK);
    unsigned char *bytes = malloc(LARGE);
    haul_channel_account account;
    fill(bytes, LARGE, 1);
    CHECK(haul_channel_send(channel, "small", 5, &account) == HAUL_OK);
    CHECK(account.size == 5 && account.mechanism == HAUL_CHANNEL_INLINE);
    CHECK(account.cpu_ns == UINT64_MAX && account.fell_back_from == HAUL_CHANNEL_AUTO);
    CHECK(haul_channel_send(channel, bytes, LARGE, &account) == HAUL_OK);
    CHECK(account.size == LARGE && account.mechanism != HAUL_CHANNEL_INLINE);
    memset(bytes, 0, LARGE);
    fill(bytes, LARGE, 2);
    const haul_channel_part parts[] = {{bytes, 10}, {NULL, 0}, {bytes + 10, LARGE - 10}};
    CHECK(haul_channel_send_parts(channel, parts, 3, NULL) == HAUL_OK);
    haul_channel_building *building = NULL;
    CHECK(haul_channel_building_create(100000, &building) == HAUL_OK);
    fill(haul_channel_building_data(building), 100000, 3);
    CHECK(haul_channel_send_built(channel, building, &account) == HAUL_OK);
    CHECK(account.mechanism == HAUL_CHANNEL_SEALED && account.copied == 0);
    CHECK(haul_channel_send(channel, NULL, 0, NULL) == HAUL_OK);
    fill(bytes, LARGE, 4);
    CHECK(haul_channel_send(channel, bytes, LARGE, NULL) == HAUL_OK);
    char end[4];
    CHECK(haul_channel_recv_into(channel, end, sizeof end, &account) == HAUL_OK);
    CHECK(account.size == 3 && memcmp(end, "end", 3) == 0);
    free(bytes);
    haul_channel_close(channel);
}

static void receive(haul_channel *channel, int is_checked)
{
    /* Not malloc: valgrind does not see the writes of the other process into this memory. */
    unsigned char *bytes = calloc(1, LARGE);
    haul_channel_account account;
    size_t size = 0;
    CHECK(haul_channel_wait_size(channel, &size) == HAUL_OK && size == 5);
    CHECK(haul_channel_recv_into(channel, bytes, 4, &account) == HAUL_ERROR_TOO_SMALL);
    CHECK(haul_channel_recv_into(channel, bytes, 5, &account) == HAUL_OK && account.size == 5);
    CHECK(memcmp(bytes, "small", 5) == 0 && account.is_checked == (unsigned)is_checked);
    CHECK(haul_channel_recv_into(channel, bytes, LARGE, NULL) == HAUL_OK);
    CHECK(is_filled(bytes, LARGE, 1));

    haul_channel_buffer *buffer = NULL;
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_OK);
    CHECK(haul_channel_buffer_size(buffer) == LARGE);
    unsigned char *data = haul_channel_buffer_data(buffer);
    CHECK(is_filled(data, LARGE, 2));
    memset(data, 9, LARGE);
    CHECK(haul_channel_buffer_account(buffer, &account) == HAUL_OK && account.size == LARGE);
    haul_channel_buffer_free(buffer);

    CHECK(haul_channel_recv(channel, &buffer) == HAUL_OK);
    CHECK(haul_channel_buffer_account(buffer, &account) == HAUL_OK);
    CHECK(account.mechanism == HAUL_CHANNEL_SEALED && account.copied == 0);
    CHECK(haul_channel_buffer_will_write(buffer, 0, 100001) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_channel_buffer_will_write(buffer, SIZE_MAX, 2) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_channel_buffer_will_write(buffer, 100000, 0) == HAUL_OK);
    CHECK(haul_channel_buffer_will_write(buffer, 1000, 99000) == HAUL_OK);
    CHECK(is_filled(haul_channel_buffer_data(buffer), 100000, 3));
    haul_channel_buffer_free(buffer);
    CHECK(haul_channel_recv_into(channel, NULL, 0, &account) == HAUL_OK && account.size == 0);

    /* The last message, received by polling. */
    struct pollfd poller = {haul_channel_fd(channel), POLLIN, 0};
    do {
        CHECK(haul_channel_try_recv(channel, &buffer) == HAUL_OK);
    } while (buffer == NULL && poll(&poller, 1, 60000) == 1);
    CHECK(haul_channel_buffer_size(buffer) == LARGE);
    CHECK(is_filled(haul_channel_buffer_data(buffer), LARGE, 4));
    haul_channel_buffer_free(buffer);
    CHECK(haul_channel_send(channel, "end", 3, NULL) == HAUL_OK);
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_ERROR_CLOSED);
    free(bytes);
}

static void messages_reach_other_process(const haul_channel_options *options, int is_checked)
{
    int fds[2];
    CHECK(haul_channel_pair(fds) == HAUL_OK);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[1]);
        child(fds[0], options);
        _exit(failures == 0 ? 0 : 1);
    }
    close(fds[0]);
    haul_channel *channel = NULL;
    CHECK(haul_channel_accept_fd(fds[1], options, &channel) == HAUL_OK);
    CHECK(haul_channel_offers(channel, HAUL_CHANNEL_RING));
    CHECK(!haul_channel_offers(channel, HAUL_CHANNEL_AUTO) && !haul_channel_offers(channel, 99));
    haul_channel_identity peer = {0, UINT32_MAX, UINT32_MAX};
    CHECK(haul_channel_peer(channel, &peer) == HAUL_OK && peer.process == pid);
    CHECK(peer.user == geteuid() && peer.group == getegid());
    receive(channel, is_checked);
    haul_channel_close(channel);
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Starts a process that calls `other` with its end, and writes this end to `channel`. */
static pid_t start(void (*other)(haul_channel *), haul_channel **channel)
{
    int fds[2];
    CHECK(haul_channel_pair(fds) == HAUL_OK);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[1]);
        haul_channel *own = NULL;
        CHECK(haul_channel_connect_fd(fds[0], &patient, &own) == HAUL_OK);
        other(own);
        haul_channel_close(own);
        _exit(failures == 0 ? 0 : 1);
    }
    close(fds[0]);
    CHECK(haul_channel_accept_fd(fds[1], &patient, channel) == HAUL_OK);
    return pid;
}

static void wait_for(pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Sends each received message back until the peer closes the channel. */
static void echo(haul_channel *channel)
{
    haul_channel_buffer *buffer = NULL;
    haul_status status;
    while ((status = haul_channel_recv(channel, &buffer)) == HAUL_OK) {
        size_t size = haul_channel_buffer_size(buffer);
        CHECK(haul_channel_send(channel, haul_channel_buffer_data(buffer), size, NULL) == HAUL_OK);
        haul_channel_buffer_free(buffer);
    }
    CHECK(status == HAUL_ERROR_CLOSED);
}

static void receive_two_and_answer(haul_channel *channel)
{
    for (unsigned seed = 5; seed <= 6; seed++) {
        haul_channel_buffer *buffer = NULL;
        CHECK(haul_channel_recv(channel, &buffer) == HAUL_OK);
        CHECK(is_filled(haul_channel_buffer_data(buffer), LARGE, seed));
        haul_channel_buffer_free(buffer);
    }
    unsigned char *bytes = malloc(LARGE);
    fill(bytes, LARGE, 7);
    CHECK(haul_channel_send(channel, bytes, LARGE, NULL) == HAUL_OK);
    free(bytes);
}

static void sending_advances_and_finishes(void)
{
    haul_channel *channel = NULL;
    pid_t pid = start(receive_two_and_answer, &channel);
    unsigned char *bytes = malloc(LARGE);
    fill(bytes, LARGE, 5);
    haul_channel_sending *sending = NULL, *second = NULL;
    CHECK(haul_channel_start_send(channel, bytes, LARGE, &sending) == HAUL_OK);
    CHECK(haul_channel_start_send(channel, "x", 1, &second) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_channel_send(channel, "x", 1, NULL) == HAUL_ERROR_ARGUMENT && second == NULL);
    CHECK(haul_channel_split(channel, &channel) == HAUL_ERROR_ARGUMENT);
    struct pollfd poller = {haul_channel_sending_fd(sending), POLLIN, 0};
    CHECK(poller.fd == haul_channel_fd(channel) && poller.fd >= 0);
    haul_channel_buffer *buffer = NULL;
    CHECK(haul_channel_try_recv(channel, &buffer) == HAUL_OK && buffer == NULL);
    bool is_complete = false;
    do {
        CHECK(haul_channel_sending_advance(sending, &is_complete) == HAUL_OK);
    } while (!is_complete && poll(&poller, 1, 60000) == 1);
    CHECK(is_complete);
    fill(bytes, LARGE, 6);
    haul_channel_account account;
    CHECK(haul_channel_sending_finish(sending, &account) == HAUL_OK && account.size == LARGE);
    /* A message that is finished without polling. */
    CHECK(haul_channel_start_send(channel, bytes, LARGE, &sending) == HAUL_OK);
    CHECK(haul_channel_sending_finish(sending, NULL) == HAUL_OK);
    memset(bytes, 0, LARGE);
    CHECK(haul_channel_buffer_create(LARGE, &buffer) == HAUL_OK);
    unsigned char *data = haul_channel_buffer_data(buffer);
    CHECK(haul_channel_buffer_size(buffer) == LARGE && data[0] == 0 && data[LARGE - 1] == 0);
    CHECK(haul_channel_recv_into(channel, data, LARGE, NULL) == HAUL_OK);
    CHECK(is_filled(data, LARGE, 7));
    haul_channel_buffer_free(buffer);
    haul_channel_close(channel);
    wait_for(pid);
    free(bytes);
}

static void receive_abandoned(haul_channel *channel)
{
    haul_channel_buffer *buffer = NULL;
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_ERROR_BROKEN && buffer == NULL);
}

static void free_abandons_message(void)
{
    haul_channel *channel = NULL;
    unsigned char *bytes = calloc(1, LARGE);
    pid_t pid = start(receive_abandoned, &channel);
    haul_channel_sending *sending = NULL;
    CHECK(haul_channel_start_send(channel, bytes, LARGE, &sending) == HAUL_OK);
    bool is_complete = true;
    CHECK(haul_channel_sending_advance(sending, &is_complete) == HAUL_OK);
    /* A fast receiver may already have the whole message. */
    if (!is_complete) {
        haul_channel_sending_free(sending);
        CHECK(haul_channel_send(channel, "x", 1, NULL) == HAUL_ERROR_BROKEN);
        CHECK(haul_channel_start_send(channel, "x", 1, &sending) == HAUL_ERROR_BROKEN);
        CHECK(haul_channel_send(channel, "x", 1, NULL) == HAUL_ERROR_BROKEN);
        wait_for(pid);
    } else {
        CHECK(haul_channel_sending_finish(sending, NULL) == HAUL_OK);
        CHECK(waitpid(pid, NULL, 0) == pid);
    }
    haul_channel_close(channel);
    free(bytes);
}

static void *send_some(void *half)
{
    unsigned char *bytes = malloc(LARGE);
    for (unsigned seed = 0; seed < 3; seed++) {
        fill(bytes, LARGE, seed);
        CHECK(haul_channel_send(half, bytes, LARGE, NULL) == HAUL_OK);
    }
    free(bytes);
    return NULL;
}

static void halves_work_in_two_threads(void)
{
    haul_channel *channel = NULL, *half = NULL, *third = NULL;
    pid_t pid = start(echo, &channel);
    CHECK(haul_channel_split(channel, &half) == HAUL_OK);
    CHECK(haul_channel_split(channel, &third) == HAUL_ERROR_ARGUMENT && third == NULL);
    CHECK(haul_channel_split(half, &third) == HAUL_ERROR_ARGUMENT && third == NULL);
    CHECK(haul_channel_send(channel, "x", 1, NULL) == HAUL_ERROR_ARGUMENT);
    size_t size = 7;
    CHECK(haul_channel_wait_size(half, &size) == HAUL_ERROR_ARGUMENT && size == 7);
    CHECK(haul_channel_offers(half, HAUL_CHANNEL_RING));
    CHECK(!haul_channel_offers(channel, HAUL_CHANNEL_RING));
    CHECK(haul_channel_fd(half) == haul_channel_fd(channel) && haul_channel_fd(half) >= 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_some, half) == 0);
    for (unsigned seed = 0; seed < 3; seed++) {
        haul_channel_buffer *buffer = NULL;
        CHECK(haul_channel_recv(channel, &buffer) == HAUL_OK);
        CHECK(is_filled(haul_channel_buffer_data(buffer), LARGE, seed));
        haul_channel_buffer_free(buffer);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    haul_channel_close(half);
    haul_channel_buffer *buffer = NULL;
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_ERROR_CLOSED);
    haul_channel_close(channel);
    wait_for(pid);
}

static void receiver_sees_death_of_sender(const char *path)
{
    haul_channel_listener *listener = NULL;
    haul_channel *channel = NULL;
    CHECK(haul_channel_connect(path, &patient, &channel) == HAUL_ERROR_NOT_FOUND);
    CHECK(haul_channel_listen(path, &listener) == HAUL_OK);
    haul_channel_listener *second = NULL;
    CHECK(haul_channel_listen(path, &second) == HAUL_ERROR_EXISTS && second == NULL);
    CHECK(haul_channel_listener_fd(listener) >= 0);
    const haul_channel_options hasty = {.wait_ms = 20, .deadline_ms = 20};
    CHECK(haul_channel_accept(listener, &hasty, &channel) == HAUL_ERROR_DEADLINE);
    pid_t pid = fork();
    if (pid == 0) {
        haul_channel *own = NULL;
        CHECK(haul_channel_connect(path, &patient, &own) == HAUL_OK);
        CHECK(haul_channel_send(own, "x", 1, NULL) == HAUL_OK);
        raise(SIGKILL);
    }
    CHECK(haul_channel_accept(listener, &patient, &channel) == HAUL_OK);
    haul_channel_buffer *buffer = NULL;
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_OK);
    haul_channel_buffer_free(buffer);
    buffer = NULL;
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_ERROR_PEER_GONE && buffer == NULL);
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_ERROR_PEER_GONE ||
          haul_channel_recv(channel, &buffer) == HAUL_ERROR_BROKEN);
    haul_channel_close(channel);
    haul_channel_listener_close(listener);
    CHECK(waitpid(pid, NULL, 0) == pid && access(path, F_OK) != 0);
}

/* A process of another user is refused unless the options allow that user. */
static void accept_checks_user(const char *path)
{
    enum { NOBODY = 65534 };
    if (geteuid() != 0) {
        fprintf(stderr, "SKIPPED: a peer of another user: not running as root: run the tests as root\n");
        return;
    }
    haul_channel_options open = patient, allowing = patient;
    open.flags = HAUL_CHANNEL_ANY_USER;
    allowing.flags = HAUL_CHANNEL_ALLOW_USER;
    allowing.user = NOBODY;
    haul_channel_listener *listener = NULL;
    CHECK(haul_channel_listen_for(path, &open, &listener) == HAUL_OK);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        haul_channel *own = NULL;
        CHECK(haul_channel_connect(path, &patient, &own) == HAUL_ERROR_PEER_GONE && own == NULL);
        CHECK(haul_channel_connect(path, &patient, &own) == HAUL_OK);
        haul_channel_identity peer;
        CHECK(haul_channel_peer(own, &peer) == HAUL_OK);
        CHECK(peer.process == getppid() && peer.user == 0);
        CHECK(haul_channel_send(own, "x", 1, NULL) == HAUL_OK);
        haul_channel_close(own);
        _exit(failures == 0 ? 0 : 1);
    }
    haul_channel *channel = NULL;
    CHECK(haul_channel_accept(listener, &patient, &channel) == HAUL_ERROR_FORBIDDEN && !channel);
    CHECK(haul_channel_accept(listener, &allowing, &channel) == HAUL_OK);
    haul_channel_identity peer;
    CHECK(haul_channel_peer(channel, &peer) == HAUL_OK);
    CHECK(peer.process == pid && peer.user == NOBODY);
    haul_channel *half = NULL;
    CHECK(haul_channel_split(channel, &half) == HAUL_OK);
    CHECK(haul_channel_peer(half, &peer) == HAUL_OK && peer.process == pid);
    haul_channel_close(half);
    char byte = 0;
    CHECK(haul_channel_recv_into(channel, &byte, 1, NULL) == HAUL_OK && byte == 'x');
    haul_channel_close(channel);
    haul_channel_listener_close(listener);
    wait_for(pid);
}

static void wrong_arguments_return_errors(void)
{
    haul_channel *channel = NULL;
    haul_channel_buffer *buffer = NULL;
    size_t size = 7;
    CHECK(haul_channel_listen(NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_listen("/tmp/x", NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_accept(NULL, NULL, &channel) == HAUL_ERROR_NULL);
    CHECK(haul_channel_connect(NULL, NULL, &channel) == HAUL_ERROR_NULL);
    CHECK(haul_channel_pair(NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_connect_fd(-1, NULL, &channel) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_channel_accept_fd(-1, NULL, &channel) == HAUL_ERROR_ARGUMENT);
    CHECK(haul_channel_send(NULL, "x", 1, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_send_parts(NULL, NULL, 0, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_wait_size(NULL, &size) == HAUL_ERROR_NULL && size == 7);
    CHECK(haul_channel_recv(NULL, &buffer) == HAUL_ERROR_NULL && buffer == NULL);
    CHECK(haul_channel_try_recv(NULL, &buffer) == HAUL_ERROR_NULL);
    CHECK(haul_channel_recv_into(NULL, &size, sizeof size, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_buffer_data(NULL) == NULL && haul_channel_buffer_size(NULL) == 0);
    CHECK(haul_channel_buffer_account(NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_buffer_will_write(NULL, 0, 0) == HAUL_ERROR_NULL);
    CHECK(haul_channel_building_create(10, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_building_data(NULL) == NULL);
    CHECK(haul_channel_send_built(NULL, NULL, NULL) == HAUL_ERROR_NULL);
    haul_channel_identity peer;
    CHECK(haul_channel_peer(NULL, &peer) == HAUL_ERROR_NULL);
    CHECK(haul_channel_listen_for(NULL, NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_fd(NULL) == -1 && haul_channel_listener_fd(NULL) == -1);
    CHECK(!haul_channel_offers(NULL, HAUL_CHANNEL_RING));
    haul_channel_sending *sending = NULL;
    bool is_complete = false;
    CHECK(haul_channel_start_send(NULL, "x", 1, &sending) == HAUL_ERROR_NULL && sending == NULL);
    CHECK(haul_channel_sending_advance(NULL, &is_complete) == HAUL_ERROR_NULL && !is_complete);
    CHECK(haul_channel_sending_finish(NULL, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_sending_fd(NULL) == -1 && haul_channel_split(NULL, &channel) == HAUL_ERROR_NULL);
    CHECK(haul_channel_buffer_create(1, NULL) == HAUL_ERROR_NULL);
    CHECK(haul_channel_buffer_create(SIZE_MAX, &buffer) == HAUL_ERROR_ARGUMENT && buffer == NULL);
    haul_channel_sending_free(NULL);
    haul_channel_buffer_free(NULL);
    haul_channel_building_free(NULL);
    haul_channel_close(NULL);
    haul_channel_listener_close(NULL);
    const haul_channel_options bad[] = {
        {.flags = 128}, {.flags = HAUL_CHANNEL_ENGINE_WORKER | HAUL_CHANNEL_ENGINE_AUTO},
         {.mechanism = 9}, {.dirty_percent = 101}, {.user = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fds[2];
        CHECK(haul_channel_pair(fds) == HAUL_OK);
        CHECK(haul_channel_connect_fd(fds[0], &bad[i], &channel) == HAUL_ERROR_ARGUMENT);
        CHECK(channel == NULL);
        close(fds[1]);
    }
    haul_channel_listener *listener = NULL;
    CHECK(haul_channel_listen("", &listener) == HAUL_ERROR_ARGUMENT && listener == NULL);
    CHECK(haul_channel_connect("", NULL, &channel) == HAUL_ERROR_ARGUMENT && channel == NULL);
    haul_channel_building *building = NULL;
    CHECK(haul_channel_building_create(4096, &building) == HAUL_OK);
    haul_channel_building_free(building);
    for (int status = HAUL_ERROR_PEER_GONE; status <= HAUL_ERROR_INTEGRITY; status++) {
        CHECK(strstr(haul_strerror(status), "not a status") == NULL);
    }
    CHECK(strstr(haul_strerror(1000), "not a status") != NULL);
}

/* A server forks for each connection. The worker or the server answers; the other process closes its
 * copies of the channel and of the listener. */
static void forking_server_answers(const char *path)
{
    haul_channel_listener *listener = NULL;
    CHECK(haul_channel_listen(path, &listener) == HAUL_OK);
    for (int is_by_worker = 0; is_by_worker < 2; is_by_worker++) {
        pid_t client = fork();
        if (client == 0) {
            haul_channel *channel = NULL;
            char answer[8];
            haul_channel_listener_close(listener);
            CHECK(haul_channel_connect(path, &patient, &channel) == HAUL_OK);
            CHECK(haul_channel_send(channel, "question", 8, NULL) == HAUL_OK);
            CHECK(haul_channel_recv_into(channel, answer, sizeof answer, NULL) == HAUL_OK);
            CHECK(memcmp(answer, "question", 8) == 0);
            CHECK(haul_channel_recv_into(channel, answer, 8, NULL) == HAUL_ERROR_CLOSED);
            _exit(failures == 0 ? 0 : 1);
        }
        haul_channel *channel = NULL;
        CHECK(haul_channel_accept(listener, &patient, &channel) == HAUL_OK);
        pid_t worker = fork();
        int serves = (worker == 0) == is_by_worker;
        if (!serves || worker == 0) {
            haul_channel_listener_close(listener);
        }
        if (serves) {
            haul_channel_buffer *buffer = NULL;
            CHECK(haul_channel_recv(channel, &buffer) == HAUL_OK);
            CHECK(haul_channel_send(channel, haul_channel_buffer_data(buffer),
                                    haul_channel_buffer_size(buffer), NULL) == HAUL_OK);
            haul_channel_buffer_free(buffer);
        }
        haul_channel_close(channel);
        if (worker == 0) {
            _exit(failures == 0 ? 0 : 1);
        }
        wait_for(worker);
        wait_for(client);
        if (!serves) {
            CHECK(access(path, F_OK) != 0);
        } else {
            CHECK(access(path, F_OK) == 0);
        }
    }
}

/* The second process that uses a copy gets an error, and can close its copy safely. */
static void second_user_of_end_gets_error(void)
{
    haul_channel *channel = NULL;
    pid_t peer = start(echo, &channel);
    pid_t child = fork();
    if (child == 0) {
        char answer[5];
        CHECK(haul_channel_send(channel, "child", 5, NULL) == HAUL_OK);
        CHECK(haul_channel_recv_into(channel, answer, sizeof answer, NULL) == HAUL_OK);
        haul_channel_close(channel);
        _exit(failures == 0 ? 0 : 1);
    }
    wait_for(child);
    haul_channel_buffer *buffer = NULL;
    CHECK(haul_channel_send(channel, "parent", 6, NULL) == HAUL_ERROR_BROKEN);
    CHECK(haul_channel_recv(channel, &buffer) == HAUL_ERROR_BROKEN && buffer == NULL);
    haul_channel_close(channel);
    wait_for(peer);
}

int main(void)
{
    char folder[] = "/tmp/haul-channel-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    char path[64];
    snprintf(path, sizeof path, "%s/socket", folder);
    wrong_arguments_return_errors();
    messages_reach_other_process(&patient, 0);
    haul_channel_options trusted = patient;
    trusted.flags = HAUL_CHANNEL_TRUST | HAUL_CHANNEL_INTEGRITY;
    messages_reach_other_process(&trusted, 1);
    haul_channel_options helped = patient;
    helped.flags = HAUL_CHANNEL_ENGINE_WORKER;
    messages_reach_other_process(&helped, 0);
    helped.flags = HAUL_CHANNEL_ENGINE_AUTO | HAUL_CHANNEL_TRUST;
    messages_reach_other_process(&helped, 0);
    sending_advances_and_finishes();
    free_abandons_message();
    halves_work_in_two_threads();
    receiver_sees_death_of_sender(path);
    forking_server_answers(path);
    second_user_of_end_gets_error();
    CHECK(chmod(folder, 0755) == 0);
    accept_checks_user(path);
    CHECK(rmdir(folder) == 0);
    return failures == 0 ? 0 : 1;
}
