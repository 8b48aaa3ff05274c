/* Commands in, prices out: the protocol that every harness speaks (../README.md of the folder above). */

#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_version.h>

struct options options = { .ring = 1, .burst = 64, .flows = 1, .datagrams = 1, .pieces = 1, .mtu = 1500,
	.segment = 1448, .len_max = 65535, .hold = "burst", .result = "", .table = "" };
struct job job;
struct packet *packets;
uint32_t packet_count;
struct pool_plan plan[POOL_COUNT];
size_t plan_tables;
struct rte_mempool *pools[POOL_COUNT];
uint32_t completed;
FILE *sink;

/* Standard output, for the protocol alone: what DPDK prints goes to standard error. */
static FILE *answers;
static struct rte_mbuf **ring;
/* The copy whose turn it is. */
static uint32_t turn;
static uint32_t sink_count;

static void cannot(const char *why)
{
	fprintf(answers, "cannot\t%s\n", why);
	fflush(answers);
	exit(0);
}

/* One section, once it lies in its buffers, until all results are delivered and all buffers given back. */
__attribute__((noinline, visibility("default"))) void timed_section(struct rte_mbuf **section)
{
	job.section(section);
}

static void fill_packet(struct rte_mbuf *buffer, const struct packet *packet)
{
	uint16_t room = buffer->buf_len - packet->len - job.link_len;
	uint8_t *at;

	if (buffer->data_off > room)
		buffer->data_off = room;
	at = rte_pktmbuf_mtod(buffer, uint8_t *);
	if (job.link_len > 0) {
		static const uint8_t hosts[12] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2 };

		memcpy(at, hosts, sizeof(hosts));
		at[12] = packet->bytes[0] >> 4 == 4 ? 0x08 : 0x86;
		at[13] = packet->bytes[0] >> 4 == 4 ? 0x00 : 0xdd;
	}
	memcpy(at + job.link_len, packet->bytes, packet->len);
	buffer->data_len = packet->len + job.link_len;
	buffer->pkt_len = buffer->data_len;
	if (job.parsed && parse_ip(buffer, job.link_len)) {
		const uint8_t *ip = at + job.link_len;

		if (ip[0] >> 4 == 4 && ip[9] == IPPROTO_TCP) {
			buffer->packet_type |= RTE_PTYPE_L4_TCP;
			buffer->l4_len = ip[buffer->l3_len + 12] >> 4 << 2;
		}
	}
}

static void fill_ring(void)
{
	uint32_t copy, index, pool;

	for (pool = 0; pool < POOL_COUNT; pool++) {
		if (pools[pool] != NULL && rte_mempool_avail_count(pools[pool]) != pools[pool]->size) {
			fprintf(stderr, "dpdk: pool %u: %u of %u buffers have come back\n", pool,
				rte_mempool_avail_count(pools[pool]), pools[pool]->size);
			exit(1);
		}
	}
	for (copy = 0; copy < options.ring; copy++) {
		for (index = 0; index < packet_count; index++) {
			struct rte_mbuf *buffer = rte_pktmbuf_alloc(pools[packets[index].pool]);

			if (buffer == NULL) {
				fprintf(stderr, "dpdk: no buffer for packet %u\n", index);
				exit(1);
			}
			fill_packet(buffer, &packets[index]);
			ring[(size_t)copy * packet_count + index] = buffer;
		}
	}
	turn = 0;
}

/* Runs the section whose turn it is; its nanoseconds. */
static uint64_t run_section(void)
{
	struct timespec start, end;

	if (turn == options.ring) {
		if (job.consumes)
			fill_ring();
		turn = 0;
	}
	completed = 0;
	clock_gettime(CLOCK_MONOTONIC, &start);
	timed_section(ring + (size_t)turn * packet_count);
	clock_gettime(CLOCK_MONOTONIC, &end);
	turn++;
	return (end.tv_sec - start.tv_sec) * 1000000000ull + end.tv_nsec - start.tv_nsec;
}

