/* Packets of offloaded flows -> the interface that they leave by, in segments that their receivers take.
 *
 * Three programs: one at a socket decides, and notes on the packet what to do; one at the interface's ingress sends
 * it on; one at the egress of the interface that it leaves by gives it its segments. `mod.rs` says why, and writes
 * the leases.
 *
 * The object beside this file is what is loaded. After a change, with clang 14 of Debian 12:
 * clang-14 -target bpfel -mcpu=v3 -O2 -I/usr/include/$(uname -m)-linux-gnu \
 *     -c flow_offload.bpf.c -o flow_offload.bpf.o */
#include "kernel.h"

/* A flow is one direction of a TCP connection: two addresses, those of IPv4 in the first word; both ports, and the
 * version. */
#define FLOW_WORDS 5

/* `until`: when it ends, 0 while nothing stands here. `last`: the number of the last packet that was left to the
 * worker. `singles`: how many came singly in a row. `grows`: may segments become longer? `acked`: the next byte
 * that is expected. */
struct lease {
    __u64 until, last;
    __u32 len_max;
    __u8 singles, used, grows, has_ack;
    __u64 flow[FLOW_WORDS];
    __u32 acked;
} __attribute__((aligned(128)));

/* What workers share with the programs, as `layout.rs` has it. Workers without rights write all of it. `left`:
 * packets that were left to the worker; `done`: how many when it last had let go of all; `last_of_some`: the last
 * of whose flow nothing is known. */
struct table {
    __u64 left, received, done, to, frames, packets_in, packets_out, bytes, lost, last_of_some;
    struct lease leases[1024];
};
#define IS_AT(structure, field, at) _Static_assert(__builtin_offsetof(struct structure, field) == at, "layout.rs")
_Static_assert(sizeof(struct lease) == 128, "layout.rs");
IS_AT(lease, until, 0);
IS_AT(lease, last, 8);
IS_AT(lease, len_max, 16);
IS_AT(lease, singles, 20);
IS_AT(lease, used, 21);
IS_AT(lease, grows, 22);
IS_AT(lease, has_ack, 23);
IS_AT(lease, flow, 24);
IS_AT(lease, acked, 64);
IS_AT(table, left, 0);
IS_AT(table, received, 8);
IS_AT(table, done, 16);
IS_AT(table, to, 24);
IS_AT(table, frames, 32);
IS_AT(table, packets_in, 40);
IS_AT(table, packets_out, 48);
IS_AT(table, bytes, 56);
IS_AT(table, lost, 64);
IS_AT(table, leases, 128);

struct ipv4 {
    __u8 version_and_len, service;
    __be16 len, id, fragment;
    __u8 ttl, protocol;
    __sum16 sum;
    __be32 addresses[2];
};

struct ipv6 {
    __be32 version_and_label;
    __be16 len;
    __u8 next, hop_limit;
    __u64 addresses[4];
};

struct tcp {
    __u32 ports;
    __be32 seq, ack;
    __u8 len, flags;
    __be16 window;
    __sum16 sum;
    __be16 urgent;
};

/* What is known of a packet that comes to the socket. */
struct packet {
    __u64 flow[FLOW_WORDS];
    /* Its flow's, and when that ends. */
    struct lease *lease;
    __u64 until;
    /* Of all headers, of what is behind them, and of the frame as its IP header says it, in bytes. */
    __u32 headers_len, payload_len, frame_len;
    /* Of the segments that it leaves in; 0 where it stays one. */
    __u32 segment_len;
};

/* The note on a packet, in `cb`: `NOTED`, the length of its segments, the interface that it leaves by, and the
 * length of its headers where it is to be cut. */
enum { MARK, SEGMENT_LEN, TO, HEADERS_LEN };
#define NOTED 0x77696465

