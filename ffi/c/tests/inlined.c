/* Compiled to assembly and not run: a copy of up to 64 bytes makes no call. */
#include "haul.h"

void copy_small(void *target, const void *source, size_t n)
{
    if (n <= 64) {
        haul_memcpy(target, source, n);
    }
}

void move_small(void *target, const void *source, size_t n)
{
    if (n <= 64) {
        haul_memmove(target, source, n);
    }
}

void set_small(void *target, int byte, size_t n)
{
    if (n <= 64) {
        haul_memset(target, byte, n);
    }
}

void copy_known(void *target, const void *source)
{
    haul_memcpy(target, source, 48);
}

void move_known(void *target, const void *source)
{
    haul_memmove(target, source, 48);
}

void set_known(void *target, int byte)
{
    haul_memset(target, byte, 48);
}
