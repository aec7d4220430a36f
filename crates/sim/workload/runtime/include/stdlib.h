/* The part of this header that lwIP needs; the function is in runtime.c. */
#ifndef HAUL_STDLIB_H
#define HAUL_STDLIB_H

#include <stddef.h>

int atoi(const char *text);

#endif