enum {
    ETHERNET_LEN = 14,
    TYPE_AT = 12,
    /* Longest payload that is cut, in bytes, and in how many pieces. */
    CUT_MAX = 9216,
    PIECE_COUNT = 8,
    /* Workers that are watched, at most. */
    WORKERS_MAX = 32,
    /* How much segments may become longer or shorter, in bytes. Programs outlive a restart: not more than those of
     * older versions can. */
    CHANGE_MAX = 16000,
    /* Packets that may come singly, one after the other, before their flow is the worker's again. */
    SINGLES_MAX = 8,
    /* When what has no lease any more, or not yet, ended. */
    ENDED = 1,
    TCP = 6,
    FIN = 0x01, SYN = 0x02, RST = 0x04, PSH = 0x08, URG = 0x20, CWR = 0x80,
    /* AE, beside the length of the TCP header (RFC 9768 section 3.1). */
    AE = 0x01,
    /* More fragments, and the offset (RFC 791 section 3.1). */
    FRAGMENT_BITS = 0x3FFF,
    IPV4 = 0x0800,
    IPV6 = 0x86DD,
    CUSTOMER_TAG = 0x8100,
    SERVICE_TAG = 0x88A8,
    PPPOE = 0x8864,
    MPLS = 0x8847,
    /* What a frame's protocol says where its tags are folded: see `tags.rs`. */
    FOLDED = 0xF7A0,
    FOLDED_COUNT = 32,
    INNER_IS_SERVICE = 1,
    OUTER_IS_SERVICE = 2,
    ALONE = 4,
    TYPES = 24,
    PPPOE_BEHIND = 8,
    MPLS_BEHIND = 16,
};

/* 2^32 by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4). */
#define SPREAD 0x9E3779B1u

#define NETWORK16(value) __builtin_bswap16(value)
#define NETWORK32(value) __builtin_bswap32(value)
/* Reads once what others write meanwhile. */
#define READ(what) (*(volatile __typeof__(what) *)&(what))
/* Keeps the compiler from what it knows of a value: it computes and compares it here, where the verifier sees
 * it. */
#define OPAQUE(value) asm volatile("" : "+r"(value))

SECTION(".bss.flows") struct table flows;
/* When each worker last said that it works: there is room for all that are not, too. */
SECTION(".bss.beats") __u64 beats[WORKERS_MAX];

/* The service has CAP_BPF and no CAP_PERFMON. From it the verifier takes these programs only if they are safe where
 * a processor guesses, too: it follows both ways of a condition whose outcome it knows. So loops are unrolled, all
 * that lies on the stack is written first, the number by which a pointer moves is a constant on every path or on
 * none, and there are few conditions where a packet is cut. */

/* Settled when a program is loaded, and frozen: the only interface that packets leave by, how many workers are
 * watched, after how many nanoseconds one that writes no beat is taken for one that hangs, and the headroom that is
 * made at once, and how often. */
#define SETTING SECTION(".rodata") const volatile __u32
SETTING target = 0;
SETTING worker_count = 0;
SETTING patience = 0;
SETTING room = 0;
SETTING changes = 0;

/* The payload of a packet that is cut, aside meanwhile. The verifier wants room for two. */
SECTION("maps") struct bpf_map_def wl_flow_room = {
    .type = BPF_MAP_TYPE_PERCPU_ARRAY, .key_size = 4, .value_size = 2 * CUT_MAX, .max_entries = 1,
};

/* The worker's: of no flow that has a lease; of some flow that it does not say; of this flow; of this flow, whose
 * lease it ends. Or it goes on without the worker, or nobody gets it. */
enum whose { OTHER, OF_SOME, OURS, CLOSES, GOES, NOBODYS };

