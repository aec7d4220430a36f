/* haul.h: memcpy, memmove, memset, a heap and channels for servers. MIT OR Apache-2.0.
 *
 * Made by cbindgen from ffi/c/src; do not edit. Link with `pkg-config --cflags --libs haul`.
 * Functions that can fail return a haul_status; haul_strerror() says what each means and what to do.
 * Whole programs: examples/c.
 *
 * 1. Copies: haul_memcpy(), haul_memmove(), haul_memset(), haul_thresholds_*().
 *
 *     haul_memcpy(target, source, n);                up to 64 bytes: code in the caller
 *     haul_memmove(target + 1, target, n);
 *     haul_memset(target, 0, n);
 *     haul_memcpy_hinted(target, source, n, HAUL_HINT_STREAMED);
 *
 * 2. The heap: haul_heap_*().
 *
 *     haul_heap_create(&(haul_heap_options){0}, &heap);
 *     void *block = haul_heap_alloc(heap, 4096, 4096);
 *     haul_heap_free(heap, block);                   a wrong pointer is an error
 *     haul_heap_destroy(heap);
 *
 * 3. Channels to another process: haul_channel_*().
 *
 *     haul_channel_listen(path, &listener);          in the one that receives
 *     haul_channel_accept(listener, NULL, &channel);
 *     haul_channel_connect(path, NULL, &channel);    in the one that sends
 *     haul_channel_send(channel, data, size, NULL);  when it returns, data is yours again
 */

#ifndef HAUL_H
#define HAUL_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

/** The version of this header; haul_version() tells that of the library that is loaded. */
#define HAUL_VERSION "0.1.0"

/**
 * Any NUMA node, for haul_heap_alloc_on().
 */
#define HAUL_NODE_ANY -1

/**
 * The peer is one of one's own: see trust in haul_channel_options.
 */
#define HAUL_CHANNEL_TRUST 1

/**
 * What is sent carries a checksum of what must arrive.
 */
#define HAUL_CHANNEL_INTEGRITY 2

/**
 * The peer may be of any user, not only of one's own and root.
 */
#define HAUL_CHANNEL_ANY_USER 4

/**
 * The peer may be of the user in haul_channel_options as well.
 */
#define HAUL_CHANNEL_ALLOW_USER 8

/**
 * What a function returns that can fail. New codes are added at the end; none changes its number.
 */
typedef enum haul_status {
    /**
     * It worked.
     */
    HAUL_OK = 0,
    /**
     * An argument that must point somewhere is NULL.
     */
    HAUL_ERROR_NULL = 1,
    /**
     * No threshold has this name: haul_thresholds_name() lists them.
     */
    HAUL_ERROR_NO_SUCH_THRESHOLD = 2,
    /**
     * There is a haul.toml, and it was ignored: it is unreadable, malformed or another machine's.
     * The defaults are in force, and standard error says what is wrong.
     */
    HAUL_ERROR_TUNING_IGNORED = 3,
    /**
     * A defect of haul's own, told on standard error. What was in force before still is.
     */
    HAUL_ERROR_INTERNAL = 4,
    /**
     * An argument is outside what it may be.
     */
    HAUL_ERROR_ARGUMENT = 5,
    /**
     * A heap of this name, or a file at this path, is there already.
     */
    HAUL_ERROR_EXISTS = 6,
    /**
     * No heap has this name, or nobody listens at this path.
     */
    HAUL_ERROR_NOT_FOUND = 7,
    /**
     * The heap belongs to another user, or others may write to it; or the socket is not to be
     * used; or the peer is of a user that is not allowed.
     */
    HAUL_ERROR_FORBIDDEN = 8,
    /**
     * The file is no heap, of another version, cut, unfinished or damaged.
     */
    HAUL_ERROR_NOT_A_HEAP = 9,
    /**
     * The system refused addresses or memory, or a limit of the process does.
     */
    HAUL_ERROR_NO_MEMORY = 10,
    /**
     * All places for processes are taken by live ones.
     */
    HAUL_ERROR_FULL = 11,
    /**
     * The system refused something else.
     */
    HAUL_ERROR_SYSTEM = 12,
    /**
     * The block is free already.
     */
    HAUL_ERROR_DOUBLE_FREE = 13,
    /**
     * No block is there.
     */
    HAUL_ERROR_WILD_POINTER = 14,
    /**
     * The pointer leads into a block, not to its start.
     */
    HAUL_ERROR_INTERIOR_POINTER = 15,
    /**
     * The pointer is outside the heap.
     */
    HAUL_ERROR_FOREIGN_POINTER = 16,
    /**
     * The heap's metadata is not what haul wrote.
     */
    HAUL_ERROR_DAMAGED = 17,
    /**
     * The peer left before the transfer was complete; nothing of it counts.
     */
    HAUL_ERROR_PEER_GONE = 18,
    /**
     * The peer closed the channel after a whole message: there is nothing more to come.
     */
    HAUL_ERROR_CLOSED = 19,
    /**
     * The peer lives and did not move in time.
     */
    HAUL_ERROR_DEADLINE = 20,
    /**
     * The target is smaller than the message, which stays where it is.
     */
    HAUL_ERROR_TOO_SMALL = 21,
    /**
     * The message is over the limit of one of the two ends.
     */
    HAUL_ERROR_TOO_LONG = 22,
    /**
     * The mechanism that was asked for cannot be had with this peer.
     */
    HAUL_ERROR_UNAVAILABLE = 23,
    /**
     * What the peer says or hands over cannot be right; the channel is closed.
     */
    HAUL_ERROR_PROTOCOL = 24,
    /**
     * A transfer failed or was given up earlier, and nothing after it can be believed; or another
     * process, which a fork gave a copy of the channel, uses it.
     */
    HAUL_ERROR_BROKEN = 25,
    /**
     * The message changed on its way: its checksum is another.
     */
    HAUL_ERROR_INTEGRITY = 26,
    /**
     * The process may not make a file as long as the heap (RLIMIT_FSIZE).
     */
    HAUL_ERROR_FILE_SIZE = 27,
    /**
     * The size of the heap's file is not sealed, so that whoever has it could cut it short.
     */
    HAUL_ERROR_NOT_SEALED = 28,
} haul_status;

/**
 * What happens to the target after a copy. It never changes what is copied, only how.
 */
typedef enum haul_hint {
    /**
     * Not known: the thresholds decide by the size.
     */
    HAUL_HINT_UNKNOWN = 0,
    /**
     * It is read soon: it should end up in the caches, whatever its size.
     */
    HAUL_HINT_READ_SOON = 1,
    /**
     * It is streamed past, by a device or much later: it should leave the caches alone.
     */
    HAUL_HINT_STREAMED = 2,
    /**
     * Handed from core to core: another core has just written the source, or read the target and
     * will again. Else as HAUL_HINT_READ_SOON.
     */
    HAUL_HINT_HANDOVER = 3,
} haul_hint;

/**
 * The pages that a heap should use. Where there are none of a kind, a lesser one is used.
 */
