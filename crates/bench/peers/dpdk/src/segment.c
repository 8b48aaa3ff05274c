/* Long packets in, segments out: lib/gso, checksums in software. */

#include "harness.h"

#include <string.h>

#include <rte_ethdev.h>
#include <rte_gso.h>

/* Most segments of one packet. */
#define SEGMENTS_MAX 2048

enum sums { IP_ONLY, BOTH };

static struct rte_gso_ctx gso;

static __rte_always_inline void section(struct rte_mbuf **arrived, bool parse, bool linearize, enum sums sums)
{
	struct rte_mbuf *segments[SEGMENTS_MAX];
	uint32_t index;

	for (index = 0; index < packet_count; index++) {
		struct rte_mbuf *packet = arrived[index];
		int segment, count;

		if (parse) {
			if (unlikely(!parse_ip(packet, 0))) {
				rte_pktmbuf_free(packet);
				continue;
			}
			packet->l4_len = rte_pktmbuf_mtod_offset(packet, struct rte_tcp_hdr *,
				packet->l3_len)->data_off >> 4 << 2;
		}
		packet->ol_flags |= RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
		gso.gso_size = packet->l3_len + packet->l4_len + options.segment;
		count = rte_gso_segment(packet, &gso, segments, SEGMENTS_MAX);
		if (likely(count > 0))
			rte_pktmbuf_free(packet);
		else
			segments[0] = packet;
		for (segment = 0; segment < RTE_MAX(count, 1); segment++) {
			struct rte_mbuf *one = segments[segment];
			struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod(one, struct rte_ipv4_hdr *);

			if (linearize && unlikely(rte_pktmbuf_linearize(one) != 0)) {
				rte_pktmbuf_free(one);
				continue;
			}
			ip->hdr_checksum = 0;
			ip->hdr_checksum = rte_ipv4_cksum(ip);
			if (sums == BOTH) {
				uint32_t header_len = rte_ipv4_hdr_len(ip);
				struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)((uint8_t *)ip + header_len);

				tcp->cksum = 0;
				tcp->cksum = linearize ? rte_ipv4_udptcp_cksum(ip, tcp)
					: rte_ipv4_udptcp_cksum_mbuf(one, ip, header_len);
			}
			completed++;
			if (unlikely(sink != NULL))
				sink_mbuf(one, 0);
			rte_pktmbuf_free(one);
		}
	}
}

static void header(struct rte_mbuf **arrived)
{
	section(arrived, false, false, IP_ONLY);
}

static void contiguous(struct rte_mbuf **arrived)
{
	section(arrived, true, true, IP_ONLY);
}

static void contiguous_checksummed(struct rte_mbuf **arrived)
{
	section(arrived, true, true, BOTH);
}

static void chain_checksummed(struct rte_mbuf **arrived)
{
	section(arrived, true, false, BOTH);
}

static const char *start(void)
{
	gso = (struct rte_gso_ctx){ .direct_pool = pools[DIRECT], .indirect_pool = pools[INDIRECT],
		.gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO };
	return NULL;
}

const char *segment_plan(void)
{
	uint32_t index, longest = 0;
	bool chain = strcmp(options.work, "header") == 0 || strcmp(options.result, "chain") == 0;

	for (index = 0; index < packet_count; index++) {
		const struct packet *packet = &packets[index];

		longest = at_least(longest, packet->len);
		if (packet->len < 40 || packet->bytes[0] >> 4 != 4 || packet->bytes[9] != IPPROTO_TCP)
			return "DPDK segments TCP over IPv4 alone";
	}
	if (options.segment > UINT16_MAX - 256)
		return "a segment is longer than a buffer of DPDK's";
	job.consumes = true;
	job.per_packet_out = true;
	job.start = start;
	plan[ARRIVED] = (struct pool_plan){ .count = options.ring * packet_count,
		.room = RTE_MIN(RTE_PKTMBUF_HEADROOM + longest, (uint32_t)UINT16_MAX) };
	plan[DIRECT] = (struct pool_plan){ .count = SEGMENTS_MAX,
		.room = RTE_PKTMBUF_HEADROOM + 128 + (chain ? 0 : options.segment) };
	plan[INDIRECT] = (struct pool_plan){ .count = SEGMENTS_MAX, .room = 0 };
	if (strcmp(options.work, "header") == 0) {
		job.parsed = true;
		job.section = header;
		job.delivers = "chains of a header's buffer and a reference to the packet; IPv4 header checksums written, TCP's "
			"left to the port; given back packet by packet";
	} else if (strcmp(options.work, "contiguous") == 0) {
		job.section = contiguous;
		job.delivers = "contiguous segments; IPv4 header checksums verified and written, TCP's left to the port; given "
			"back packet by packet";
	} else if (chain) {
		job.section = chain_checksummed;
		job.delivers = "chains of a header's buffer and a reference to the packet, not contiguous; both checksums "
			"written; given back packet by packet";
	} else {
		job.section = contiguous_checksummed;
		job.delivers = "contiguous segments, both checksums written; given back packet by packet";
	}
	return NULL;
}