/* Finds a packet's lease, and its TCP header. */
INLINE enum whose find(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    /* A group of sockets may see what goes out, too. */
    if (skb->pkt_type == OUTGOING)
        return NOBODYS;
    if (skb->vlan_present)
        return OTHER;
    __u64 version, *flow = packet->flow;
    if (skb->protocol == NETWORK16(IPV4)) {
        /* So that both addresses can be read as one. */
        struct { __u32 unused; struct ipv4 ip; } __attribute__((aligned(8))) header;
        struct ipv4 *ip = &header.ip;
        if (bpf_skb_load_bytes(skb, ETHERNET_LEN, ip, sizeof(*ip)) || ip->protocol != TCP)
            return OTHER;
        if (ip->version_and_len != 0x45 || ip->fragment & NETWORK16(FRAGMENT_BITS))
            return OF_SOME;
        __builtin_memcpy(flow, ip->addresses, sizeof(ip->addresses));
        flow[1] = flow[2] = flow[3] = 0;
        version = 4;
        packet->headers_len = ETHERNET_LEN + sizeof(*ip);
        packet->frame_len = ETHERNET_LEN + NETWORK16(ip->len);
    } else if (skb->protocol == NETWORK16(IPV6)) {
        struct ipv6 ip;
        if (bpf_skb_load_bytes(skb, ETHERNET_LEN, &ip, sizeof(ip)))
            return OTHER;
        switch (ip.next) {
        case TCP:
            break;
        /* What stands behind hop-by-hop options, routing, fragment, authentication and destination options (RFC
         * 8200 section 4) may be a flow's. */
        case 0: case 43: case 44: case 51: case 60:
            return OF_SOME;
        default:
            return OTHER;
        }
        __builtin_memcpy(flow, ip.addresses, sizeof(ip.addresses));
        version = 6;
        packet->headers_len = ETHERNET_LEN + sizeof(ip);
        packet->frame_len = ETHERNET_LEN + sizeof(ip) + NETWORK16(ip.len);
    } else {
        return OTHER;
    }
    if (bpf_skb_load_bytes(skb, packet->headers_len, tcp, sizeof(*tcp)))
        return OTHER;
    flow[4] = version << 32 | tcp->ports;
    __u64 mixed = flow[0] ^ flow[1] ^ flow[2] ^ flow[3] ^ flow[4];
    __u32 place = (__u32)(mixed ^ mixed >> 32) * SPREAD >> 22;
    struct lease *lease = &flows.leases[place];
    /* Else it is computed anew wherever it is used. */
    OPAQUE(lease);
    /* What was written before the lease was given is read behind this. */
    __u64 zero = 0;
    OPAQUE(zero);
    packet->until = __sync_fetch_and_add(&lease->until, zero);
    if (!packet->until)
        return OTHER;
    for (int word = 0; word < FLOW_WORDS; word++)
        if (READ(lease->flow[word]) != flow[word])
            return OTHER;
    packet->lease = lease;
    return GOES;
}

/* May it go on at all? Not where the lease has run out, where a packet before this one is still with the worker, or
 * by an interface other than `target`, which a worker without rights cannot change. */
INLINE enum whose may_go(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    if (tcp->flags & (FIN | SYN | RST | URG))
        return CLOSES;
    if (bpf_ktime_get_ns() > packet->until)
        return OURS;
    __u64 to = READ(flows.to);
    if (!to || to != target)
        return OURS;
    skb->cb[TO] = to;
    __u64 done = READ(flows.done);
    if (READ(packet->lease->last) > done || READ(flows.last_of_some) > done)
        return OURS;
    __u32 tcp_len = tcp->len >> 4 << 2;
    if (tcp_len < sizeof(struct tcp))
        return OURS;
    packet->headers_len += tcp_len;
    __u32 len = skb->len;
    if (!skb->gso_size) {
        /* What its link padded is longer than the packet. */
        if (packet->frame_len > len)
            return OURS;
        len = packet->frame_len;
    }
    if (packet->headers_len > len)
        return OURS;
    packet->payload_len = len - packet->headers_len;
    return GOES;
}

/* Adds what is above 16 bits of a sum to the rest: twice does for a sum of 65,536 numbers of 16 bits, thrice for
 * one of as many of 32. */
INLINE __u64 fold(__u64 sum)
{
    return (sum & 0xFFFF) + (sum >> 16);
}

/* A packet that is too long is cut where it is short enough to be kept aside meanwhile, and its sum is half-filled:
 * who puts pieces of it on a wire finishes theirs. One with AE or CWR is the worker's, which knows whether all
 * pieces repeat them (RFC 9768 section 3.2.2) or the first alone has CWR (RFC 3168 section 6.1.2). Its
 * pseudo-header's sum is compared (RFC 9293 section 3.1). */
INLINE enum whose may_cut(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    __u32 len = packet->payload_len;
    if (len > CUT_MAX || tcp->len & AE || tcp->flags & CWR)
        return OURS;
    if (len > packet->segment_len * PIECE_COUNT || packet->frame_len != skb->len)
        return OURS;
    __u64 sum = NETWORK16(TCP);
    for (int word = 0; word < FLOW_WORDS - 1; word++)
        sum += (__u32)packet->flow[word] + (packet->flow[word] >> 32);
    __u32 ip_len = packet->flow[4] >> 32 == 4 ? sizeof(struct ipv4) : sizeof(struct ipv6);
    sum += NETWORK16((__u16)(packet->frame_len - ETHERNET_LEN - ip_len));
    if (fold(fold(fold(sum))) != tcp->sum)
        return OURS;
    skb->cb[HEADERS_LEN] = packet->headers_len;
    return GOES;
}