typedef enum haul_heap_pages {
    /**
     * The best there is; of the pool of huge pages in a shared heap alone, for a child of fork has
     * copies of a private one's, and the pool may have none for them.
     */
    HAUL_HEAP_PAGES_AUTO = 0,
    /**
     * Pages of 1 GiB from the pool of huge pages, in a shared heap.
     */
    HAUL_HEAP_PAGES_HUGE_1G = 1,
    /**
     * Pages of 2 MiB from the pool of huge pages, in a shared heap.
     */
    HAUL_HEAP_PAGES_HUGE_2M = 2,
    /**
     * Plain pages that the kernel joins to huge ones.
     */
    HAUL_HEAP_PAGES_TRANSPARENT = 3,
    /**
     * Plain pages.
     */
    HAUL_HEAP_PAGES_PLAIN = 4,
} haul_heap_pages;

/**
 * Which devices an address is for. New ones are added at the end; none changes its number.
 */
typedef enum haul_iova_kind {
    /**
     * A physical address, as the kernel tells it: DPDK's IOVA as PA. Of memory from the pool of
     * huge pages it holds for as long as the block lives; other pages may be moved unless they are
     * locked.
     */
    HAUL_IOVA_PHYSICAL = 1,
    /**
     * The process's own address, for no other is known: physical ones take CAP_SYS_ADMIN, and a
     * page that was touched. Right behind an IOMMU that maps this process's addresses, DPDK's IOVA
     * as VA, and for an emulated device. For nothing else: a device that takes physical addresses
     * would write to memory of others.
     */
    HAUL_IOVA_VIRTUAL = 2,
    /**
     * As the provider of the memory says.
     */
    HAUL_IOVA_PROVIDED = 3,
} haul_iova_kind;

/**
 * The ways for bytes to get from one process to another.
 */
typedef enum haul_channel_mechanism {
    /**
     * haul's choice.
     */
    HAUL_CHANNEL_AUTO = 0,
    /**
     * Small messages, inside their descriptor.
     */
    HAUL_CHANNEL_INLINE = 1,
    /**
     * Chunks that stay in the cache, both copies overlapped.
     */
    HAUL_CHANNEL_RING = 2,
    /**
     * The whole message in shared memory.
     */
    HAUL_CHANNEL_STAGED = 3,
    /**
     * The receiver reads the sender's memory; needs trust.
     */
    HAUL_CHANNEL_PULL = 4,
    /**
     * Built in place: haul_channel_send_built().
     */
    HAUL_CHANNEL_SEALED = 5,
    /**
     * Both ends copy at once; needs trust.
     */
    HAUL_CHANNEL_DOUBLE = 6,
    /**
     * The sender copies into the receiver's pool; needs trust.
     */
    HAUL_CHANNEL_LEASE = 7,
    /**
     * Pages through a pipe; needs trust.
     */
    HAUL_CHANNEL_VMSPLICE = 8,
} haul_channel_mechanism;

/**
 * One end of a channel between two processes, for both directions, or one of its halves: see
 * haul_channel_split(). One thread at a time may use it. A fork copies it: a direction is the
 * first process's that uses it afterwards, and HAUL_ERROR_BROKEN in the others; each closes its
 * own copy.
 */
typedef struct haul_channel haul_channel;

/**
 * A received message, or memory for one: private, to read and to write.
 */
typedef struct haul_channel_buffer haul_channel_buffer;

/**
 * A message that is built where it will be handed over from.
 */
typedef struct haul_channel_building haul_channel_building;

/**
 * A socket with a path that channels are accepted on.
 */
typedef struct haul_channel_listener haul_channel_listener;

/**
 * A message on its way. Its bytes stay the library's until it is complete, and so does the sending
 * half of its channel until this is finished or freed.
 */
typedef struct haul_channel_sending haul_channel_sending;

/**
 * A heap of huge pages, private or shared between processes. Any number of threads may use it at
 * once; after a fork the child may too.
 */
typedef struct haul_heap haul_heap;

/**
 * One copy of a burst: n bytes from source to target.
 */
typedef struct haul_copy_part {
    /**
     * Where the bytes go.
     */
    void *target;
    /**
     * Where they are.
     */
    const void *source;
    /**
     * How many.
     */
    size_t n;
} haul_copy_part;

/**
 * What a heap is asked to be. All zeros ask for the defaults.
 */
typedef struct haul_heap_options {
    /**
     * The most bytes of blocks and what they waste; 0: 64 GiB, or four times the machine's memory
     * if that is less. Addresses are set aside for all of it, memory is not.
     */
    uint64_t limit;
    /**
     * Bytes of free pages that haul_heap_maintain() keeps ready.
     */
    uint64_t grow_ahead;
    /**
     * Milliseconds that haul_heap_maintain() lets a page lie free before its memory goes back;
     * 0: 10,000; UINT64_MAX: for ever.
     */
    uint64_t decay_ms;
    /**
     * A haul_heap_pages.
     */
    uint32_t pages;
    /**
     * NUMA nodes that are told apart; 0: those of the machine.
     */
    uint32_t nodes;
    /**
     * Caches, one for each thread in all processes and each node that it uses; 0: 4,096. Threads
     * that live beyond these have caches in common, and are served slower.
     */
    uint32_t caches;
    /**
     * MiB that have memory before the first request: they are made ready before the call returns,
     * and it is HAUL_ERROR_NO_MEMORY where there are not so many. haul_heap_maintain() gives
     * nothing of them back. 0: none.
     */
    uint32_t ready_mib;
} haul_heap_options;

/**
 * What a heap holds, on one node or on all.
 */
typedef struct haul_heap_stats {
    /**
     * Live blocks.
     */
    uint64_t live_blocks;
    /**
     * Bytes that these can hold.
     */
    uint64_t live_bytes;
    /**
     * Free blocks in the caches of threads.
     */
    uint64_t cached_blocks;
    /**
     * Bytes of these.
     */
    uint64_t cached_bytes;
    /**
     * Bytes of pages with memory behind them.
     */
    uint64_t ready_bytes;
    /**
     * Bytes of these that are part of nothing.
     */
    uint64_t free_bytes;
    /**
     * Bytes that the heap can reach.
     */
    uint64_t limit_bytes;
} haul_heap_stats;

/**
 * An address for devices.
 */
typedef struct haul_iova {
    /**
     * The address.
     */
    uint64_t address;
    /**
     * A haul_iova_kind: which devices it is for.
     */
    uint32_t kind;
    /**
     * 0.
     */
    uint32_t reserved;
} haul_iova;

/**
 * How a channel behaves at this end. All zeros ask for the defaults.
 */
