/* The C functions that lwIP and the compiler call. They are simple, because none is measured. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

void *memcpy(void *restrict target, const void *restrict source, size_t bytes)
{
    unsigned char *to = target;
    const unsigned char *from = source;
    if ((((uintptr_t)to | (uintptr_t)from) & 7) == 0) {
        for (; bytes >= 8; bytes -= 8, to += 8, from += 8)
            *(uint64_t *)(void *)to = *(const uint64_t *)(const void *)from;
    }
    while (bytes-- > 0)
        *to++ = *from++;
    return target;
}

void *memmove(void *target, const void *source, size_t bytes)
{
    unsigned char *to = target;
    const unsigned char *from = source;
    if ((uintptr_t)to - (uintptr_t)from >= bytes)
        return memcpy(target, source, bytes);
    while (bytes-- > 0)
        to[bytes] = from[bytes];
    return target;
}

void *memset(void *target, int value, size_t bytes)
{
    unsigned char *to = target;
    while (bytes-- > 0)
        *to++ = (unsigned char)value;
    return target;
}

int memcmp(const void *left, const void *right, size_t bytes)
{
    const unsigned char *a = left, *b = right;
    for (; bytes > 0; bytes--, a++, b++) {
        if (*a != *b)
            return *a - *b;
    }
    return 0;
}

size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length] != 0)
        length++;
    return length;
}

int strncmp(const char *left, const char *right, size_t limit)
{
    for (; limit > 0; limit--, left++, right++) {
        if (*left != *right || *left == 0)
            return (unsigned char)*left - (unsigned char)*right;
    }
    return 0;
}

int atoi(const char *text)
{
    int value = 0;
    while (*text >= '0' && *text <= '9')
        value = 10 * value + (*text++ - '0');
    return value;
}
