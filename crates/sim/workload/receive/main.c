/*
 * Receives a TCP stream through lwIP and copies each payload to a user buffer, as a server's kernel
 * does. crates/sim/src/nic.rs describes the device and its registers.
 */
#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/ip4.h"
#include "lwip/netif.h"
#include "lwip/tcp.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"
#include "runtime.h"

#include <string.h>

#define RING 256
#define BUFFER_BYTES 2048
#define USER_BYTES_MAX (4 * 1024 * 1024)
#define PORT 5001
/* Packets after which time advances by a millisecond and timers are checked. */
#define PACKETS_PER_MS 256

struct descriptor {
    uint64_t address;
    uint32_t bytes;
    uint32_t is_full;
    uint8_t line[48];
};

struct device {
    volatile uint64_t ring;
    volatile uint64_t returned;
    volatile uint64_t transmit_address;
    volatile uint64_t transmit_bytes;
    volatile uint64_t user_buffer;
};

static struct device *const device = (struct device *)0x10000000;
static volatile struct descriptor ring[RING] __attribute__((aligned(4096)));
static uint8_t buffers[RING][BUFFER_BYTES] __attribute__((aligned(4096)));
static uint8_t user_buffer[USER_BYTES_MAX] __attribute__((aligned(4096)));
static struct pbuf_custom frames[RING];
static struct netif interface;

static struct pbuf *socket_buffer;
static enum copy_how how;
static uint64_t user_bytes, user_place, received_bytes, returned_buffers;
static uint32_t now_ms;

u32_t sys_now(void)
{
    return now_ms;
}

/* Returns a frame's buffer to the device; the stack calls it when it no longer needs the frame. */
static void frame_done(struct pbuf *frame)
{
    (void)frame;
    device->returned = ++returned_buffers;
}

/* Hands a frame to the device, which reads it at once. */
static err_t send_frame(struct netif *netif, struct pbuf *frame)
{
    static uint8_t whole[BUFFER_BYTES];
    (void)netif;
    if (frame->next == NULL) {
        device->transmit_address = (uint64_t)((uint8_t *)frame->payload + ETH_PAD_SIZE);
    } else {
        pbuf_copy_partial(frame, whole, frame->tot_len, 0);
        device->transmit_address = (uint64_t)(whole + ETH_PAD_SIZE);
    }
    device->transmit_bytes = frame->tot_len - ETH_PAD_SIZE;
    return ERR_OK;
}

/* Puts data from the stack into the socket's buffer, as 4.4BSD's sbappend() does. */
static err_t deliver(void *argument, struct tcp_pcb *connection, struct pbuf *data, err_t error)
{
    (void)argument;
    (void)error;
    if (data == NULL)
        return tcp_close(connection);
    tcp_recved(connection, data->tot_len);
    socket_buffer = data;
    return ERR_OK;
}

/*
 * Reads for the user: this is the copy under study. It is the last step of a packet, as in
 * 4.4BSD's soreceive(); the buffer's release and the next packet follow it.
 */
static void read_socket(void)
{
    struct pbuf *data = socket_buffer;
    socket_buffer = NULL;
    for (struct pbuf *part = data; part != NULL; part = part->next) {
        if (user_place + part->len > user_bytes)
            user_place = 0;
        void *target = user_buffer + user_place;
        /* Each payload begins at a line of its own, as a user's aligned buffers do. */
        user_place += (part->len + 63u) & ~63ul;
        received_bytes += part->len;
        copy_bulk(how, target, part->payload, part->len);
    }
    pbuf_free(data);
}

static err_t accept_connection(void *argument, struct tcp_pcb *connection, err_t error)
{
    (void)argument;
    (void)error;
    tcp_recv(connection, deliver);
    return ERR_OK;
}

static err_t start_interface(struct netif *netif)
{
    static const uint8_t address[ETH_HWADDR_LEN] = { 2, 0, 0, 0, 0, 2 };
    netif->name[0] = 'e';
    netif->name[1] = 'n';
    netif->mtu = 1500;
    netif->hwaddr_len = ETH_HWADDR_LEN;
    memcpy(netif->hwaddr, address, ETH_HWADDR_LEN);
    netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    netif->output = etharp_output;
    netif->linkoutput = send_frame;
    return ERR_OK;
}

static void start(void)
{
    static struct eth_addr peer_address = { { 2, 0, 0, 0, 0, 1 } };
    ip4_addr_t own, mask, peer;
    IP4_ADDR(&own, 10, 0, 0, 2);
    IP4_ADDR(&mask, 255, 255, 255, 0);
    IP4_ADDR(&peer, 10, 0, 0, 1);
    lwip_init();
    netif_add(&interface, &own, &mask, &peer, NULL, start_interface, ethernet_input);
    netif_set_default(&interface);
    netif_set_up(&interface);
    etharp_add_static_entry(&peer, &peer_address);

    struct tcp_pcb *listener = tcp_new();
    tcp_bind(listener, IP_ANY_TYPE, PORT);
    tcp_accept(tcp_listen(listener), accept_connection);

    device->user_buffer = (uint64_t)user_buffer;
    for (unsigned place = 0; place < RING; place++)
        ring[place].address = (uint64_t)(buffers[place] + ETH_PAD_SIZE);
    device->ring = (uint64_t)ring;
}

/* Takes the frame from this slot of the ring and passes it to the stack. */
static void receive(unsigned place)
{
    uint16_t bytes = (uint16_t)(ring[place].bytes + ETH_PAD_SIZE);
    /* The address is the descriptor's, as if the device could fill buffers in any order. */
    uint8_t *buffer = (uint8_t *)ring[place].address - ETH_PAD_SIZE;
    ring[place].is_full = 0;
    struct pbuf_custom *frame = &frames[place];
    frame->custom_free_function = frame_done;
    struct pbuf *head =
        pbuf_alloced_custom(PBUF_RAW, bytes, PBUF_REF, frame, buffer, BUFFER_BYTES);
    if (interface.input(head, &interface) != ERR_OK)
        pbuf_free(head);
}

/* Models the work of a longer stack per packet: a loop of dependent additions. */
static void compute(uint64_t turns)
{
    for (; turns > 0; turns--)
        __asm__ volatile("");
}

/* Returns 0 once every byte has been received, 1 for invalid arguments. */
int main(uint64_t packets, uint64_t payload_bytes, uint64_t copy, uint64_t buffer_bytes,
         uint64_t work)
{
    how = (enum copy_how)copy;
    user_bytes = buffer_bytes == 0 ? 64 * 1024 : buffer_bytes;
    if (user_bytes > USER_BYTES_MAX || user_bytes < payload_bytes)
        return 1;
    start();
    for (uint64_t count = 0; received_bytes < packets * payload_bytes; count++) {
        unsigned place = count % RING;
        while (ring[place].is_full == 0) {
        }
        receive(place);
        compute(work);
        if (count % PACKETS_PER_MS == 0) {
            now_ms++;
            sys_check_timeouts();
        }
        if (socket_buffer != NULL)
            read_socket();
    }
    return 0;
}