typedef struct haul_channel_options {
    /**
     * Largest message in bytes, to send or to take; 0: 64 GiB.
     */
    uint64_t size_max;
    /**
     * Milliseconds that a transfer may take from the moment the peer begins with it; 0: 30,000.
     */
    uint64_t deadline_ms;
    /**
     * Milliseconds that a call waits for the peer to begin; 0: 30,000; UINT64_MAX: as long as the
     * peer lives.
     */
    uint64_t wait_ms;
    /**
     * HAUL_CHANNEL_TRUST | HAUL_CHANNEL_INTEGRITY | HAUL_CHANNEL_ANY_USER |
     * HAUL_CHANNEL_ALLOW_USER, or
     * 0. If both ends trust each other, mechanisms are allowed that a hostile peer could abuse.
     */
    uint32_t flags;
    /**
     * A haul_channel_mechanism to send by, whatever haul would choose.
     */
    uint32_t mechanism;
    /**
     * The part of a message, in percent, that the receiver is expected to write to.
     */
    uint32_t dirty_percent;
    /**
     * The number of the user to allow with HAUL_CHANNEL_ALLOW_USER; else 0.
     */
    uint32_t user;
} haul_channel_options;

/**
 * Who is at the other end of a channel, as the kernel vouches for it.
 */
typedef struct haul_channel_identity {
    /**
     * Its process; 0 where it lives in a PID namespace that this one cannot see.
     */
    int32_t process;
    /**
     * Its user. Users that have no number in this user namespace all have the same one, mostly
     * 65534.
     */
    uint32_t user;
    /**
     * Its group.
     */
    uint32_t group;
} haul_channel_identity;

/**
 * What one end of one transfer took.
 */
typedef struct haul_channel_account {
    /**
     * The message's size in bytes.
     */
    uint64_t size;
    /**
     * Bytes that this end copied, or the kernel on its behalf.
     */
    uint64_t copied;
    /**
     * Nanoseconds of the calling thread; UINT64_MAX where it was not measured, for small messages.
     */
    uint64_t cpu_ns;
    /**
     * Page faults of the calling thread; UINT64_MAX where they were not counted.
     */
    uint64_t faults;
    /**
     * System calls of the transfer.
     */
    uint64_t system_calls;
    /**
     * Bytes beyond source and target that this end had for it.
     */
    uint64_t extra_memory;
    /**
     * The haul_channel_mechanism.
     */
    uint32_t mechanism;
    /**
     * The one that it began with, where that was given up; else HAUL_CHANNEL_AUTO.
     */
    uint32_t fell_back_from;
    /**
     * 1 where a checksum was compared.
     */
    uint32_t is_checked;
    /**
     * 0.
     */
    uint32_t reserved;
} haul_channel_account;

/**
 * One of several parts that make one message.
 */
typedef struct haul_channel_part {
    /**
     * Where it stands; may be NULL where it has no bytes.
     */
    const void *data;
    /**
     * How many bytes it has.
     */
    size_t size;
} haul_channel_part;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What a status means, with the remedy, as one line of English. Never NULL; the text is static and
 * not to be freed. Any number is fine: one that is no status gets a text that says so.
 */
const char *haul_strerror(int status);

/**
 * The version of the library that is loaded, such as "0.1.0"; HAUL_VERSION is that of the header.
 * The text is static and not to be freed.
 */
const char *haul_version(void);

/**
 * Reads haul.toml, once for a process, and puts its thresholds in force; later calls return what
 * the first one found. libhaul.so does this as it is loaded. A program that links libhaul.a calls
 * it early in main; until then the defaults for the processor hold, which are correct as well.
 *
 * Looks at HAUL_TUNING, the user's configuration directory and /etc; a set-user-id program reads
 * nothing. Costs some system calls and allocates; thread-safe; not for a signal handler.
 *
 * Returns HAUL_OK also where there is no haul.toml; HAUL_ERROR_TUNING_IGNORED where there is one
 * that cannot be used, after one line on standard error; HAUL_ERROR_INTERNAL.
 */
enum haul_status haul_init(void);

/**
 * Copies n bytes from source to target and returns target. The two may overlap, as in memmove;
 * with n == 0 the pointers may be anything, NULL too.
 *
 * No allocation, no system call, no lock; async-signal-safe.
 *
 * # Safety
 * source is readable and target writable for n bytes.
 */
extern void *haul_memcpy(void *target, const void *source, size_t n);

/**
 * The same as haul_memcpy, under the name that tells a reader of an overlap.
 *
 * # Safety
 * source is readable and target writable for n bytes.
 */
extern void *haul_memmove(void *target, const void *source, size_t n);

/**
 * Sets n bytes at target to the low 8 bits of byte and returns target. With n == 0 target may
 * be anything, NULL too. Costs as haul_memcpy does.
 *
 * # Safety
 * target is writable for n bytes.
 */
extern void *haul_memset(void *target, int byte, size_t n);

/**
 * What haul_memcpy and haul_memmove as inline code call above 64 bytes. Call those instead:
 * with 64 bytes or less this touches bytes outside of source and target.
 *
 * # Safety
 * As haul_memmove, and n is more than 64.
 */
extern void *haul_memmove_above_64(void *target, const void *source, size_t n);

/**
 * What haul_memset as inline code calls above 64 bytes. Call that instead: with 64 bytes or
 * less this touches bytes outside of target.
 *
 * # Safety
 * As haul_memset, and n is more than 64.
 */
extern void *haul_memset_above_64(void *target, int byte, size_t n);

/**
 * haul_memmove, told what happens to the target next. A number that is no hint counts as
 * HAUL_HINT_UNKNOWN. After HAUL_HINT_STREAMED the bytes are visible to other threads and devices
 * like those of any copy: the fence is inside.
 *
 * # Safety
 * source is readable and target writable for n bytes.
 */
void *haul_memcpy_hinted(void *target, const void *source, size_t n, haul_hint hint);

/**
 * Copies count parts, one after the other and each as haul_memmove does, in one call: what a burst
 * of packets copies. With count == 0 parts may be NULL.
 *
 * No allocation, no system call, no lock; async-signal-safe.
 *
 * # Safety
 * parts has count elements, and of each the source is readable and the target writable for n
 * bytes.
 */
void haul_copy_batch(const struct haul_copy_part *parts, size_t count);

/**
 * haul_memset, told what happens to the target next; see haul_memcpy_hinted.
 *
 * # Safety
 * target is writable for n bytes.
 */
void *haul_memset_hinted(void *target, int byte, size_t n, haul_hint hint);

/**
 * The name of a threshold, counted from 0; NULL past the last one. The text is static and not to
 * be freed.
 */
const char *haul_thresholds_name(size_t index);

/**
 * Writes the value in force of the threshold of this name to bytes. SIZE_MAX means never.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_SUCH_THRESHOLD. bytes is written on HAUL_OK
 * alone.
 *
 * # Safety
 * name is NULL or a string; bytes is NULL or writable.
 */
enum haul_status haul_thresholds_get(const char *name, size_t *bytes);

/**
 * Puts a threshold in force for all threads of this process. No value makes a copy wrong: one that
 * is too small is raised to the smallest that makes sense, SIZE_MAX turns a way to copy off.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_SUCH_THRESHOLD. Takes a lock against other calls
 * of itself; copies that are under way go on.
 *
 * # Safety
 * name is NULL or a string.
 */
