/* Sends packets that ask for checksums and segmentation to a guest, one at a time.
 *
 *   sender EAL-OPTIONS -- SOCKET PACKETS
 *
 * Half of the packets are honest; the others have any flags, any lengths of headers, and any bytes. Two runs
 * send the same packets. Waits for one packet of the guest first. Prints each packet's first segment as
 * librte_vhost left it, and ends when the guest has disconnected. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_vhost.h>

static atomic_int device = -1;
static atomic_bool has_ended;

static int begin(int number)
{
	atomic_store(&device, number);
	return 0;
}

static void end(int number)
{
	(void)number;
	atomic_store(&has_ended, true);
}

static const struct rte_vhost_device_ops callbacks = { .new_device = begin, .destroy_device = end };

static uint32_t state = 1;

static uint32_t below(uint32_t limit)
{
	state = state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)(state >> 8) * limit) >> 24);
}

/* A segment of random bytes, in a buffer whose other bytes are known. */
static struct rte_mbuf *segment(struct rte_mempool *pool, uint16_t length)
{
	struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);

	if (packet == NULL)
		exit(2);
	memset(packet->buf_addr, 0x5A, packet->buf_len);
	uint8_t *bytes = (uint8_t *)rte_pktmbuf_append(packet, length);

	for (uint16_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)below(256);
	return packet;
}

static void be_honest(struct rte_mbuf *packet)
{
	static const uint64_t transports[] = { 0, RTE_MBUF_F_TX_TCP_CKSUM, RTE_MBUF_F_TX_UDP_CKSUM,
					       RTE_MBUF_F_TX_SCTP_CKSUM };
	static const uint8_t numbers[] = { 1, 6, 17, 132 };
	uint8_t *network = rte_pktmbuf_mtod(packet, uint8_t *);
	uint32_t transport = below(4);

	packet->l2_len = 14 + 4 * below(3);
	packet->l4_len = below(2) ? 20 : 0;
	packet->ol_flags |= transports[transport];
	network += packet->l2_len;
	if (below(2)) {
		packet->l3_len = 40;
		packet->ol_flags |= RTE_MBUF_F_TX_IPV6;
		network[0] = 0x60;
		network[6] = numbers[transport];
	} else {
		uint16_t total = (uint16_t)(packet->pkt_len - packet->l2_len);

		packet->l3_len = 20 + 4 * below(4);
		packet->ol_flags |= RTE_MBUF_F_TX_IPV4 | (below(2) ? RTE_MBUF_F_TX_IP_CKSUM : 0);
		network[0] = (uint8_t)(0x40 | packet->l3_len / 4);
		network[2] = (uint8_t)(total >> 8);
		network[3] = (uint8_t)total;
		network[9] = numbers[transport];
	}
	if (transport == 1 && below(2))
		packet->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
	packet->tso_segsz = (uint16_t)below(65536);
}

static void lie(struct rte_mbuf *packet)
{
	static const uint64_t flags[] = { RTE_MBUF_F_TX_TCP_CKSUM, RTE_MBUF_F_TX_SCTP_CKSUM,
					  RTE_MBUF_F_TX_IP_CKSUM,  RTE_MBUF_F_TX_IPV4,
					  RTE_MBUF_F_TX_IPV6,      RTE_MBUF_F_TX_TCP_SEG };
	static const uint64_t rare[] = { RTE_MBUF_F_TX_UDP_SEG, RTE_MBUF_F_TX_OUTER_IPV4,
					 RTE_MBUF_F_TX_OUTER_IPV6, RTE_MBUF_F_TX_OUTER_IP_CKSUM };
	bool is_near = below(2);

	for (size_t i = 0; i < RTE_DIM(flags); i++)
		packet->ol_flags |= below(2) ? flags[i] : 0;
	for (size_t i = 0; i < RTE_DIM(rare); i++)
		packet->ol_flags |= below(16) ? 0 : rare[i];
	packet->l2_len = below(is_near ? 40 : 128);
	packet->l3_len = below(is_near ? 60 : 512);
	packet->l4_len = below(is_near ? 40 : 256);
	packet->outer_l2_len = below(40);
	packet->outer_l3_len = below(60);
	packet->tso_segsz = (uint16_t)below(65536);
}

static void print(uint32_t number, const struct rte_mbuf *packet)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(packet, const uint8_t *);

	printf("packet %u flags=%#llx lengths=%#llx ", number, (unsigned long long)packet->ol_flags,
	       (unsigned long long)packet->tx_offload);
	for (uint16_t i = 0; i < packet->data_len; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

int main(int argc, char **argv)
{
	int parsed = rte_eal_init(argc, argv);

	if (parsed < 0 || argc - parsed != 3)
		return 2;
	const char *socket = argv[parsed + 1];
	uint32_t packets = (uint32_t)atoi(argv[parsed + 2]);
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", 512, 32, 0,
							   RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	struct rte_mbuf *packet = NULL;

	if (pool == NULL || rte_vhost_driver_register(socket, 0) != 0 ||
	    rte_vhost_driver_callback_register(socket, &callbacks) != 0 ||
	    rte_vhost_driver_start(socket) != 0)
		return 2;
	while (atomic_load(&device) < 0)
		usleep(1000);
	int number = atomic_load(&device);

	while (rte_vhost_dequeue_burst(number, 1, pool, &packet, 1) != 1)
		usleep(100);
	rte_pktmbuf_free(packet);
	for (uint32_t i = 0; i < packets; i++) {
		bool is_honest = below(2);
		uint16_t length = (uint16_t)(is_honest ? 120 + below(200) : 14 + below(300));

		packet = segment(pool, length);
		if (below(4) == 0 &&
		    rte_pktmbuf_chain(packet, segment(pool, (uint16_t)(1 + below(200)))) != 0)
			return 2;
		(is_honest ? be_honest : lie)(packet);
		while (rte_vhost_enqueue_burst(number, 0, &packet, 1) != 1 && !atomic_load(&has_ended))
			;
		print(i, packet);
		rte_pktmbuf_free(packet);
	}
	fflush(stdout);
	while (!atomic_load(&has_ended))
		usleep(1000);
	return rte_vhost_driver_unregister(socket) == 0 ? 0 : 1;
}