/* How long its segments are to be. */
INLINE enum whose resize(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    struct lease *lease = packet->lease;
    __u32 len = packet->payload_len, segment_len = skb->gso_size;
    /* What its receiver takes, without headers. */
    __s64 limit = (__s64)lease->len_max + ETHERNET_LEN - packet->headers_len;
    if (limit <= 0)
        return OURS;
    if (!segment_len) {
        if (len > limit) {
            packet->segment_len = limit;
            return may_cut(skb, packet, tcp);
        }
        /* A few that come singly are nothing; more of them are to be joined. */
        packet->segment_len = 0;
        return len && ++lease->singles > SINGLES_MAX ? CLOSES : GOES;
    }
    lease->singles = 0;
    if (len < 2)
        return OURS;
    if (!lease->grows) {
        if (limit > segment_len)
            limit = segment_len;
    } else if (len <= limit) {
        /* A GSO packet is at least two. */
        limit = (len + 1) / 2;
    }
    packet->segment_len = limit;
    return segment_len + CHANGE_MAX - packet->segment_len > 2 * CHANGE_MAX ? OURS : GOES;
}

/* Counts a packet that goes on, and notes on it what to do. */
INLINE void pass(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    struct lease *lease = packet->lease;
    __u32 len = packet->payload_len, segment_len = packet->segment_len, acked = NETWORK32(tcp->ack);
    lease->used = 1;
    /* Unless one before it acknowledged more: sequence numbers come round. */
    if (!lease->has_ack || (__s32)(acked - lease->acked) >= 0) {
        lease->acked = acked;
        lease->has_ack = 1;
    }
    skb->cb[SEGMENT_LEN] = segment_len;
    skb->cb[MARK] = NOTED;
    __sync_fetch_and_add(&flows.frames, 1);
    __sync_fetch_and_add(&flows.packets_in, skb->gso_segs ?: 1);
    __sync_fetch_and_add(&flows.packets_out, segment_len ? (len + segment_len - 1) / segment_len : 1);
    __sync_fetch_and_add(&flows.bytes, len);
}

/* Is a worker's beat missing? */
INLINE int is_silent(void)
{
    if (!worker_count)
        return 0;
    __u64 now = bpf_ktime_get_ns();
#pragma unroll
    for (__u32 worker = 0; worker < WORKERS_MAX; worker++) {
        if (worker >= worker_count)
            break;
        if ((__s64)(now - READ(beats[worker])) > patience)
            return 1;
    }
    return 0;
}

/* How much of a packet the socket gets: all, or nothing. What is left to the worker has a number. */
SECTION("socket") int wl_flow_socket(struct __sk_buff *skb)
{
    struct packet packet;
    struct tcp tcp;
    skb->cb[MARK] = 0;
    enum whose whose = find(skb, &packet, &tcp);
    if (whose == GOES)
        whose = may_go(skb, &packet, &tcp);
    if (whose == GOES)
        whose = resize(skb, &packet, &tcp);
    if (whose == GOES) {
        pass(skb, &packet, &tcp);
        return 0;
    }
    if (whose == NOBODYS || is_silent())
        return 0;
    __u64 number = __sync_fetch_and_add(&flows.left, 1) + 1;
    if (whose == OF_SOME)
        READ(flows.last_of_some) = number;
    if (whose == OURS || whose == CLOSES)
        READ(packet.lease->last) = number;
    /* Where another flow has got its place meanwhile, that one ends. */
    if (whose == CLOSES)
        __sync_lock_test_and_set(&packet.lease->until, ENDED);
    return -1;
}

/* Drops a packet, and counts it. */
INLINE int lose(void)
{
    __sync_fetch_and_add(&flows.lost, 1);
    return DROP;
}

/* Writes a field of a header: by how much a sum over it is more (RFC 1624, R029). */
INLINE __u64 write(__be16 *field, __u16 value)
{
    __u64 more = (__u16)~*field;
    *field = NETWORK16(value);
    return more + *field;
}