enum haul_status haul_thresholds_set(const char *name, size_t bytes);

/**
 * Makes a heap of this process alone and writes it to heap. options may be NULL. About twenty
 * system calls and one malloc.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_MEMORY. heap is written on
 * HAUL_OK alone.
 *
 * # Safety
 * options is NULL or readable; heap is NULL or writable.
 */
enum haul_status haul_heap_create(const struct haul_heap_options *options, struct haul_heap **heap);

/**
 * Makes a heap that processes of this user share by a name, and writes it to heap. It outlives
 * them all, until haul_heap_remove_name(). As haul_heap_create(), and HAUL_ERROR_EXISTS.
 *
 * # Safety
 * options is NULL or readable; name is NULL or a string; heap is NULL or writable.
 */
enum haul_status haul_heap_create_named(const struct haul_heap_options *options,
                                        const char *name,
                                        struct haul_heap **heap);

/**
 * Makes a heap that is shared by its descriptor, haul_heap_fd(), and writes it to heap. It goes
 * with the last process. As haul_heap_create().
 *
 * # Safety
 * options is NULL or readable; heap is NULL or writable.
 */
enum haul_status haul_heap_create_shared(const struct haul_heap_options *options,
                                         struct haul_heap **heap);

/**
 * Attaches to the heap of this name, and writes it to heap. Nothing of what the file says is
 * believed unchecked.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NOT_FOUND;
 * HAUL_ERROR_FORBIDDEN; HAUL_ERROR_NOT_A_HEAP; HAUL_ERROR_FULL; HAUL_ERROR_NO_MEMORY;
 * HAUL_ERROR_SYSTEM.
 *
 * # Safety
 * name is NULL or a string; heap is NULL or writable.
 */
enum haul_status haul_heap_attach(const char *name, struct haul_heap **heap);

/**
 * Attaches to the heap behind a descriptor, which stays the caller's, and writes it to heap. As
 * haul_heap_attach(); HAUL_ERROR_NOT_SEALED where the file's size is not sealed, so that somebody
 * could cut it short: a named heap is attached to by its name.
 *
 * # Safety
 * heap is NULL or writable.
 */
enum haul_status haul_heap_attach_fd(int fd, struct haul_heap **heap);

/**
 * Takes a shared heap's name away: nobody can attach by it any more. Who is attached stays so.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NOT_FOUND; HAUL_ERROR_SYSTEM.
 *
 * # Safety
 * name is NULL or a string.
 */
enum haul_status haul_heap_remove_name(const char *name);

/**
 * Whether a name can be a heap's: 1 to 64 letters, digits, dots, hyphens and underscores, and no
 * dot in front.
 *
 * # Safety
 * name is NULL or a string.
 */
bool haul_heap_is_name(const char *name);

/**
 * The descriptor of a shared heap's file, for haul_heap_attach_fd() in another process; -1 for a
 * private heap and for NULL. It is closed on exec, and goes with the heap.
 *
 * # Safety
 * heap is NULL or a heap.
 */
int haul_heap_fd(const struct haul_heap *heap);

/**
 * Leaves a heap: its memory is unmapped from this process, and a private heap's is gone. Blocks of
 * a shared heap stay; they are reclaimed when this process dies. NULL is fine.
 *
 * # Safety
 * heap is NULL or a heap that no thread uses any more.
 */
void haul_heap_destroy(struct haul_heap *heap);

/**
 * Takes back what processes that died held, empties the caches of threads that ended, gives idle
 * memory back and makes memory ready ahead. For a thread that calls it now and then; nobody waits
 * for it. Does nothing for NULL.
 *
 * # Safety
 * heap is NULL or a heap.
 */
void haul_heap_maintain(const struct haul_heap *heap);

/**
 * Frees the live blocks of processes that died, and takes back what their threads held; how many
 * blocks were freed. 0 for NULL. Recovery takes milliseconds and stops nobody.
 *
 * # Safety
 * heap is NULL or a heap.
 */
uint64_t haul_heap_reap(const struct haul_heap *heap);

/**
 * Names the process that gets this one's live blocks when it dies; 0 for nobody: then they are
 * freed.
 *
 * # Safety
 * heap is NULL or a heap.
 */
void haul_heap_set_heir(const struct haul_heap *heap, uint32_t pid);

/**
 * Allocates size bytes at a multiple of align, a power of two up to 1 GiB. NULL where that cannot
 * be had: bad alignment, more than the limit, or no memory. size 0 gives the smallest block. Most
 * calls are some twenty instructions.
 *
 * # Safety
 * heap is NULL or a heap.
 */
void *haul_heap_alloc(const struct haul_heap *heap, size_t size, size_t align);

/**
 * As haul_heap_alloc(), on a NUMA node counted from 0 (or HAUL_NODE_ANY), under a tag of
 * haul_heap_tag() (or 0). NULL also for a node that the heap does not have.
 *
 * # Safety
 * heap is NULL or a heap.
 */
void *haul_heap_alloc_on(const struct haul_heap *heap,
                         size_t size,
                         size_t align,
                         int node,
                         unsigned int tag);

/**
 * As haul_heap_alloc(), and the block is all zeros.
 *
 * # Safety
 * heap is NULL or a heap.
 */
void *haul_heap_zalloc(const struct haul_heap *heap, size_t size, size_t align);

/**
 * Makes a block size bytes long at a multiple of align: where it is if it fits there, else
 * elsewhere with its content moved. NULL where that cannot be had; the block is as it was then.
 * block NULL allocates.
 *
 * # Safety
 * heap is NULL or a heap. If block is a live block of it, the caller owns it, and uses only what
 * is returned from a success on.
 */
void *haul_heap_realloc(const struct haul_heap *heap, void *block, size_t size, size_t align);

/**
 * Frees a block. NULL is fine. A pointer that names no live block is told and changes nothing,
 * also in release builds.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL for a heap of NULL; HAUL_ERROR_DOUBLE_FREE;
 * HAUL_ERROR_WILD_POINTER; HAUL_ERROR_INTERIOR_POINTER; HAUL_ERROR_FOREIGN_POINTER;
 * HAUL_ERROR_DAMAGED.
 *
 * # Safety
 * heap is NULL or a heap. If block is a live block of it, nobody uses it from now on.
 */
enum haul_status haul_heap_free(const struct haul_heap *heap, void *block);

/**
 * Bytes that a block can hold: at least what was asked for. 0 for a pointer that names no live
 * block.
 *
 * # Safety
 * heap is NULL or a heap; block, where it is a live block of the heap, is the caller's.
 */
size_t haul_heap_usable_size(const struct haul_heap *heap, const void *block);

/**
 * The tag of this name, the same in every process of the heap: statistics count by it. 0, which is
 * no tag, where all are taken or the name is NULL, empty or no UTF-8.
 *
 * # Safety
 * heap is NULL or a heap; name is NULL or a string.
 */
unsigned int haul_heap_tag(const struct haul_heap *heap, const char *name);

