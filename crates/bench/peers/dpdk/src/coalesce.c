/* Segments of flows in, long packets out: lib/gro, burst by burst or with a table held over the section. */

#include "harness.h"

#include <string.h>

#include <rte_gro.h>

/* Most packets of one burst in the lightweight mode (RTE_GRO_MAX_BURST_ITEM_NUM). */
#define BURST_MAX 128
#define FLUSH_MAX 4096

/* The buffers' own lines are no longer in the nearest caches when their turn comes. */
static bool cold;
static void *table;
static struct rte_gro_param light;
/* Packets after which the table is emptied: a full packet of every flow. DPDK keeps full packets, and searches them. */
static uint32_t held_max = UINT32_MAX;

/* What the protocol parses beyond IP, for TCP over IPv4. */
static inline bool parse_tcp(struct rte_mbuf *packet)
{
	const uint8_t *ip;

	if (unlikely(!parse_ip(packet, RTE_ETHER_HDR_LEN)))
		return false;
	ip = rte_pktmbuf_mtod_offset(packet, const uint8_t *, RTE_ETHER_HDR_LEN);
	if (likely(RTE_ETH_IS_IPV4_HDR(packet->packet_type) && ip[9] == IPPROTO_TCP
			&& packet->data_len >= RTE_ETHER_HDR_LEN + packet->l3_len + sizeof(struct rte_tcp_hdr))) {
		packet->packet_type |= RTE_PTYPE_L4_TCP;
		packet->l4_len = ip[packet->l3_len + 12] >> 4 << 2;
	}
	return true;
}

static __rte_always_inline void deliver(struct rte_mbuf *packet, bool contiguous)
{
	void *copy = NULL;
	uint32_t len;

	completed++;
	if (packet->nb_segs > 1) {
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(packet, struct rte_ipv4_hdr *, packet->l2_len);
		struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)((uint8_t *)ip + packet->l3_len);

		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
		tcp->cksum = rte_ipv4_phdr_cksum(ip, 0);
		if (contiguous)
			copy = copy_out(packet, &len);
	}
	if (unlikely(sink != NULL)) {
		if (copy != NULL)
			sink_bytes(copy, len);
		else
			sink_mbuf(packet, packet->l2_len);
	}
	rte_pktmbuf_free(packet);
	if (copy != NULL)
		rte_mempool_put(pools[PLAIN], copy);
}

/* Empties the table, if there is one. */
static __rte_always_inline void flush(bool contiguous)
{
	struct rte_mbuf *flushed[FLUSH_MAX];
	uint32_t index, count;

	if (table == NULL)
		return;
	do {
		count = rte_gro_timeout_flush(table, 0, RTE_GRO_TCP_IPV4, flushed, FLUSH_MAX);
		for (index = 0; index < count; index++)
			deliver(flushed[index], contiguous);
	} while (count > 0);
}

/* The headers of this burst, and the buffers' own lines of the next. */
static void prefetch(struct rte_mbuf **burst, uint32_t count, uint32_t next)
{
	uint32_t index;

	for (index = 0; index < count; index++) {
		rte_prefetch0(rte_pktmbuf_mtod(burst[index], void *));
		/* Up to TCP's options. */
		rte_prefetch0(rte_pktmbuf_mtod_offset(burst[index], void *, RTE_CACHE_LINE_SIZE));
	}
	for (index = count; index < count + next; index++) {
		rte_prefetch0(burst[index]);
		rte_prefetch0(&burst[index]->next);
	}
}

