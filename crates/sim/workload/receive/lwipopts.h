/* lwIP as a server's receiver: TCP over IPv4 over Ethernet, without an OS, with call-backs. */
#ifndef HAUL_LWIPOPTS_H
#define HAUL_LWIPOPTS_H

#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define LWIP_TIMERS 1

#define LWIP_IPV4 1
#define LWIP_IPV6 0
#define LWIP_TCP 1
#define LWIP_UDP 0
#define LWIP_RAW 0
#define LWIP_ICMP 1
#define LWIP_DHCP 0
#define LWIP_DNS 0
#define LWIP_ARP 1
#define ETHARP_SUPPORT_STATIC_ENTRIES 1
#define LWIP_STATS 0
#define LWIP_NOASSERT 1

/* The payload of a frame follows 14 + 20 + 20 bytes: two bytes before them align it to 8. */
#define ETH_PAD_SIZE 2
#define MEM_ALIGNMENT 8
#define MEM_SIZE (256 * 1024)
#define MEMP_NUM_PBUF 64
#define PBUF_POOL_SIZE 64
#define MEMP_NUM_TCP_SEG 64
#define LWIP_SUPPORT_CUSTOM_PBUF 1

#define TCP_MSS 1460
#define TCP_WND 65535
#define TCP_SND_BUF (8 * TCP_MSS)
#define TCP_QUEUE_OOSEQ 0

/* The network device verifies and generates checksums. */
#define CHECKSUM_GEN_IP 0
#define CHECKSUM_GEN_TCP 0
#define CHECKSUM_GEN_ICMP 0
#define CHECKSUM_CHECK_IP 0
#define CHECKSUM_CHECK_TCP 0
#define CHECKSUM_CHECK_ICMP 0

#endif