/**
 * Writes where a pointer into the heap lies to offset, which means the same in every process.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_FOREIGN_POINTER. offset is written on HAUL_OK
 * alone.
 *
 * # Safety
 * heap is NULL or a heap; offset is NULL or writable.
 */
enum haul_status haul_heap_offset(const struct haul_heap *heap,
                                  const void *pointer,
                                  uint64_t *offset);

/**
 * Where an offset lies in this process; NULL for one outside the heap.
 *
 * # Safety
 * heap is NULL or a heap.
 */
void *haul_heap_pointer(const struct haul_heap *heap, uint64_t offset);

/**
 * Writes what the heap holds on a node (or HAUL_NODE_ANY) to stats: exact when nobody changes it,
 * and nobody is stopped. Reads the metadata of all that is used.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT. stats is written on HAUL_OK alone.
 *
 * # Safety
 * heap is NULL or a heap; stats is NULL or writable.
 */
enum haul_status haul_heap_get_stats(const struct haul_heap *heap,
                                     int node,
                                     struct haul_heap_stats *stats);

/**
 * Checks the heap's metadata: HAUL_OK, HAUL_ERROR_NULL, or HAUL_ERROR_DAMAGED where a process
 * wrote beside its own blocks.
 *
 * # Safety
 * heap is NULL or a heap.
 */
enum haul_status haul_heap_validate(const struct haul_heap *heap);

/**
 * Writes the address of a byte of the heap for devices to iova, and of which kind it is. Three
 * system calls.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_FOREIGN_POINTER. iova is written on HAUL_OK alone.
 *
 * # Safety
 * heap is NULL or a heap; iova is NULL or writable.
 */
enum haul_status haul_heap_iova(const struct haul_heap *heap,
                                const void *pointer,
                                struct haul_iova *iova);

/**
 * Makes a socket at path, for this user alone, and writes its listener to listener. A socket there
 * that no process has any more is replaced.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_EXISTS; HAUL_ERROR_NOT_FOUND;
 * HAUL_ERROR_FORBIDDEN; HAUL_ERROR_SYSTEM. A path that is empty is HAUL_ERROR_ARGUMENT. listener
 * is written on HAUL_OK alone.
 *
 * # Safety
 * path is NULL or a string; listener is NULL or writable.
 */
enum haul_status haul_channel_listen(const char *path, struct haul_channel_listener **listener);

/**
 * As haul_channel_listen(), for the users that options allow, which may be NULL: where they are
 * others than one's own and root, everybody may connect that reaches path, and
 * haul_channel_accept() with the same options refuses all but these.
 *
 * As haul_channel_listen().
 *
 * # Safety
 * path is NULL or a string; options is NULL or readable; listener is NULL or writable.
 */
enum haul_status haul_channel_listen_for(const char *path,
                                         const struct haul_channel_options *options,
                                         struct haul_channel_listener **listener);

/**
 * Waits for somebody to connect, and writes the channel to channel. options may be NULL. Whoever
 * connects and then does not behave costs at most the deadline; the listener stays usable.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_FORBIDDEN where the peer is of
 * a user other than one's own and root, and options do not allow it; HAUL_ERROR_DEADLINE;
 * HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. channel is
 * written on HAUL_OK alone.
 *
 * # Safety
 * listener is NULL or a listener; options is NULL or readable; channel is NULL or writable.
 */
enum haul_status haul_channel_accept(const struct haul_channel_listener *listener,
                                     const struct haul_channel_options *options,
                                     struct haul_channel **channel);

/**
 * Connects to the listener at path, and writes the channel to channel. options may be NULL. Some
 * twenty system calls and a mapping of some 4 MiB, of which pages are taken as they are used.
 *
 * As haul_channel_accept(), and HAUL_ERROR_NOT_FOUND where nobody listens.
 *
 * # Safety
 * path is NULL or a string; options is NULL or readable; channel is NULL or writable.
 */
enum haul_status haul_channel_connect(const char *path,
                                      const struct haul_channel_options *options,
                                      struct haul_channel **channel);

/**
 * Two connected sockets, closed on exec, for haul_channel_connect_fd() in one process and
 * haul_channel_accept_fd() in another; both are written to fds.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_SYSTEM.
 *
 * # Safety
 * fds is NULL or has room for two.
 */
enum haul_status haul_channel_pair(int *fds);

/**
 * Begins a channel over a connected socket of haul_channel_pair(), or another Unix socket of type
 * SOCK_SEQPACKET. The descriptor is the library's from here on, whatever is returned.
 *
 * As haul_channel_accept().
 *
 * # Safety
 * fd is open and nobody else's; options is NULL or readable; channel is NULL or writable.
 */
enum haul_status haul_channel_connect_fd(int fd,
                                         const struct haul_channel_options *options,
                                         struct haul_channel **channel);

/**
 * The other end of haul_channel_connect_fd(), likewise.
 *
 * # Safety
 * fd is open and nobody else's; options is NULL or readable; channel is NULL or writable.
 */
enum haul_status haul_channel_accept_fd(int fd,
                                        const struct haul_channel_options *options,
                                        struct haul_channel **channel);

/**
 * What to poll for reading before haul_channel_try_recv() is called again; -1 for NULL. It is the
 * channel's, closed on exec, and goes with it.
 *
 * # Safety
 * channel is NULL or a channel.
 */
int haul_channel_fd(const struct haul_channel *channel);

/**
 * What to poll for reading before haul_channel_accept(); -1 for NULL. It is the listener's.
 *
 * # Safety
 * listener is NULL or a listener.
 */
int haul_channel_listener_fd(const struct haul_channel_listener *listener);

/**
 * Writes to identity who is at the other end.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL. identity is written on HAUL_OK alone.
 *
 * # Safety
 * channel is NULL or a channel, or a half of one; identity is NULL or writable.
 */
enum haul_status haul_channel_peer(const struct haul_channel *channel,
                                   struct haul_channel_identity *identity);

/**
 * Whether a haul_channel_mechanism can be used to send to this peer; false for NULL, and where
 * there is no sending half.
 *
 * # Safety
 * channel is NULL or a channel.
 */
bool haul_channel_offers(const struct haul_channel *channel, uint32_t mechanism);

/**
 * Takes the sending half out of a channel, for another thread, and writes it to sender, a channel
 * that can only send; channel can only receive from here on. Each is closed by itself. What a half
 * cannot do returns HAUL_ERROR_ARGUMENT. Only one of the two at a time can be driven by polling:
 * both have the same descriptor.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT where the channel is a half already, or a
 * message is on its way. sender is written on HAUL_OK alone.
 *
 * # Safety
 * channel is NULL or a channel; sender is NULL or writable.
 */
enum haul_status haul_channel_split(struct haul_channel *channel, struct haul_channel **sender);

/**
 * Closes a channel, or one of its halves. What was sent whole the peer can still receive. After a
 * fork another process goes on with its own copy, unless this one has used the channel since. NULL
 * is fine.
 *
 * # Safety
 * channel is NULL or a channel that no thread uses any more, with no message on its way.
 */
