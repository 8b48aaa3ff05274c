/* Fragments in, datagrams out: lib/ip_frag, as its sample application drives it. */

#include "harness.h"

#include <string.h>

#include <rte_cycles.h>
#include <rte_ip_frag.h>

/* Packets that a port hands over at once, and how far ahead of them to prefetch (examples/ip_reassembly). */
#define BURST 32
#define AHEAD 3
/* How far ahead to prefetch the buffers' own lines where the caches do not hold them. */
#define COLD_AHEAD 12
/* Entries of a bucket, and buckets of a key (IP_FRAG_HASH_FNUM). */
#define WAYS 16
#define CHOICES 2
/* How long a datagram is waited for, in seconds: no section takes longer. */
#define PATIENCE 3600

enum result { CHAIN, LINEAR, COPY };

/* The buffers' own lines are no longer in the nearest caches when their turn comes. */
static bool cold;
static struct rte_ip_frag_tbl *table;
static struct rte_ip_frag_death_row dead;

static uint32_t ip_len(const struct rte_mbuf *datagram)
{
	const uint8_t *ip = rte_pktmbuf_mtod_offset(datagram, const uint8_t *, datagram->l2_len);

	return ip[0] >> 4 == 4 ? (ip[0] & 15u) * 4 : sizeof(struct rte_ipv6_hdr);
}

static __rte_always_inline void deliver(struct rte_mbuf *datagram, enum result result, bool checksummed)
{
	uint32_t len;
	void *copy;

	switch (result) {
	case CHAIN:
		completed++;
		if (unlikely(sink != NULL))
			sink_mbuf(datagram, datagram->l2_len + ip_len(datagram));
		rte_pktmbuf_free(datagram);
		return;
	case LINEAR:
		if (likely(rte_pktmbuf_linearize(datagram) == 0 && (!checksummed
				|| transport_is_right(rte_pktmbuf_mtod_offset(datagram, void *, datagram->l2_len))))) {
			completed++;
			if (unlikely(sink != NULL))
				sink_mbuf(datagram, datagram->l2_len + ip_len(datagram));
		}
		rte_pktmbuf_free(datagram);
		return;
	case COPY:
		copy = copy_out(datagram, &len);
		if (likely(!checksummed || transport_is_right(copy))) {
			completed++;
			if (unlikely(sink != NULL))
				sink_bytes((uint8_t *)copy + ip_len(datagram), len - ip_len(datagram));
		}
		rte_pktmbuf_free(datagram);
		rte_mempool_put(pools[PLAIN], copy);
		return;
	}
}

/* The datagram that this packet is or completes, or NULL. */
static __rte_always_inline struct rte_mbuf *reassemble(struct rte_mbuf *packet, uint64_t time)
{
	if (RTE_ETH_IS_IPV4_HDR(packet->packet_type)) {
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(packet, struct rte_ipv4_hdr *, packet->l2_len);

		if (likely(rte_ipv4_frag_pkt_is_fragmented(ip)))
			return rte_ipv4_frag_reassemble_packet(table, &dead, packet, time, ip);
	} else {
		struct rte_ipv6_hdr *ip = rte_pktmbuf_mtod_offset(packet, struct rte_ipv6_hdr *, packet->l2_len);
		struct rte_ipv6_fragment_ext *fragment = rte_ipv6_frag_get_ipv6_fragment_header(ip);

		if (likely(fragment != NULL))
			return rte_ipv6_frag_reassemble_packet(table, &dead, packet, time, ip, fragment);
	}
	return packet;
}

static __rte_always_inline void section(struct rte_mbuf **arrived, enum result result, bool parse, bool checksummed)
{
	uint32_t start, index, end;
	uint64_t time = 0;

	for (start = 0; start < packet_count; start = end) {
		end = RTE_MIN(start + BURST, packet_count);
		time = rte_rdtsc();
		for (index = start; index < RTE_MIN(start + AHEAD, end); index++)
			rte_prefetch0(rte_pktmbuf_mtod(arrived[index], void *));
		for (index = start; index < end; index++) {
			struct rte_mbuf *packet = arrived[index];

			if (likely(index + AHEAD < end))
				rte_prefetch0(rte_pktmbuf_mtod(arrived[index + AHEAD], void *));
			if (cold && likely(index + COLD_AHEAD < packet_count)) {
				rte_prefetch0(arrived[index + COLD_AHEAD]);
				rte_prefetch0(&arrived[index + COLD_AHEAD]->next);
			}
			if (parse && unlikely(!parse_ip(packet, RTE_ETHER_HDR_LEN))) {
				rte_pktmbuf_free(packet);
				continue;
			}
			packet = reassemble(packet, time);
			if (packet != NULL)
				deliver(packet, result, checksummed);
		}
		rte_ip_frag_free_death_row(&dead, AHEAD);
	}
	/* What is never completed is given back too. */
	do {
		rte_ip_frag_free_death_row(&dead, AHEAD);
		rte_ip_frag_table_del_expired_entries(table, &dead, time + 2 * PATIENCE * rte_get_tsc_hz());
	} while (unlikely(dead.cnt > 0));
}

