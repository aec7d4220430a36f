/*
 * A key-value store: a hash table of keys, and a large array with a value for each. Requests have
 * random keys; one in four stores a value, the others read one. A value that is read is copied into
 * a reply, which is checked a few requests later, when it would be sent.
 */
#include "runtime.h"

#define STORE_BYTES (8ul * 1024 * 1024)
#define VALUE_BYTES_MAX 65536ul
#define KEYS_MAX 65536ul
/* Replies and requests that are in flight at once. */
#define DEPTH 8

struct place {
    uint64_t key;
    uint64_t offset;
};

static uint8_t store[STORE_BYTES] __attribute__((aligned(4096)));
static uint8_t requests[DEPTH][VALUE_BYTES_MAX] __attribute__((aligned(4096)));
static uint8_t replies[DEPTH][VALUE_BYTES_MAX] __attribute__((aligned(4096)));
static struct place table[2 * KEYS_MAX];
/* The expected first word of each key's value. */
static uint64_t versions[KEYS_MAX];
/* The expected first word of each reply; 0 for no reply. */
static uint64_t expected[DEPTH];
static uint64_t mask;

/* Mixes all bits of a key: the finalizer of MurmurHash3, which is in the public domain. */
static uint64_t hash(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdul;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ul;
    return key ^ key >> 33;
}

/* The key's entry, or the free entry for it. Key 0 marks a free entry. */
static struct place *find(uint64_t key)
{
    uint64_t index = hash(key) & mask;
    while (table[index].key != 0 && table[index].key != key)
        index = (index + 1) & mask;
    return &table[index];
}

static uint64_t *first_word(uint8_t *bytes)
{
    return (uint64_t *)(void *)bytes;
}

/* Serves one request. Returns whether the previous reply in its slot was right. */
static int serve(enum copy_how how, uint64_t number, uint64_t keys, uint64_t bytes)
{
    uint64_t draw = hash(number + 1);
    uint64_t key = draw % keys + 1;
    unsigned slot = number % DEPTH;
    int is_right = expected[slot] == 0 || *first_word(replies[slot]) == expected[slot];
    struct place *place = find(key);
    if (draw >> 62 == 0) {
        versions[key - 1] = draw;
        *first_word(requests[slot]) = draw;
        copy_bulk(how, store + place->offset, requests[slot], bytes);
        expected[slot] = 0;
    } else {
        copy_bulk(how, replies[slot], store + place->offset, bytes);
        expected[slot] = versions[key - 1];
    }
    return is_right;
}

/* Returns 0 if every reply was right, 1 for invalid arguments, 2 for a wrong reply. */
int main(uint64_t count, uint64_t bytes, uint64_t how, uint64_t keys)
{
    uint64_t stride = (bytes + 63) & ~63ul;
    if (keys == 0)
        keys = 1024;
    if (bytes < 8 || bytes > VALUE_BYTES_MAX || keys > KEYS_MAX || keys * stride > STORE_BYTES)
        return 1;
    for (mask = 1; mask < 2 * keys; mask *= 2) {
    }
    mask -= 1;
    for (uint64_t key = 1; key <= keys; key++) {
        struct place *place = find(key);
        place->key = key;
        place->offset = (key - 1) * stride;
        versions[key - 1] = hash(~key);
        *first_word(store + place->offset) = versions[key - 1];
    }
    for (uint64_t number = 0; number < count; number++) {
        if (!serve((enum copy_how)how, number, keys, bytes))
            return 2;
    }
    return 0;
}