void haul_channel_close(struct haul_channel *channel);

/**
 * Closes a listener; the last process that has it, after a fork, removes its path. NULL is fine.
 *
 * # Safety
 * listener is NULL or a listener that no thread uses any more.
 */
void haul_channel_listener_close(struct haul_channel_listener *listener);

/**
 * Zeroed memory of size bytes to receive into, written to buffer: give haul_channel_recv_into()
 * what haul_channel_buffer_data() says of it. Where a message stands in pages of its own already,
 * those take the place of this memory's from its beginning, or any page in it, on, without a copy.
 * Of 64 KiB and more, nothing is taken from the system before it is touched.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM.
 * buffer is written on HAUL_OK alone, and is to be given back with haul_channel_buffer_free().
 *
 * # Safety
 * buffer is NULL or writable.
 */
enum haul_status haul_channel_buffer_create(size_t size, struct haul_channel_buffer **buffer);

/**
 * Where a received message stands; NULL for NULL. Some address, not to be read, for one of no
 * bytes.
 *
 * # Safety
 * buffer is NULL or a buffer.
 */
void *haul_channel_buffer_data(struct haul_channel_buffer *buffer);

/**
 * How many bytes a received message has; 0 for NULL.
 *
 * # Safety
 * buffer is NULL or a buffer.
 */
size_t haul_channel_buffer_size(const struct haul_channel_buffer *buffer);

/**
 * Says that size bytes of a received message from offset on will be written to. What came sealed,
 * from a peer without trust, is a view of which each page of 4 KiB is copied as it is first
 * written to, by a page fault; told ahead, these are copied now, which takes a quarter of the time
 * for 2 MiB and more. Copies the whole of a huge page, 2 MiB, for 1 MiB of it or more. Nothing
 * changes in what the bytes are, and of other memory nothing is done.
 * haul_channel_buffer_account() counts what was copied.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT where that is not inside the message.
 *
 * # Safety
 * buffer is NULL or a buffer, to which nobody writes meanwhile.
 */
enum haul_status haul_channel_buffer_will_write(struct haul_channel_buffer *buffer,
                                                size_t offset,
                                                size_t size);

/**
 * Writes to account what a received message took at this end.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL.
 *
 * # Safety
 * buffer is NULL or a buffer; account is NULL or writable.
 */
enum haul_status haul_channel_buffer_account(const struct haul_channel_buffer *buffer,
                                             struct haul_channel_account *account);

/**
 * Gives a received message's memory back. NULL is fine.
 *
 * # Safety
 * buffer is NULL or a buffer that is given up.
 */
void haul_channel_buffer_free(struct haul_channel_buffer *buffer);

/**
 * Sends a message and returns as its bytes are the caller's again: nothing that is written to them
 * afterwards is ever seen by the receiver. HAUL_OK does not say that the receiver has it. A peer
 * that closed, or died 0.1 ms or more before, is HAUL_ERROR_PEER_GONE at once. account may be
 * NULL; it is written on HAUL_OK alone.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_TOO_LONG and
 * HAUL_ERROR_UNAVAILABLE: nothing happened; HAUL_ERROR_DEADLINE; HAUL_ERROR_PEER_GONE;
 * HAUL_ERROR_PROTOCOL; HAUL_ERROR_BROKEN; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM.
 *
 * # Safety
 * channel is NULL or a channel; data is NULL or has size readable bytes; account is NULL or
 * writable.
 */
enum haul_status haul_channel_send(struct haul_channel *channel,
                                   const void *data,
                                   size_t size,
                                   struct haul_channel_account *account);

/**
 * Sends several parts as one message, as haul_channel_send().
 *
 * # Safety
 * channel is NULL or a channel; parts is NULL or has count readable parts, each of which has size
 * readable bytes; account is NULL or writable.
 */
enum haul_status haul_channel_send_parts(struct haul_channel *channel,
                                         const struct haul_channel_part *parts,
                                         size_t count,
                                         struct haul_channel_account *account);

/**
 * Waits for a message, and writes its size to size; the message stays.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_CLOSED where there will be no more;
 * HAUL_ERROR_DEADLINE; HAUL_ERROR_TOO_LONG; HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL;
 * HAUL_ERROR_BROKEN. size is written on HAUL_OK alone.
 *
 * # Safety
 * channel is NULL or a channel; size is NULL or writable.
 */
enum haul_status haul_channel_wait_size(struct haul_channel *channel, size_t *size);

/**
 * Waits for a message and copies it to data, which has room for size bytes. account may be NULL,
 * and has the message's size; it is written on HAUL_OK alone.
 *
 * As haul_channel_wait_size(), and HAUL_ERROR_TOO_SMALL: the message stays; HAUL_ERROR_INTEGRITY;
 * HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. What data holds after an error is indeterminate. Where
 * the peer is trusted and was stopped in the middle of HAUL_CHANNEL_DOUBLE, it can still write up
 * to 1 MiB to data as it goes on: keep that memory until the peer is gone, or use
 * haul_channel_recv(), which does.
 *
 * # Safety
 * channel is NULL or a channel; data is NULL or has size writable bytes, and after an error it is
 * kept as just said; account is NULL or writable.
 */
enum haul_status haul_channel_recv_into(struct haul_channel *channel,
                                        void *data,
                                        size_t size,
                                        struct haul_channel_account *account);

/**
 * Waits for a message and writes it, in memory of its own, to buffer.
 *
 * As haul_channel_recv_into(). buffer is written on HAUL_OK alone, and is to be given back with
 * haul_channel_buffer_free().
 *
 * # Safety
 * channel is NULL or a channel; buffer is NULL or writable.
 */
enum haul_status haul_channel_recv(struct haul_channel *channel,
                                   struct haul_channel_buffer **buffer);

/**
 * As haul_channel_recv(), and never waits: writes NULL to buffer where haul_channel_fd() is to be
 * polled for reading first. The deadline is the caller's to keep.
 *
 * # Safety
 * channel is NULL or a channel; buffer is NULL or writable.
 */
enum haul_status haul_channel_try_recv(struct haul_channel *channel,
                                       struct haul_channel_buffer **buffer);

/**
 * Memory for a message of size bytes, 1 at least, that is built in place; written to building.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. building is written
 * on HAUL_OK alone.
 *
 * # Safety
 * building is NULL or writable.
 */
enum haul_status haul_channel_building_create(size_t size, struct haul_channel_building **building);

/**
 * Where a message is built: zeroed memory; NULL for NULL.
 *
 * # Safety
 * building is NULL or one that was not sent.
 */
void *haul_channel_building_data(struct haul_channel_building *building);

/**
 * Hands over what was built, without a copy. The building is the library's from here on, whatever
 * is returned. account may be NULL.
 *
 * As haul_channel_send().
 *
 * # Safety
 * channel is NULL or a channel; building is NULL or one that was not sent, and is given up;
 * account is NULL or writable.
 */
