/* The part of this header that lwIP's TCP needs; the functions are in runtime.c. */
#ifndef HAUL_STRING_H
#define HAUL_STRING_H

#include <stddef.h>

void *memcpy(void *restrict target, const void *restrict source, size_t bytes);
void *memmove(void *target, const void *source, size_t bytes);
void *memset(void *target, int value, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);
size_t strlen(const char *text);
int strncmp(const char *left, const char *right, size_t limit);

#endif