static __rte_always_inline void section(struct rte_mbuf **arrived, bool contiguous, bool checksummed)
{
	uint32_t start, index, count, held = 0, taken;

	for (start = 0; start < packet_count; start += taken) {
		struct rte_mbuf **burst = arrived + start;

		count = RTE_MIN(RTE_MIN(options.burst, packet_count - start), held_max - held);
		taken = count;
		if (cold)
			prefetch(burst, count, RTE_MIN(options.burst, packet_count - start - count));
		if (contiguous) {
			uint32_t kept = 0;

			for (index = 0; index < count; index++) {
				struct rte_mbuf *packet = burst[index];

				if (unlikely(!parse_tcp(packet) || (checksummed && !transport_is_right(
						rte_pktmbuf_mtod_offset(packet, void *, RTE_ETHER_HDR_LEN)))))
					rte_pktmbuf_free(packet);
				else
					burst[kept++] = packet;
			}
			count = kept;
		}
		if (table != NULL)
			count = rte_gro_reassemble(burst, count, table);
		else
			count = rte_gro_reassemble_burst(burst, count, &light);
		for (index = 0; index < count; index++)
			deliver(burst[index], contiguous);
		held += taken;
		if (held == held_max || start + taken == packet_count) {
			flush(contiguous);
			held = 0;
		}
	}
}

static void header(struct rte_mbuf **arrived)
{
	section(arrived, false, false);
}

static void contiguous(struct rte_mbuf **arrived)
{
	section(arrived, true, false);
}

static void checksummed(struct rte_mbuf **arrived)
{
	section(arrived, true, true);
}

/* Segments like the section's first that one packet holds. */
static uint32_t full_count(void)
{
	const struct packet *first = &packets[0];
	uint32_t header_len = 20;

	if (packet_count == 0 || first->len < 40 || first->bytes[9] != IPPROTO_TCP)
		return 1;
	header_len += first->bytes[32] >> 4 << 2;
	return first->len <= header_len ? 1 : at_least((UINT16_MAX - header_len) / (first->len - header_len), 1);
}

static const char *start(void)
{
	cold = (uint64_t)options.ring * packet_count > COLD_COUNT;
	light = (struct rte_gro_param){ .gro_types = RTE_GRO_TCP_IPV4, .max_flow_num = options.burst,
		.max_item_per_flow = options.burst, .socket_id = rte_socket_id() };
	if (strcmp(options.hold, "section") == 0) {
		struct rte_gro_param heavy = light;

		/* As many items as packets, so that none is turned away. */
		held_max = options.flows * full_count();
		heavy.max_flow_num = options.flows;
		heavy.max_item_per_flow = packet_count / options.flows + 1;
		table = rte_gro_ctx_create(&heavy);
		if (table == NULL)
			return "no memory for the table";
	}
	return NULL;
}

const char *coalesce_plan(void)
{
	uint32_t index, longest = 0;

	if (strcmp(options.hold, "section") != 0 && options.burst > BURST_MAX)
		return "the lightweight mode takes bursts of at most 128";
	if (options.len_max < UINT16_MAX)
		return "packets grow to 65535 bytes whatever is asked";
	for (index = 0; index < packet_count; index++) {
		longest = at_least(longest, packets[index].len);
		if (packets[index].bytes[0] >> 4 != 4)
			return "DPDK 22.11 coalesces TCP over IPv4 alone";
	}
	job.link_len = RTE_ETHER_HDR_LEN;
	job.consumes = true;
	job.start = start;
	job.parsed = strcmp(options.work, "header") == 0;
	plan[ARRIVED] = (struct pool_plan){ .count = options.ring * packet_count,
		.room = RTE_MIN(RTE_PKTMBUF_HEADROOM + at_least(longest + job.link_len, 2048), (uint32_t)UINT16_MAX) };
	if (!job.parsed)
		plan[PLAIN] = (struct pool_plan){ .count = 1, .room = 1 << 16 };
	plan_tables = 64ul * (packet_count + 2 * options.flows) + (1 << 20);
	if (job.parsed) {
		job.section = header;
		job.delivers = "chains of buffers; IPv4 header checksums written, the TCP checksum of what was joined left to "
			"the port (pseudo header's sum written)";
	} else if (strcmp(options.work, "contiguous") == 0) {
		job.section = contiguous;
		job.delivers = "contiguous copies of what was joined; IPv4 header checksums verified and written, the TCP "
			"checksum of what was joined left to the port (pseudo header's sum written)";
	} else {
		job.section = checksummed;
		job.delivers = "contiguous copies of what was joined; IPv4 header and TCP checksums verified, IPv4 header "
			"checksums written, the TCP checksum of what was joined left to the port (pseudo header's sum written)";
	}
	return NULL;
}