static void header(struct rte_mbuf **arrived)
{
	section(arrived, CHAIN, false, false);
}

static void linear(struct rte_mbuf **arrived)
{
	section(arrived, LINEAR, true, false);
}

static void copied(struct rte_mbuf **arrived)
{
	section(arrived, COPY, true, false);
}

static void linear_checksummed(struct rte_mbuf **arrived)
{
	section(arrived, LINEAR, true, true);
}

static void copied_checksummed(struct rte_mbuf **arrived)
{
	section(arrived, COPY, true, true);
}

/* A small table stays in the caches and a wide one has short searches: which is ahead depends on the datagrams held. */
static uint32_t bucket_count(void)
{
	bool wide = options.datagrams >= 8 && options.datagrams < 1024;

	if (options.table[0] != 0)
		wide = strcmp(options.table, "wide") == 0;
	return rte_align32pow2(wide ? at_least(options.datagrams, 16) : at_least(options.datagrams / 8, 4));
}

static const char *start(void)
{
	uint32_t buckets = bucket_count();

	cold = (uint64_t)options.ring * packet_count > COLD_COUNT;

	table = rte_ip_frag_table_create(buckets, WAYS, buckets * WAYS * CHOICES, PATIENCE * rte_get_tsc_hz(),
		rte_socket_id());
	return table == NULL ? "no memory for the table" : NULL;
}

/* The place behind this fragment's last byte, in bytes; its own place in `place`. */
static uint32_t fragment_end(const struct packet *packet, uint32_t *place)
{
	const uint8_t *ip = packet->bytes;

	*place = 0;
	if (packet->len >= 20 && ip[0] >> 4 == 4) {
		*place = ((ip[6] & 0x1fu) << 8 | ip[7]) * 8;
	} else if (packet->len >= 48 && ip[6] == IPPROTO_FRAGMENT) {
		*place = (ip[42] << 8 | ip[43]) & 0xfff8u;
	}
	return *place + packet->len;
}

const char *reassemble_plan(void)
{
	bool header_only = strcmp(options.work, "header") == 0;
	bool checksummed = strcmp(options.work, "checksummed") == 0;
	bool linearize = !header_only && strcmp(options.result, "linearize") == 0;
	uint32_t longest = 0, arriving = 0, index, place;

	if (options.pieces > RTE_LIBRTE_IP_FRAG_MAX_FRAG)
		return "this build takes " RTE_STR(RTE_LIBRTE_IP_FRAG_MAX_FRAG) " fragments of a datagram";
	job.link_len = RTE_ETHER_HDR_LEN;
	job.consumes = true;
	job.parsed = header_only;
	job.start = start;
	for (index = 0; index < packet_count; index++) {
		longest = at_least(longest, fragment_end(&packets[index], &place));
		/* Where a datagram is made contiguous in its first buffer, that buffer has the room. */
		packets[index].pool = linearize && place == 0 ? HEAD : ARRIVED;
		plan[packets[index].pool].count += options.ring;
		if (packets[index].pool == ARRIVED)
			arriving = at_least(arriving, packets[index].len);
	}
	plan[ARRIVED].room = RTE_MIN(RTE_PKTMBUF_HEADROOM + at_least(arriving + job.link_len, 2048), UINT16_MAX);
	plan[HEAD].room = RTE_PKTMBUF_HEADROOM + job.link_len + longest;
	if (linearize && plan[HEAD].room > UINT16_MAX)
		return "a buffer of DPDK's holds at most 65535 bytes, room before the packet counted";
	if (!header_only && !linearize)
		plan[PLAIN] = (struct pool_plan){ .count = 1, .room = longest };
	plan_tables = (size_t)bucket_count() * WAYS * CHOICES * (128 + 24 * (RTE_LIBRTE_IP_FRAG_MAX_FRAG + 1));

	if (header_only) {
		job.section = header;
		job.delivers = "a chain of buffers, given back when complete; payload untouched";
	} else if (linearize) {
		job.section = checksummed ? linear_checksummed : linear;
		job.delivers = checksummed
			? "contiguous bytes in the first fragment's buffer, which has the room; IPv4 header checksums and "
			  "the transport checksum verified"
			: "contiguous bytes in the first fragment's buffer, which has the room; IPv4 header checksums verified";
	} else {
		job.section = checksummed ? copied_checksummed : copied;
		job.delivers = checksummed
			? "a contiguous copy; IPv4 header checksums and the transport checksum verified"
			: "a contiguous copy; IPv4 header checksums verified";
	}
	return NULL;
}
