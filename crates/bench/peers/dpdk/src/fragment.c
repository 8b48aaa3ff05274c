/* Packets in, fragments out: lib/ip_frag, by reference or by copy. */

#include "harness.h"

#include <string.h>

#include <rte_ip_frag.h>

/* Most fragments of one packet: 65535 bytes to an MTU of 68 would be 1366. */
#define PIECES_MAX 2048

/* Identification of the next packet over IPv6, which DPDK leaves at 0. */
static uint32_t identification;

static __rte_always_inline void section(struct rte_mbuf **arrived, bool copy)
{
	struct rte_mbuf *pieces[PIECES_MAX];
	uint32_t index;

	for (index = 0; index < packet_count; index++) {
		struct rte_mbuf *packet = arrived[index];
		bool ipv4;
		int32_t count, piece;

		if (copy && unlikely(!parse_ip(packet, 0))) {
			rte_pktmbuf_free(packet);
			continue;
		}
		ipv4 = RTE_ETH_IS_IPV4_HDR(packet->packet_type);
		if (!ipv4)
			count = rte_ipv6_fragment_packet(packet, pieces, PIECES_MAX, options.mtu, pools[DIRECT],
				pools[INDIRECT]);
		else if (copy)
			count = rte_ipv4_fragment_copy_nonseg_packet(packet, pieces, PIECES_MAX, options.mtu,
				pools[DIRECT]);
		else
			count = rte_ipv4_fragment_packet(packet, pieces, PIECES_MAX, options.mtu, pools[DIRECT],
				pools[INDIRECT]);
		rte_pktmbuf_free(packet);
		identification++;
		for (piece = 0; piece < count; piece++) {
			if (ipv4) {
				struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod(pieces[piece], struct rte_ipv4_hdr *);

				ip->hdr_checksum = 0;
				ip->hdr_checksum = rte_ipv4_cksum(ip);
			} else {
				rte_pktmbuf_mtod_offset(pieces[piece], struct rte_ipv6_fragment_ext *,
					sizeof(struct rte_ipv6_hdr))->id = rte_cpu_to_be_32(identification);
			}
			completed++;
			if (unlikely(sink != NULL))
				sink_mbuf(pieces[piece], 0);
			rte_pktmbuf_free(pieces[piece]);
		}
	}
}

static void by_reference(struct rte_mbuf **arrived)
{
	section(arrived, false);
}

static void by_copy(struct rte_mbuf **arrived)
{
	section(arrived, true);
}

const char *fragment_plan(void)
{
	bool copy = strcmp(options.work, "contiguous") == 0;
	uint32_t index, longest = 0;

	if (strcmp(options.work, "checksummed") == 0)
		return "no transport checksum is in a fragment";
	for (index = 0; index < packet_count; index++) {
		longest = at_least(longest, packets[index].len);
		if (copy && packets[index].bytes[0] >> 4 != 4)
			return "DPDK copies into fragments over IPv4 alone";
	}
	job.consumes = true;
	job.per_packet_out = true;
	job.parsed = !copy;
	job.section = copy ? by_copy : by_reference;
	job.delivers = copy
		? "contiguous fragments, IPv4 header checksums verified and written; given back packet by packet"
		: "chains of a header's buffer and references to the packet, IPv4 header checksums and IPv6 identifications "
		  "written; given back packet by packet";
	plan[ARRIVED] = (struct pool_plan){ .count = options.ring * packet_count,
		.room = RTE_MIN(RTE_PKTMBUF_HEADROOM + longest, (uint32_t)UINT16_MAX) };
	plan[DIRECT] = (struct pool_plan){ .count = PIECES_MAX,
		.room = RTE_PKTMBUF_HEADROOM + (copy ? RTE_MIN(options.mtu, UINT16_MAX - 256u) : 128) };
	if (!copy)
		plan[INDIRECT] = (struct pool_plan){ .count = PIECES_MAX, .room = 0 };
	return NULL;
}