static int by_size(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

static void run(uint64_t ms)
{
	static uint64_t *times;
	static size_t times_limit;
	size_t count = 0;
	uint64_t total = 0;
	double median;
	uint32_t per;

	while (total < ms * 1000000 || count < 3) {
		if (count == times_limit) {
			times_limit = times_limit == 0 ? 1 << 16 : times_limit * 2;
			times = realloc(times, times_limit * sizeof(*times));
			if (times == NULL) {
				fprintf(stderr, "dpdk: no memory for %zu times\n", times_limit);
				exit(1);
			}
		}
		times[count] = run_section();
		total += times[count++];
	}
	qsort(times, count, sizeof(*times), by_size);
	median = count % 2 == 1 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2.0;
	per = job.per_packet_out ? completed : packet_count;
	fprintf(answers, "%.3f\t%u\t%zu\n", median / at_least(per, 1), completed, count);
}

void sink_bytes(const void *bytes, uint32_t len)
{
	uint32_t le = rte_cpu_to_le_32(len);

	fwrite(&le, sizeof(le), 1, sink);
	fwrite(bytes, 1, len, sink);
	sink_count++;
}

void sink_mbuf(const struct rte_mbuf *packet, uint32_t from)
{
	static uint8_t bytes[1 << 17];
	uint32_t len = packet->pkt_len - from;
	const void *at = rte_pktmbuf_read(packet, from, len, bytes);

	if (at == NULL) {
		fprintf(stderr, "dpdk: a result of %u bytes is not there\n", packet->pkt_len);
		exit(1);
	}
	sink_bytes(at, len);
}

static void verify(void)
{
	uint32_t le;

	sink = fopen(options.out, "wb");
	if (sink == NULL) {
		fprintf(stderr, "%s: cannot write: %s\n", options.out, strerror(errno));
		exit(1);
	}
	sink_count = 0;
	fwrite("WLBENCH1\0\0\0", 1, 12, sink);
	run_section();
	le = rte_cpu_to_le_32(sink_count);
	fseek(sink, 8, SEEK_SET);
	fwrite(&le, sizeof(le), 1, sink);
	if (fclose(sink) != 0) {
		fprintf(stderr, "%s: cannot write: %s\n", options.out, strerror(errno));
		exit(1);
	}
	sink = NULL;
	fprintf(answers, "done\t%u\n", completed);
}

static void read_options(int argc, char **argv)
{
	static const struct {
		const char *key;
		const char **text;
		uint32_t *number;
	} keys[] = {
		{ "function", &options.function, NULL }, { "work", &options.work, NULL },
		{ "file", &options.file, NULL }, { "out", &options.out, NULL },
		{ "ring", NULL, &options.ring }, { "sections", NULL, &options.sections },
		{ "datagrams", NULL, &options.datagrams }, { "pieces", NULL, &options.pieces },
		{ "mtu", NULL, &options.mtu }, { "segment", NULL, &options.segment },
		{ "flows", NULL, &options.flows }, { "burst", NULL, &options.burst },
		{ "len_max", NULL, &options.len_max }, { "hold", &options.hold, NULL },
		{ "result", &options.result, NULL }, { "table", &options.table, NULL },
	};
	int arg;
	size_t key;

	for (arg = 1; arg < argc; arg++) {
		char *value = strchr(argv[arg], '=');

		if (value == NULL)
			cannot("arguments are KEY=VALUE");
		*value++ = 0;
		if (strcmp(argv[arg], "pages") == 0)
			options.huge = strcmp(value, "huge") == 0;
		for (key = 0; key < RTE_DIM(keys); key++) {
			if (strcmp(argv[arg], keys[key].key) != 0)
				continue;
			if (keys[key].text != NULL)
				*keys[key].text = value;
			else
				*keys[key].number = strtoul(value, NULL, 10);
		}
	}
	if (options.function == NULL || options.work == NULL || options.file == NULL)
		cannot("function, work and file are missing");
	/* Instructions are the same on pages of any size, and callgrind has no room for DPDK's huge ones. */
	options.huge = options.huge && options.sections == 0;
	options.ring = at_least(options.ring, 1);
	options.burst = at_least(options.burst, 1);
	options.flows = at_least(options.flows, 1);
	options.datagrams = at_least(options.datagrams, 1);
}

static void read_file(void)
{
	FILE *file = fopen(options.file, "rb");
	uint8_t *bytes;
	size_t len, at = 12;
	uint32_t index;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0)
		cannot("the file cannot be read");
	len = ftell(file);
	rewind(file);
	bytes = malloc(len + 1);
	if (bytes == NULL || fread(bytes, 1, len, file) != len || len < 12 || memcmp(bytes, "WLBENCH1", 8) != 0)
		cannot("the file is no file of packets");
	fclose(file);
	memcpy(&packet_count, bytes + 8, 4);
	packets = calloc(at_least(packet_count, 1), sizeof(*packets));
	if (packets == NULL)
		cannot("the file has more packets than memory");
	for (index = 0; index < packet_count; index++) {
		if (len - at < 4)
			cannot("the file is cut off");
		memcpy(&packets[index].len, bytes + at, 4);
		at += 4;
		if (len - at < packets[index].len)
			cannot("the file is cut off");
		if (packets[index].len > UINT16_MAX)
			cannot("a buffer of DPDK's holds at most 65535 bytes");
		packets[index].bytes = bytes + at;
		at += packets[index].len;
	}
}

__attribute__((visibility("default"))) int harness(int argc, char **argv)
{
	static const struct {
		const char *function;
		const char *(*plan)(void);
	} functions[] = {
		{ "reassemble", reassemble_plan }, { "fragment", fragment_plan }, { "coalesce", coalesce_plan },
		{ "segment", segment_plan }, { "checksum", checksum_plan }, { "parse", parse_plan },
	};
	const char *why = "no such function";
	char line[64];
	size_t index;

	answers = fdopen(dup(STDOUT_FILENO), "w");
	if (answers == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	read_options(argc, argv);
	read_file();
	for (index = 0; index < RTE_DIM(functions); index++) {
		if (strcmp(options.function, functions[index].function) == 0)
			why = functions[index].plan();
	}
	if (why != NULL)
		cannot(why);
	why = memory_start();
	if (why == NULL && job.start != NULL)
		why = job.start();
	memory_settled();
	if (why != NULL)
		cannot(why);
	ring = malloc((size_t)options.ring * at_least(packet_count, 1) * sizeof(*ring));
	if (ring == NULL)
		cannot("no memory for the ring");
	fill_ring();
	why = job.filled == NULL ? NULL : job.filled(ring, (size_t)options.ring * packet_count);
	if (why != NULL)
		cannot(why);
	fprintf(answers, "ready\t%s, %s\t%s; %s\n", rte_version(), BUILD, job.delivers, memory_pages());
	fflush(answers);

	if (options.sections > 0) {
		for (index = 0; index < options.sections; index++)
			run_section();
	} else {
		while (fgets(line, sizeof(line), stdin) != NULL) {
			if (strncmp(line, "run ", 4) == 0)
				run(strtoull(line + 4, NULL, 10));
			else if (strcmp(line, "verify\n") == 0 && options.out != NULL)
				verify();
			else if (strcmp(line, "quit\n") == 0)
				break;
			else
				fprintf(answers, "cannot\tno such command, or no out=\n");
			fflush(answers);
		}
	}
	rte_eal_cleanup();
	return 0;
}
