/* What the programs of this folder share: the section, its buffers, and where results go. */

#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_tcp.h>
#include <rte_udp.h>

/* The program's arguments, as the protocol names them. */
struct options {
	const char *function, *work, *file, *out;
	uint32_t ring;
	bool huge;
	uint32_t sections;
	uint32_t datagrams, pieces;
	uint32_t mtu;
	uint32_t segment;
	uint32_t flows, burst, len_max;
	const char *hold;
	/* Our own: `linearize`, `copy-out`, `chain`; `fit`, `wide`. */
	const char *result, *table;
};

struct packet {
	const uint8_t *bytes; /* from the IP header on */
	uint32_t len;
	uint8_t pool;         /* where its buffer comes from */
};

/* Packets of a ring from which on their buffers are cold: 8 MiB of them. */
#define COLD_COUNT 4096

/* Pools, by what lies in their buffers. */
enum {
	ARRIVED,  /* packets as they arrive */
	HEAD,     /* packets that others are appended to: room for the longest result */
	DIRECT,   /* headers, or whole copies, that DPDK makes */
	INDIRECT, /* references to another buffer's bytes */
	PLAIN,    /* no mbufs: room for one contiguous result each */
	POOL_COUNT,
};

struct pool_plan {
	uint32_t count;
	uint32_t room; /* bytes behind the mbuf, headroom counted */
};

/* One kind of work. */
struct job {
	const char *delivers;
	/* Bytes before the IP header. */
	uint16_t link_len;
	/* The timed part takes the section's buffers, so that they are filled again. */
	bool consumes;
	/* Prices are per packet out. */
	bool per_packet_out;
	/* Parsed outside the timed part: lengths and type stand in the mbuf. */
	bool parsed;
	/* Makes what is needed beside the pools; the reason why not, or NULL. */
	const char *(*start)(void);
	/* Sees the ring once it is filled for the first time; may be NULL. */
	const char *(*filled)(struct rte_mbuf **ring, size_t count);
	void (*section)(struct rte_mbuf **packets);
};

extern struct options options;
extern struct job job;
extern struct packet *packets;
extern uint32_t packet_count;
extern struct pool_plan plan[POOL_COUNT];
/* Bytes of tables beside the pools. */
extern size_t plan_tables;
extern struct rte_mempool *pools[POOL_COUNT];

/* Results of the section. */
extern uint32_t completed;
/* While verifying: where results are written. */
extern FILE *sink;

void sink_bytes(const void *bytes, uint32_t len);
void sink_mbuf(const struct rte_mbuf *packet, uint32_t from);

/* Each fills `job` and `plan` for its function; the reason why it cannot, or NULL. */
const char *reassemble_plan(void);
const char *fragment_plan(void);
const char *coalesce_plan(void);
const char *segment_plan(void);
const char *checksum_plan(void);
const char *parse_plan(void);

/* The program: what start.c calls. */
int harness(int argc, char **argv);
void timed_section(struct rte_mbuf **section);

/* Starts DPDK with memory for the plan, makes the pools; the reason why not, or NULL. */
const char *memory_start(void);
/* Gives back what starting took from the system; called when all memory is taken. */
void memory_settled(void);
/* What the pages are. */
const char *memory_pages(void);

/* Lengths and type of one packet from its bytes, into its mbuf; false if it is damaged.
 * What RFC 1812 section 5.2.2 asks of IPv4, header checksum counted; for IPv6, version and length. */
static inline bool parse_ip(struct rte_mbuf *packet, uint16_t link_len)
{
	const uint8_t *ip = rte_pktmbuf_mtod_offset(packet, const uint8_t *, link_len);
	uint32_t len = packet->data_len - link_len;

	if (likely(ip[0] >> 4 == 4)) {
		const struct rte_ipv4_hdr *header = (const void *)ip;
		uint32_t header_len = rte_ipv4_hdr_len(header);
		uint32_t total_len = rte_be_to_cpu_16(header->total_length);

		if (unlikely(len < sizeof(*header) || header_len < sizeof(*header) || total_len < header_len
				|| total_len > len || rte_raw_cksum(header, header_len) != 0xffff))
			return false;
		packet->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4;
		packet->l3_len = header_len;
	} else {
		const struct rte_ipv6_hdr *header = (const void *)ip;
		bool fragment;

		if (unlikely(ip[0] >> 4 != 6 || len < sizeof(*header)
				|| sizeof(*header) + rte_be_to_cpu_16(header->payload_len) > len))
			return false;
		fragment = header->proto == IPPROTO_FRAGMENT;
		if (unlikely(fragment && len < sizeof(*header) + 8))
			return false;
		packet->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV6;
		packet->l3_len = sizeof(*header) + (fragment ? 8 : 0);
	}
	packet->l2_len = link_len;
	return true;
}

/* Is the transport checksum of a contiguous packet right? */
static inline bool transport_is_right(const void *ip)
{
	if (*(const uint8_t *)ip >> 4 == 4) {
		const struct rte_ipv4_hdr *header = ip;
		const void *transport = (const uint8_t *)ip + rte_ipv4_hdr_len(header);

		if (header->next_proto_id == IPPROTO_UDP && ((const struct rte_udp_hdr *)transport)->dgram_cksum == 0)
			return true;
		return rte_ipv4_udptcp_cksum_verify(header, transport) == 0;
	}
	return rte_ipv6_udptcp_cksum_verify(ip, (const struct rte_ipv6_hdr *)ip + 1) == 0;
}

/* A contiguous copy from the IP header on, in a plain buffer. */
static inline void *copy_out(const struct rte_mbuf *packet, uint32_t *len)
{
	void *buffer;
	uint8_t *to;
	uint32_t from = packet->l2_len;

	if (unlikely(rte_mempool_get(pools[PLAIN], &buffer) != 0))
		return NULL;
	to = buffer;
	for (; packet != NULL; packet = packet->next) {
		rte_memcpy(to, rte_pktmbuf_mtod_offset(packet, const void *, from), packet->data_len - from);
		to += packet->data_len - from;
		from = 0;
	}
	*len = to - (uint8_t *)buffer;
	return buffer;
}

static inline uint32_t at_least(uint32_t value, uint32_t bound)
{
	return value < bound ? bound : value;
}

#endif