enum haul_status haul_channel_send_built(struct haul_channel *channel,
                                         struct haul_channel_building *building,
                                         struct haul_channel_account *account);

/**
 * Gives up what was built and not sent. NULL is fine.
 *
 * # Safety
 * building is NULL or one that was not sent, and is given up.
 */
void haul_channel_building_free(struct haul_channel_building *building);

/**
 * Begins to send a message, does what can be done without waiting, and writes what is left of it
 * to sending. Until that was finished or freed the channel can receive, but not send, and must not
 * be closed or split; until the message is complete its bytes must not be changed.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT, also where the channel has no sending
 * half or another message is on its way; HAUL_ERROR_TOO_LONG; HAUL_ERROR_UNAVAILABLE;
 * HAUL_ERROR_BROKEN. sending is written on HAUL_OK alone.
 *
 * # Safety
 * channel is NULL or a channel that lives until sending was ended; data is NULL or has size
 * readable bytes that nobody changes until the message is complete or given up; sending is NULL or
 * writable.
 */
enum haul_status haul_channel_start_send(struct haul_channel *channel,
                                         const void *data,
                                         size_t size,
                                         struct haul_channel_sending **sending);

/**
 * Moves a message on without waiting, and writes to is_complete whether it is complete and its
 * bytes are the caller's again; where it is not, haul_channel_sending_fd() is to be polled for
 * reading first. The deadline is the caller's to keep.
 *
 * Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL; HAUL_ERROR_BROKEN;
 * HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. After an error the message is not complete, its bytes
 * are the caller's, and nothing is left but to free it. is_complete is written on HAUL_OK alone.
 *
 * # Safety
 * sending is NULL or a message on its way; is_complete is NULL or writable.
 */
enum haul_status haul_channel_sending_advance(struct haul_channel_sending *sending,
                                              bool *is_complete);

/**
 * What to poll for reading before haul_channel_sending_advance() is called again; -1 for NULL. It
 * is that of haul_channel_fd().
 *
 * # Safety
 * sending is NULL or a message on its way.
 */
int haul_channel_sending_fd(const struct haul_channel_sending *sending);

/**
 * Waits until a message is complete, at once if it is, and ends it: the channel can send again.
 * sending is the library's from here on, whatever is returned. account may be NULL; it is written
 * on HAUL_OK alone.
 *
 * As haul_channel_send().
 *
 * # Safety
 * sending is NULL or a message on its way, and is given up; account is NULL or writable.
 */
enum haul_status haul_channel_sending_finish(struct haul_channel_sending *sending,
                                             struct haul_channel_account *account);

/**
 * Ends a message without waiting. One that is not complete is given up: the receiver gets an
 * error, and the channel can do no more. NULL is fine.
 *
 * # Safety
 * sending is NULL or a message on its way, and is given up.
 */
void haul_channel_sending_free(struct haul_channel_sending *sending);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HAUL_H */

/* Small copies without a call.
 *
 * haul_memcpy(), haul_memmove() and haul_memset() are macros too: up to 64 bytes are moved by code in
 * the caller, above there is one call. A size that the compiler knows leaves only its own moves. Where
 * the policy in force moves small sizes by masks, which takes no branch on the size, any other size is
 * one call: that is faster than code in the caller with branches. Where
 * a function is wanted, write (haul_memcpy)(...) or &haul_memcpy; #define HAUL_NO_INLINE before the
 * #include leaves only the functions.
 *
 * Each size class is covered by pieces that overlap in the middle, and all are loaded before any is
 * stored, so that source and target may overlap. Why these pieces: crates/copy/src/small/. */
#if defined(__GNUC__) && !defined(HAUL_NO_INLINE) && !defined(HAUL_INLINE_H)
#define HAUL_INLINE_H

#ifdef __cplusplus
extern "C" {
#endif
/* 1 where small copies go by masks. */
extern const volatile unsigned char haul_small_by_masks;
#ifdef __cplusplus
}
#endif

/* Whether a copy of n bytes is one call: of a size that is not known, where masks move small ones. */
#define HAUL_CALLS(n) (!(__builtin_constant_p(n) && (n) <= 64) && haul_small_by_masks)

#define HAUL_ALWAYS_INLINE static __inline__ __attribute__((__always_inline__, __unused__))

/* 16 bytes in a vector register where the machine has one. */
typedef unsigned char haul_inline_16 __attribute__((__vector_size__(16)));

/* The names end in the bytes of a piece; p is any address. */
#define HAUL_LOAD(type, variable, p) type variable; __builtin_memcpy(&variable, (p), sizeof variable)
#define HAUL_STORE(variable, p) __builtin_memcpy((p), &variable, sizeof variable)

/* Where loads go that the size does not want: at its middle. Stores go to the middle of a local. */
static const uint64_t haul_inline_nothing[2] = {0, 0};

/* pointer if n >= size, else other: by arithmetic, because a compiler may make a branch of ?: and the
 * sizes of copies look random to a branch predictor. */
#define HAUL_ROOM(type, size, n, pointer, other)                                               \
    ((type *)(((uintptr_t)(pointer) & -(uintptr_t)((n) >= (size))) |                           \
              ((uintptr_t)(other) & -(uintptr_t)((n) < (size)))))

