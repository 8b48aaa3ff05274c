/* Bytes in, their Internet checksum or their packet type out; buffers stay where they are. */

#include "harness.h"

#include <stdlib.h>

#include <rte_net.h>

/* How many packets ahead to prefetch (examples/ip_reassembly). */
#define AHEAD 3

struct view {
	const void *bytes;
	uint32_t len;
};

/* Of every buffer of the ring, where its bytes lie: a checksum needs no mbuf. */
static struct view *views;
static struct rte_mbuf **first;
static uint16_t *sums;

static void checksums(struct rte_mbuf **arrived)
{
	const struct view *view = views + (arrived - first);
	uint32_t index;

	for (index = 0; index < packet_count; index++)
		sums[index] = ~rte_raw_cksum(view[index].bytes, view[index].len);
	completed = packet_count;
	if (unlikely(sink != NULL)) {
		for (index = 0; index < packet_count; index++)
			sink_bytes(&sums[index], sizeof(sums[index]));
	}
}

static const char *view_ring(struct rte_mbuf **ring, size_t count)
{
	size_t index;

	first = ring;
	views = calloc(count + 1, sizeof(*views));
	sums = calloc(packet_count + 1, sizeof(*sums));
	if (views == NULL || sums == NULL)
		return "no memory for the views";
	for (index = 0; index < count; index++)
		views[index] = (struct view){ rte_pktmbuf_mtod(ring[index], void *), ring[index]->data_len };
	return NULL;
}

static void parses(struct rte_mbuf **arrived)
{
	struct rte_net_hdr_lens lens;
	uint32_t index;

	for (index = 0; index < packet_count; index++) {
		struct rte_mbuf *packet = arrived[index];

		if (likely(index + AHEAD < packet_count))
			rte_prefetch0(rte_pktmbuf_mtod(arrived[index + AHEAD], void *));
		packet->packet_type = rte_net_get_ptype(packet, &lens, RTE_PTYPE_ALL_MASK);
		packet->l2_len = lens.l2_len;
		packet->l3_len = lens.l3_len;
		packet->l4_len = lens.l4_len;
		if (likely(!RTE_ETH_IS_IPV4_HDR(packet->packet_type) || rte_raw_cksum(
				rte_pktmbuf_mtod_offset(packet, void *, lens.l2_len), lens.l3_len) == 0xffff))
			completed += (packet->packet_type & RTE_PTYPE_L4_MASK) != 0;
		rte_pktmbuf_free(packet);
	}
}

static void plan_arrived(void)
{
	uint32_t index, longest = 0;

	for (index = 0; index < packet_count; index++)
		longest = at_least(longest, packets[index].len);
	plan[ARRIVED] = (struct pool_plan){ .count = options.ring * packet_count,
		.room = RTE_MIN(RTE_PKTMBUF_HEADROOM + longest + job.link_len, (uint32_t)UINT16_MAX) };
}

const char *checksum_plan(void)
{
	plan_arrived();
	job.filled = view_ring;
	job.section = checksums;
	job.delivers = "the checksum as a header holds it, by rte_raw_cksum";
	return NULL;
}

const char *parse_plan(void)
{
	job.link_len = RTE_ETHER_HDR_LEN;
	plan_arrived();
	job.consumes = true;
	job.section = parses;
	job.delivers = "type and lengths of the headers by rte_net_get_ptype, from the Ethernet header on; IPv4 header "
		"checksums verified";
	return NULL;
}