/* All bits, or none; without a condition. */
INLINE __s64 below_zero(__s64 value)
{
    __s64 bits = value >> 63;
    OPAQUE(bits);
    return bits;
}

/* Read anew each time, so that the verifier does not know it and follow each version to the end. */
INLINE int is_ipv4(struct __sk_buff *skb)
{
    return READ(skb->protocol) == NETWORK16(IPV4);
}

/* Cuts a packet, and sends its pieces: the last one as the packet, others as its copies. */
INLINE int cut(struct __sk_buff *skb, __u32 piece_max, __u32 headers_len)
{
    /* TCP's header stands at one place, behind either header of IP. */
    struct {
        union {
            struct ipv6 v6;
            struct { __u8 unused[sizeof(struct ipv6) - sizeof(struct ipv4)]; struct ipv4 v4; };
        };
        struct tcp tcp;
    } said = {};
    enum { V4_LEN = sizeof(struct ipv4) + sizeof(struct tcp), V6_LEN = sizeof(struct ipv6) + sizeof(struct tcp) };
    __u32 key = 0;
    __u64 payload_len = skb->len - headers_len, sent = 0;
    __u8 *aside = bpf_map_lookup_elem(&wl_flow_room, &key);
    if (!aside || !payload_len || payload_len > CUT_MAX)
        return lose();
    if (bpf_skb_load_bytes(skb, headers_len, aside, payload_len))
        return lose();
    if (is_ipv4(skb) ? bpf_skb_load_bytes(skb, ETHERNET_LEN, &said.v4, V4_LEN)
                     : bpf_skb_load_bytes(skb, ETHERNET_LEN, &said.v6, V6_LEN))
        return lose();
    __u32 seq = NETWORK32(said.tcp.seq);
    __u8 flags = said.tcp.flags;
#pragma unroll
    for (int number = 0; number < PIECE_COUNT; number++) {
        __s64 rest = payload_len - sent - piece_max;
        __u64 len = piece_max + (rest & below_zero(rest));
        if (bpf_skb_change_tail(skb, headers_len + len, 0))
            return lose();
        if (number) {
            OPAQUE(len);
            if (sent > CUT_MAX || !len || len > CUT_MAX)
                return lose();
            if (bpf_skb_store_bytes(skb, headers_len, aside + sent, len, 0))
                return lose();
        }
        __u32 packet_len = headers_len + len - ETHERNET_LEN;
        said.tcp.seq = NETWORK32(seq + sent);
        /* Only the last says that what came so far is to be pushed. One with CWR does not come here. */
        said.tcp.flags = flags & ~(PSH & below_zero(-rest));
        /* TCP's sum is that of its pseudo-header. */
        if (is_ipv4(skb)) {
            __u64 more = write(&said.v4.len, packet_len), sum = (__u16)~said.v4.sum + more;
            /* Which of its flow it is. */
            if (number)
                sum += write(&said.v4.id, NETWORK16(said.v4.id) + 1);
            said.v4.sum = ~fold(fold(sum));
            said.tcp.sum = fold(fold(said.tcp.sum + more));
            if (bpf_skb_store_bytes(skb, ETHERNET_LEN, &said.v4, V4_LEN, 0))
                return lose();
        } else {
            __u64 more = write(&said.v6.len, packet_len - sizeof(struct ipv6));
            said.tcp.sum = fold(fold(said.tcp.sum + more));
            if (bpf_skb_store_bytes(skb, ETHERNET_LEN, &said.v6, V6_LEN, 0))
                return lose();
        }
        OPAQUE(sent);
        sent += len;
        if (sent >= payload_len)
            return bpf_redirect(skb->cb[TO], 0);
        bpf_clone_redirect(skb, skb->cb[TO], 0);
    }
    return lose();
}

/* Sends what carries a note where it is to go, with the note.
 *
 * A GSO packet that a socket of this machine sent still counts as that socket's memory, and room that is made in it
 * counts as nobody's: where it is joined to others, it would seem to be more bytes than it takes memory. A copy of
 * it, which shares its payload, is no socket's. */
