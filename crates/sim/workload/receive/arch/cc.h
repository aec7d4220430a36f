/* lwIP's port: what it asks of a compiler and a machine. */
#ifndef HAUL_ARCH_CC_H
#define HAUL_ARCH_CC_H

#define LWIP_NO_INTTYPES_H 1
#define LWIP_NO_UNISTD_H 1
#define LWIP_NO_CTYPE_H 1

#define X8_F "x"
#define U16_F "u"
#define S16_F "d"
#define X16_F "x"
#define U32_F "u"
#define S32_F "d"
#define X32_F "x"
#define SZT_F "lu"

#define LWIP_PLATFORM_DIAG(message) do { } while (0)
/* A broken assumption ends the run: the simulator says where. */
#define LWIP_PLATFORM_ASSERT(message) __asm__ volatile("ebreak")

/* Nothing here needs a secret: the peer is the simulator's. */
#define LWIP_RAND() 4u

typedef unsigned long sys_prot_t;

#endif
