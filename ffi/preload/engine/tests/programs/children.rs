//! Forks of a program that uses the fake.

use crate::setup::Setup;

/// The kernel's rules: the child is refused on the parent's file, opens the queue again, and both
/// go on. The parent has a copy pending meanwhile.
#[test]
fn child_opens_the_queue_again() {
    Setup::new("inject at=1 delay_us=100000").run(
        r#"
static char from[5000], to[5000];
int main(void) {
    struct record r, r2;
    int wq = open("/dev/dsa/wq0.0", O_RDWR), status;
    memset(from, 5, 5000);
    struct descriptor d = copy_of(to, from, 5000, &r);
    CHECK(write(wq, &d, 64) == 64);
    if (fork() == 0) {
        struct descriptor d2 = copy_of(to, from, 100, &r2);
        CHECK(write(wq, &d2, 64) == -1 && errno == EPERM);
        CHECK(mmap(0, 4096, PROT_WRITE, MAP_SHARED, wq, 0) == MAP_FAILED && errno == EPERM);
        CHECK(close(wq) == 0);
        int own = open("/dev/dsa/wq0.0", O_RDWR);
        CHECK(own >= 0 && write(own, &d2, 64) == 64);
        CHECK(wait_for(&r2) == 1 && to[99] == 5 && to[100] == 0);
        _exit(7);
    }
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(wait_for(&r) == 1 && memcmp(from, to, 5000) == 0);
    d = copy_of(to, from, 5000, &r);
    CHECK(write(wq, &d, 64) == 64 && wait_for(&r) == 1);
    return 0;
}"#,
    );
}

/// A close with a copy pending waits for it, as the kernel's does.
#[test]
fn last_close_waits_for_the_device() {
    Setup::new("inject at=1 delay_us=50000").run(
        r#"
static char from[5000], to[5000];
int main(void) {
    struct record r;
    int wq = open("/dev/dsa/wq0.0", O_RDWR);
    memset(from, 5, 5000);
    struct descriptor d = copy_of(to, from, 5000, &r);
    CHECK(write(wq, &d, 64) == 64);
    CHECK(close(wq) == 0);
    CHECK(r.status == 1 && memcmp(from, to, 5000) == 0);
    return 0;
}"#,
    );
}

/// A program that has installed handlers of fork before it opens the queue, as one with a helper
/// thread of haul's has, closes the queue in the child's handler.
#[test]
fn handler_of_fork_that_is_older_than_the_queue_closes_it() {
    Setup::new("").run(
        r#"
#include <pthread.h>
static char from[5000], to[5000];
static int wq = -1;
static void in_child(void) { close(wq); }
int main(void) {
    struct record r;
    int status;
    CHECK(pthread_atfork(0, 0, in_child) == 0);
    wq = open("/dev/dsa/wq0.0", O_RDWR);
    CHECK(wq >= 0);
    memset(from, 5, 5000);
    if (fork() == 0) {
        alarm(30);
        wq = open("/dev/dsa/wq0.0", O_RDWR);
        struct descriptor d = copy_of(to, from, 100, &r);
        CHECK(wq >= 0 && write(wq, &d, 64) == 64 && wait_for(&r) == 1 && to[99] == 5);
        _exit(7);
    }
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    struct descriptor d = copy_of(to, from, 5000, &r);
    CHECK(write(wq, &d, 64) == 64 && wait_for(&r) == 1 && memcmp(from, to, 5000) == 0);
    return 0;
}"#,
    );
}