SECTION("classifier") int wl_flow_ingress(struct __sk_buff *skb)
{
    if (skb->cb[MARK] != NOTED)
        return NEXT;
    if (skb->cb[SEGMENT_LEN] && skb->cb[HEADERS_LEN])
        return cut(skb, skb->cb[SEGMENT_LEN], skb->cb[HEADERS_LEN]);
    if (skb->cb[SEGMENT_LEN] && skb->sk)
        return bpf_clone_redirect(skb, skb->cb[TO], 0) < 0 ? lose() : DROP;
    return bpf_redirect(skb->cb[TO], 0);
}

/* Writes the tags of a frame as they are to be, where its protocol says that they are folded, and keeps the outer
 * one of two apart from the frame, as the kernel does with what it receives: an interface that goes by the length
 * of frames allows for one tag in them. Does that too for GSO packets, whose length nobody compares. */
INLINE int unfold_tags(struct __sk_buff *skb)
{
    struct { __be16 protocol, tci, next; __u8 behind; } tags;
    __u16 protocol = NETWORK16(skb->protocol);
    if (protocol < FOLDED || protocol >= FOLDED + FOLDED_COUNT) {
        if (skb->vlan_present || (protocol != SERVICE_TAG && protocol != CUSTOMER_TAG))
            return NEXT;
        if (bpf_skb_load_bytes(skb, TYPE_AT, &tags, 6))
            return NEXT;
        if (tags.next != NETWORK16(SERVICE_TAG) && tags.next != NETWORK16(CUSTOMER_TAG))
            return NEXT;
        if (bpf_skb_vlan_pop(skb))
            return NEXT;
        return bpf_skb_vlan_push(skb, tags.protocol, NETWORK16(tags.tci)) ? lose() : NEXT;
    }
    if (bpf_skb_load_bytes(skb, TYPE_AT, &tags, 8))
        return lose();
    if (protocol & INNER_IS_SERVICE)
        tags.protocol = NETWORK16(SERVICE_TAG);
    __be16 tci = tags.next;
    if (!(protocol & ALONE)) {
        switch (protocol & TYPES) {
        case PPPOE_BEHIND:
            tags.next = NETWORK16(PPPOE);
            break;
        case MPLS_BEHIND:
            tags.next = NETWORK16(MPLS);
            break;
        default:
            tags.next = tags.behind >> 4 == 4 ? NETWORK16(IPV4) : NETWORK16(IPV6);
        }
    }
    if (bpf_skb_store_bytes(skb, TYPE_AT, &tags, 6, 0))
        return lose();
    if (protocol & ALONE)
        return NEXT;
    __be16 outer = protocol & OUTER_IS_SERVICE ? NETWORK16(SERVICE_TAG) : NETWORK16(CUSTOMER_TAG);
    return bpf_skb_vlan_push(skb, outer, NETWORK16(tci)) ? lose() : NEXT;
}

/* Gives a GSO packet with a note, at the exit of the interface that it leaves by, segments as long as the note
 * says. */
SECTION("classifier") int wl_flow_egress(struct __sk_buff *skb)
{
    if (skb->cb[MARK] != NOTED)
        return unfold_tags(skb);
    skb->cb[MARK] = 0;
    __u32 wanted = skb->cb[SEGMENT_LEN], mtu = 0;
    if (wanted && skb->gso_size) {
        for (__u64 left = changes; left; left--) {
            __s32 more = wanted - skb->gso_size;
            if (!more)
                break;
            /* Room in front makes segments shorter, and what takes it away makes them longer, unless told not
             * to. */
            __u64 making = more < 0 ? 0 : BPF_F_ADJ_ROOM_FIXED_GSO;
            /* On the stack: where that is written, nothing is guessed any more, and the verifier ends the loop. */
            volatile __u64 taking = BPF_F_ADJ_ROOM_NO_CSUM_RESET | (making ^ BPF_F_ADJ_ROOM_FIXED_GSO);
            __u32 by = more < 0 ? -more : more;
            by = by < room ? by : room;
            if (bpf_skb_adjust_room(skb, by, BPF_ADJ_ROOM_MAC, making))
                return lose();
            if (bpf_skb_adjust_room(skb, -by, BPF_ADJ_ROOM_MAC, taking))
                return lose();
        }
        if (skb->gso_size != wanted)
            return lose();
    }
    /* The interface may take less by now than when it was lent. */
    return bpf_check_mtu(skb, 0, &mtu, 0, BPF_MTU_CHK_SEGS) ? lose() : NEXT;
}