/* n <= 3: the last byte, and the first two, where there are any. */
HAUL_ALWAYS_INLINE void haul_inline_copy_to_3(unsigned char *target, const unsigned char *source,
                                              size_t n)
{
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const unsigned char *const nothing = (const unsigned char *)(haul_inline_nothing + 1);
    const uintptr_t last = (uintptr_t)n - 1;
    HAUL_LOAD(uint16_t, two, HAUL_ROOM(const unsigned char, 2, n, source, nothing));
    HAUL_LOAD(unsigned char, one,
              (const unsigned char *)((uintptr_t)HAUL_ROOM(const unsigned char, 1, n, source, nothing) + last));
    HAUL_STORE(one, (unsigned char *)((uintptr_t)HAUL_ROOM(unsigned char, 1, n, target, middle) + last));
    HAUL_STORE(two, HAUL_ROOM(unsigned char, 2, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

/* The first and the last piece of what is one to two of them long. */
#define HAUL_COPY_TWO(name, type)                                                              \
    HAUL_ALWAYS_INLINE void name(unsigned char *target, const unsigned char *source, size_t n) \
    {                                                                                          \
        HAUL_LOAD(type, first, source);                                                        \
        HAUL_LOAD(type, last, source + n - sizeof(type));                                      \
        HAUL_STORE(first, target);                                                             \
        HAUL_STORE(last, target + n - sizeof(type));                                           \
    }
HAUL_COPY_TWO(haul_inline_copy_4_to_8, uint32_t)
HAUL_COPY_TWO(haul_inline_copy_8_to_16, uint64_t)
HAUL_COPY_TWO(haul_inline_copy_16_to_32, haul_inline_16)
#undef HAUL_COPY_TWO

/* 4 <= n <= 16: 4 bytes at n-8 (at 0 if n < 8), 4 at n-4, 8 at 0 (to the scratch if n < 8). */
HAUL_ALWAYS_INLINE void haul_inline_copy_to_16(unsigned char *target, const unsigned char *source,
                                               size_t n)
{
    if (__builtin_constant_p(n) && n >= 8) { /* no choice is left: two moves do */
        haul_inline_copy_8_to_16(target, source, n);
        return;
    }
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const unsigned char *const nothing = (const unsigned char *)(haul_inline_nothing + 1);
    const size_t inner = (n - 8) & -(size_t)(n >= 8);
    HAUL_LOAD(uint64_t, eight, HAUL_ROOM(const unsigned char, 8, n, source, nothing));
    HAUL_LOAD(uint32_t, four, source + inner);
    HAUL_LOAD(uint32_t, four_end, source + n - 4);
    HAUL_STORE(four, target + inner);
    HAUL_STORE(four_end, target + n - 4);
    HAUL_STORE(eight, HAUL_ROOM(unsigned char, 8, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

/* 17 <= n <= 64: two pieces of 16 bytes, or four. */
HAUL_ALWAYS_INLINE void haul_inline_copy_to_64(unsigned char *target, const unsigned char *source,
                                               size_t n)
{
    if (n <= 32) {
        haul_inline_copy_16_to_32(target, source, n);
        return;
    }
    HAUL_LOAD(haul_inline_16, a, source);
    HAUL_LOAD(haul_inline_16, b, source + 16);
    HAUL_LOAD(haul_inline_16, c, source + n - 32);
    HAUL_LOAD(haul_inline_16, d, source + n - 16);
    HAUL_STORE(a, target);
    HAUL_STORE(b, target + 16);
    HAUL_STORE(c, target + n - 32);
    HAUL_STORE(d, target + n - 16);
}

/* 17 <= n <= 64 without a branch: four pieces of 16 bytes at 0, k, n-16-k and n-16, k = 16 when n > 32,
 * else 0. */
HAUL_ALWAYS_INLINE void haul_inline_move_to_64(unsigned char *target, const unsigned char *source,
                                               size_t n)
{
    const size_t inner = ((n - 1) & 32) >> 1;
    const size_t end = n - 16;
    HAUL_LOAD(haul_inline_16, a, source);
    HAUL_LOAD(haul_inline_16, b, source + inner);
    HAUL_LOAD(haul_inline_16, c, source + end - inner);
    HAUL_LOAD(haul_inline_16, d, source + end);
    HAUL_STORE(a, target);
    HAUL_STORE(b, target + inner);
    HAUL_STORE(c, target + end - inner);
    HAUL_STORE(d, target + end);
}

HAUL_ALWAYS_INLINE void haul_inline_set_to_3(unsigned char *target, unsigned char byte, size_t n)
{
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const uint16_t two = (uint16_t)(byte * 0x0101u);
    const uintptr_t last = (uintptr_t)n - 1;
    HAUL_STORE(byte, (unsigned char *)((uintptr_t)HAUL_ROOM(unsigned char, 1, n, target, middle) + last));
    HAUL_STORE(two, HAUL_ROOM(unsigned char, 2, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

HAUL_ALWAYS_INLINE void haul_inline_set_to_16(unsigned char *target, unsigned char byte, size_t n)
{
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const uint64_t eight = UINT64_C(0x0101010101010101) * byte;
    const uint32_t four = (uint32_t)eight;
    HAUL_STORE(four, target + ((n - 8) & -(size_t)(n >= 8)));
    HAUL_STORE(four, target + n - 4);
    HAUL_STORE(eight, HAUL_ROOM(unsigned char, 8, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

HAUL_ALWAYS_INLINE void haul_inline_set_to_64(unsigned char *target, unsigned char byte, size_t n)
{
    const haul_inline_16 pattern = {byte, byte, byte, byte, byte, byte, byte, byte,
                                    byte, byte, byte, byte, byte, byte, byte, byte};
    HAUL_STORE(pattern, target);
    HAUL_STORE(pattern, target + n - 16);
    if (n > 32) {
        HAUL_STORE(pattern, target + 16);
        HAUL_STORE(pattern, target + n - 32);
    }
}

/** haul_memmove with its small sizes in the caller. */
HAUL_ALWAYS_INLINE void *haul_memmove_inline(void *target, const void *source, size_t n)
{
    if (HAUL_CALLS(n)) {
        return haul_memmove(target, source, n);
    }
    if (n > 64) {
        return haul_memmove_above_64(target, source, n);
    } else if (n > 16) {
        haul_inline_move_to_64((unsigned char *)target, (const unsigned char *)source, n);
    } else if (n >= 4) {
        haul_inline_copy_to_16((unsigned char *)target, (const unsigned char *)source, n);
    } else {
        haul_inline_copy_to_3((unsigned char *)target, (const unsigned char *)source, n);
    }
    return target;
}

/** haul_memcpy with its small sizes in the caller; the two may overlap here too. Two branches more
 * than in haul_memmove_inline. */
HAUL_ALWAYS_INLINE void *haul_memcpy_inline(void *target, const void *source, size_t n)
{
    if (HAUL_CALLS(n)) {
        return haul_memcpy(target, source, n);
    }
    if (n > 64) {
        return haul_memmove_above_64(target, source, n);
    } else if (n > 16) {
        haul_inline_copy_to_64((unsigned char *)target, (const unsigned char *)source, n);
    } else if (n >= 8) {
        haul_inline_copy_8_to_16((unsigned char *)target, (const unsigned char *)source, n);
    } else if (n >= 4) {
        haul_inline_copy_4_to_8((unsigned char *)target, (const unsigned char *)source, n);
    } else {
        haul_inline_copy_to_3((unsigned char *)target, (const unsigned char *)source, n);
    }
    return target;
}

/** haul_memset with its small sizes in the caller. */
HAUL_ALWAYS_INLINE void *haul_memset_inline(void *target, int byte, size_t n)
{
    if (HAUL_CALLS(n)) {
        return haul_memset(target, byte, n);
    }
    if (n > 64) {
        return haul_memset_above_64(target, byte, n);
    } else if (n > 16) {
        haul_inline_set_to_64((unsigned char *)target, (unsigned char)byte, n);
    } else if (n >= 4) {
        haul_inline_set_to_16((unsigned char *)target, (unsigned char)byte, n);
    } else {
        haul_inline_set_to_3((unsigned char *)target, (unsigned char)byte, n);
    }
    return target;
}

#undef HAUL_CALLS
#undef HAUL_ROOM
#undef HAUL_LOAD
#undef HAUL_STORE

/* Not (target, source, n): a comma inside {} or <> is none of the preprocessor's, but it would part
 * arguments there. */
#define haul_memcpy(...) haul_memcpy_inline(__VA_ARGS__)
#define haul_memmove(...) haul_memmove_inline(__VA_ARGS__)
#define haul_memset(...) haul_memset_inline(__VA_ARGS__)

#endif /* inline code */
