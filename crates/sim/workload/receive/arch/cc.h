/* lwIP's port: the definitions that it requires for a compiler and a machine. */
#ifndef HAUL_ARCH_CC_H
#define HAUL_ARCH_CC_H

#define LWIP_NO_INTTYPES_H 1
#define LWIP_NO_UNISTD_H 1
#define LWIP_NO_CTYPE_H 1

/*
 * Headers need no packing: ETH_PAD_SIZE aligns every field to its type. The compiler would read
 * packed headers byte by byte, because RV64IM may not support unaligned loads.
 */
#define PACK_STRUCT_STRUCT

#define X8_F "x"
#define U16_F "u"
#define S16_F "d"
#define X16_F "x"
#define U32_F "u"
#define S32_F "d"
#define X32_F "x"
#define SZT_F "lu"

#define LWIP_PLATFORM_DIAG(message) do { } while (0)
/* A failed assertion ends the run, and the simulator reports its address. */
#define LWIP_PLATFORM_ASSERT(message) __asm__ volatile("ebreak")

/* A constant is enough: the only peer is the simulator's own. */
#define LWIP_RAND() 4u

/* Byte order by inline shifts, not by calls; RV64IM has no instruction for it. */
#include <stdint.h>
#define LWIP_DONT_PROVIDE_BYTEORDER_FUNCTIONS 1
#define lwip_htons(value) haul_swap16((uint16_t)(value))
#define lwip_htonl(value) haul_swap32((uint32_t)(value))

static inline uint16_t haul_swap16(uint16_t value)
{
    return (uint16_t)(value << 8 | value >> 8);
}

static inline uint32_t haul_swap32(uint32_t value)
{
    return value << 24 | (value & 0xff00) << 8 | (value >> 8 & 0xff00) | value >> 24;
}

typedef unsigned long sys_prot_t;

#endif
