/* A plan in, DPDK's memory out: pages of 2 MiB where the system has them or lends them. */

#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#define HUGE_FOLDER "/sys/kernel/mm/hugepages/hugepages-2048kB"
#define HUGE_LEN (2ul << 20)
/* Most that a pool keeps at hand for one processor (RTE_MEMPOOL_CACHE_MAX_SIZE). */
#define CACHE_MAX 512

static const char *pages = "pages of 4 KiB";
/* Starters of this machine lend huge pages one after the other: held from raising the limit until it is as before. */
static int lock = -1;
static long overcommit_before = -1;

static long read_number(const char *name)
{
	char path[128], text[32];
	int file, len;

	snprintf(path, sizeof(path), HUGE_FOLDER "/%s", name);
	file = open(path, O_RDONLY);
	if (file < 0)
		return -1;
	len = read(file, text, sizeof(text) - 1);
	close(file);
	if (len <= 0)
		return -1;
	text[len] = 0;
	return atol(text);
}

static bool write_number(const char *name, long number)
{
	char path[128], text[32];
	int file, len;
	bool written;

	snprintf(path, sizeof(path), HUGE_FOLDER "/%s", name);
	file = open(path, O_WRONLY);
	if (file < 0)
		return false;
	len = snprintf(text, sizeof(text), "%ld", number);
	written = write(file, text, len) == len;
	close(file);
	return written;
}

/* Pages beyond the system's own are lent for as long as they are mapped, so the limit is raised only for the start. */
static bool huge_pages_are_there(size_t need)
{
	long count = (need + HUGE_LEN - 1) / HUGE_LEN;
	void *probe;

	lock = open(HUGE_FOLDER, O_RDONLY | O_DIRECTORY);
	if (lock < 0 || flock(lock, LOCK_EX) != 0)
		return false;
	if (read_number("free_hugepages") - read_number("resv_hugepages") < count) {
		long before = read_number("nr_overcommit_hugepages");

		if (before >= 0 && write_number("nr_overcommit_hugepages", before + read_number("surplus_hugepages") + count))
			overcommit_before = before;
	}
	probe = mmap(NULL, count * HUGE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (probe == MAP_FAILED)
		return false;
	munmap(probe, count * HUGE_LEN);
	return true;
}

void memory_settled(void)
{
	if (overcommit_before >= 0)
		write_number("nr_overcommit_hugepages", overcommit_before);
	overcommit_before = -1;
	if (lock >= 0)
		close(lock);
	lock = -1;
}

const char *memory_pages(void)
{
	return pages;
}

static size_t buffer_len(uint32_t pool)
{
	size_t head = pool == PLAIN ? 0 : sizeof(struct rte_mbuf);

	/* A mempool's own header, and a line or two so that buffers start in different channels of the memory. */
	return RTE_ALIGN_CEIL(head + plan[pool].room, 64) + 192;
}

/* What rte_pktmbuf_pool_create does, but with the ring for one thread, and buffers tight whatever the pages. */
static struct rte_mempool *pool_create(uint32_t index)
{
	static const char *names[POOL_COUNT] = { "arrived", "head", "direct", "indirect", "plain" };
	uint32_t count = plan[index].count;
	uint32_t cache = count * 2 / 3 < CACHE_MAX ? 0 : CACHE_MAX;
	bool mbufs = index != PLAIN;
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = plan[index].room };
	struct rte_mempool *pool;

	pool = rte_mempool_create_empty(names[index], count, plan[index].room + (mbufs ? sizeof(struct rte_mbuf) : 0),
		cache, mbufs ? sizeof(private) : 0, rte_socket_id(), RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (pool == NULL || rte_mempool_set_ops_byname(pool, "ring_sp_sc", NULL) != 0)
		return NULL;
	if (mbufs)
		rte_pktmbuf_pool_init(pool, &private);
	if (rte_mempool_populate_default(pool) < 0)
		return NULL;
	if (mbufs)
		rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/* DPDK makes a folder that nothing is put into here; whoever puts something into it keeps it. */
static void remove_runtime_folder(void)
{
	char path[PATH_MAX], *last;

	snprintf(path, sizeof(path), "%s", rte_eal_get_runtime_dir());
	if (rmdir(path) == 0 && (last = strrchr(path, '/')) != NULL) {
		*last = 0;
		rmdir(path);
	}
}

const char *memory_start(void)
{
	size_t need = plan_tables + (32ul << 20);
	bool huge = false;
	char core[32], megabytes[32];
	char *huge_arguments[] = { "dpdk", "--in-memory", "--single-file-segments", "--no-pci", "--no-telemetry",
		"--iova-mode=va", "--log-level=error", "--lcores", core };
	char *small_arguments[] = { "dpdk", "--no-shconf", "--no-huge", "-m", megabytes, "--no-pci", "--no-telemetry",
		"--iova-mode=va", "--log-level=error", "--lcores", core };
	uint32_t pool;

	for (pool = 0; pool < POOL_COUNT; pool++) {
		/* Small pools are all at hand, without a round through their ring. */
		if (plan[pool].count > 0)
			plan[pool].count = at_least(plan[pool].count, CACHE_MAX * 3 / 2 + 1);
		need += plan[pool].count * (buffer_len(pool) + 2 * sizeof(void *)) + (plan[pool].count > 0 ? 1 << 20 : 0);
	}
	snprintf(core, sizeof(core), "0@%d", sched_getcpu());
	snprintf(megabytes, sizeof(megabytes), "%zu", need / (1 << 20) + need / (20 << 20) + 16);
	if (options.huge) {
		huge = huge_pages_are_there(need);
		pages = huge ? "pages of 2 MiB" : "pages of 4 KiB, because the system lends none of 2 MiB";
	}
	if (!huge)
		memory_settled();
	if (rte_eal_init(huge ? RTE_DIM(huge_arguments) : RTE_DIM(small_arguments),
			huge ? huge_arguments : small_arguments) < 0)
		return rte_strerror(rte_errno);
	remove_runtime_folder();
	for (pool = 0; pool < POOL_COUNT; pool++) {
		if (plan[pool].count == 0)
			continue;
		pools[pool] = pool_create(pool);
		if (pools[pool] == NULL)
			return "no memory for the packets";
	}
	return NULL;
}
