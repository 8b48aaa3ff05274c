/* Packets of offloaded flows -> their egress interface, with the segment size that their receivers accept.
 *
 * There are three programs. One at a socket decides, and writes a note on the packet. One at the interface's
 * ingress sends it on. One at the egress interface sets its segment size. `mod.rs` gives the reasons, and writes
 * the entries of flows.
 *
 * The object beside this file is what is loaded. After a change, with clang 14 of Debian 12:
 * clang-14 -target bpfel -mcpu=v3 -O2 -I/usr/include/$(uname -m)-linux-gnu \
 *     -c flow_offload.bpf.c -o flow_offload.bpf.o */
#include "kernel.h"

/* A flow is one direction of a TCP connection: two addresses (IPv4 addresses in the first word), both ports, and
 * the version. */
#define FLOW_WORDS 5

/* An offloaded flow. `until`: its end, 0 while the entry is free. `last`: the number of its last packet that was
 * left to the worker. `singles`: count of consecutive single packets. `grows`: whether segments may become longer.
 * `acked`: the next expected byte. `sent`: the byte after the last one that was forwarded. */
struct lease {
    __u64 until, last;
    __u32 len_max;
    __u8 singles, used, grows, has_ack;
    __u64 flow[FLOW_WORDS];
    __u32 acked, sent;
    __u8 has_sent;
} __attribute__((aligned(128)));

/* Memory that workers share with the programs, laid out as in `layout.rs`. Workers without privileges write all of
 * it. `left`: packets that were left to the worker. `done`: their count when the worker last held none of them.
 * `last_of_some`: the last one of an unknown flow. */
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
IS_AT(lease, sent, 68);
IS_AT(lease, has_sent, 72);
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

/* Facts about a packet that arrives at the socket. */
struct packet {
    __u64 flow[FLOW_WORDS];
    /* The entry of its flow, and its end. */
    struct lease *lease;
    __u64 until;
    /* Length of all headers, of the payload, and of the frame according to its IP header, in bytes. */
    __u32 headers_len, payload_len, frame_len;
    /* Size of the segments that it leaves in; 0 where it stays one packet. */
    __u32 segment_len;
};

/* The note on a packet, in `cb`: `NOTED`, the segment size, the egress interface, and the length of the headers
 * where the packet is to be segmented. */
enum { MARK, SEGMENT_LEN, TO, HEADERS_LEN };
#define NOTED 0x77696465

enum {
    ETHERNET_LEN = 14,
    TYPE_AT = 12,
    /* Longest payload that is segmented, in bytes, and the largest number of segments. */
    CUT_MAX = 9216,
    PIECE_COUNT = 8,
    /* Limit of watched workers. */
    WORKERS_MAX = 32,
    /* Largest change of a segment's size, in bytes. Programs outlive a restart, so it must not exceed the limit of
     * older versions. */
    CHANGE_MAX = 16000,
    /* Consecutive single packets before their flow returns to the worker. */
    SINGLES_MAX = 8,
    /* End time of an entry that is not offloaded, or no longer. */
    ENDED = 1,
    TCP = 6,
    FIN = 0x01, SYN = 0x02, RST = 0x04, PSH = 0x08, URG = 0x20, CWR = 0x80,
    /* AE, in the same byte as the length of the TCP header (RFC 9768 section 3.1). */
    AE = 0x01,
    /* More fragments, and the offset (RFC 791 section 3.1). */
    FRAGMENT_BITS = 0x3FFF,
    IPV4 = 0x0800,
    IPV6 = 0x86DD,
    CUSTOMER_TAG = 0x8100,
    SERVICE_TAG = 0x88A8,
    PPPOE = 0x8864,
    MPLS = 0x8847,
    /* Protocols of frames with folded tags: see `tags.rs`. */
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
/* Reads once a value that others may write meanwhile. */
#define READ(what) (*(volatile __typeof__(what) *)&(what))
/* Hides a value from the compiler. So it is computed and compared here, where the verifier sees it. */
#define OPAQUE(value) asm volatile("" : "+r"(value))

SECTION(".bss.flows") struct table flows;
/* Time of each worker's last beat. There is room for workers that do not exist, too. */
SECTION(".bss.beats") __u64 beats[WORKERS_MAX];

/* The service has CAP_BPF and no CAP_PERFMON. So the verifier accepts these programs only if they are safe under
 * speculative execution: it follows both branches even of a condition whose outcome it knows. Therefore loops are
 * unrolled, everything on the stack is written first, and conditions are few where a packet is segmented. The
 * offset by which a pointer moves is a constant on every path or on none. */

/* Settings fixed at load time, in frozen memory. They are: the only egress interface, the number of watched
 * workers, the age in nanoseconds at which a beat counts as missing, the headroom allocated at once, and the
 * largest number of such changes. */
#define SETTING SECTION(".rodata") const volatile __u32
SETTING target = 0;
SETTING worker_count = 0;
SETTING patience = 0;
SETTING room = 0;
SETTING changes = 0;

/* Copy of the payload of a packet while it is segmented. The verifier wants room for two. */
SECTION("maps") struct bpf_map_def wl_flow_room = {
    .type = BPF_MAP_TYPE_PERCPU_ARRAY, .key_size = 4, .value_size = 2 * CUT_MAX, .max_entries = 1,
};

/* Left to the worker: of no offloaded flow; of a flow that the packet does not tell; of this flow; of this flow,
 * whose offload it ends. Else it is forwarded without the worker, or delivered to nobody. */
enum whose { OTHER, OF_SOME, OURS, CLOSES, GOES, NOBODYS };

/* Finds the entry of a packet's flow, and its TCP header. */
INLINE enum whose find(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    /* A group of sockets may see outgoing packets, too. */
    if (skb->pkt_type == OUTGOING)
        return NOBODYS;
    if (skb->vlan_present)
        return OTHER;
    __u64 version, *flow = packet->flow;
    if (skb->protocol == NETWORK16(IPV4)) {
        /* Aligned so that both addresses can be read as one word. */
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
        /* Packets behind hop-by-hop options, routing, fragment, authentication and destination options (RFC 8200
         * section 4) may belong to a flow. */
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
    /* Otherwise it is computed anew at each use. */
    OPAQUE(lease);
    /* Values written before the flow was offloaded are read after this. */
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

/* Whether it may be forwarded at all. Not where the flow's time has run out, where the worker still holds an
 * earlier packet, or by an interface other than `target`. A worker without privileges cannot change `target`. */
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
        /* A frame padded by its link is longer than the packet. */
        if (packet->frame_len > len)
            return OURS;
        len = packet->frame_len;
    }
    if (packet->headers_len > len)
        return OURS;
    packet->payload_len = len - packet->headers_len;
    /* Repeated data was lost: the worker finds out whether for its size. */
    if (packet->payload_len && packet->lease->has_sent && (__s32)(NETWORK32(tcp->seq) - packet->lease->sent) < 0)
        return CLOSES;
    return GOES;
}

/* Adds the bits above 16 of a sum to the rest. Two calls suffice for a sum of 65,536 numbers of 16 bits, three for
 * one of as many of 32 bits. */
INLINE __u64 fold(__u64 sum)
{
    return (sum & 0xFFFF) + (sum >> 16);
}

/* A packet that is too long is segmented if its payload fits the copy, and its checksum is partial: the device that
 * sends the segments completes theirs. A packet with AE or CWR is left to the worker. The worker knows whether all
 * segments repeat the flags (RFC 9768 section 3.2.2) or only the first has CWR (RFC 3168 section 6.1.2). The
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

/* Chooses the segment size. */
INLINE enum whose resize(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    struct lease *lease = packet->lease;
    __u32 len = packet->payload_len, segment_len = skb->gso_size;
    /* The receiver's limit, without headers. */
    __s64 limit = (__s64)lease->len_max + ETHERNET_LEN - packet->headers_len;
    if (limit <= 0)
        return OURS;
    if (!segment_len) {
        if (len > limit) {
            packet->segment_len = limit;
            return may_cut(skb, packet, tcp);
        }
        /* A few single packets do not matter; more of them are worth coalescing. */
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
        /* A GSO packet has at least two segments. */
        limit = (len + 1) / 2;
    }
    packet->segment_len = limit;
    return segment_len + CHANGE_MAX - packet->segment_len > 2 * CHANGE_MAX ? OURS : GOES;
}

/* Counts a forwarded packet, and writes its note. */
INLINE void pass(struct __sk_buff *skb, struct packet *packet, struct tcp *tcp)
{
    struct lease *lease = packet->lease;
    __u32 len = packet->payload_len, segment_len = packet->segment_len, acked = NETWORK32(tcp->ack);
    lease->used = 1;
    /* Unless an earlier packet acknowledged more: sequence numbers wrap. */
    if (!lease->has_ack || (__s32)(acked - lease->acked) >= 0) {
        lease->acked = acked;
        lease->has_ack = 1;
    }
    if (len) {
        lease->sent = NETWORK32(tcp->seq) + len;
        lease->has_sent = 1;
    }
    skb->cb[SEGMENT_LEN] = segment_len;
    skb->cb[MARK] = NOTED;
    __sync_fetch_and_add(&flows.frames, 1);
    __sync_fetch_and_add(&flows.packets_in, skb->gso_segs ?: 1);
    __sync_fetch_and_add(&flows.packets_out, segment_len ? (len + segment_len - 1) / segment_len : 1);
    __sync_fetch_and_add(&flows.bytes, len);
}

/* Whether a worker's beat is missing. */
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

/* The part of a packet that the socket gets: all, or nothing. Packets left to the worker are numbered. */
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
    /* If another flow has taken the entry meanwhile, that flow ends. */
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

/* Writes a field of a header and returns the change of a sum over it (RFC 1624, R029). */
INLINE __u64 write(__be16 *field, __u16 value)
{
    __u64 more = (__u16)~*field;
    *field = NETWORK16(value);
    return more + *field;
}

/* All bits set for a negative value, else none; without a condition. */
INLINE __s64 below_zero(__s64 value)
{
    __s64 bits = value >> 63;
    OPAQUE(bits);
    return bits;
}

/* Read anew each time: otherwise the verifier would know it and follow each version to the end. */
INLINE int is_ipv4(struct __sk_buff *skb)
{
    return READ(skb->protocol) == NETWORK16(IPV4);
}

/* Segments a packet and sends its segments: the last one as the packet itself, the others as clones. */
INLINE int cut(struct __sk_buff *skb, __u32 piece_max, __u32 headers_len)
{
    /* The TCP header has the same place for both IP versions. */
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
        /* Only the last segment keeps PSH. A packet with CWR does not get here. */
        said.tcp.flags = flags & ~(PSH & below_zero(-rest));
        /* The TCP checksum is the sum of its pseudo-header. */
        if (is_ipv4(skb)) {
            __u64 more = write(&said.v4.len, packet_len), sum = (__u16)~said.v4.sum + more;
            /* The identification. */
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

/* Sends packets with a note to their egress interface, with the note.
 *
 * A GSO packet from a socket of this machine still counts as that socket's memory, but headroom added to it counts
 * as nobody's. When coalesced with others, it would seem to have more bytes than memory. A clone of it, which
 * shares its payload, belongs to no socket. */
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

/* Unfolds the tags of a frame whose protocol tells that they are folded. Of two tags, the outer one is kept apart
 * from the frame, as the kernel does on reception: an interface that checks the length of frames allows for one tag
 * in them. GSO packets are treated alike, although nothing checks their length. */
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

/* At the egress of the interface that it leaves by: gives a GSO packet with a note the segment size of the note. */
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
            /* Adding headroom shrinks segments and removing it enlarges them, unless a flag prevents that. */
            __u64 making = more < 0 ? 0 : BPF_F_ADJ_ROOM_FIXED_GSO;
            /* On the stack: writing it there ends speculation, and so the verifier ends the loop. */
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
    /* The interface's MTU may have shrunk since the flow was offloaded. */
    return bpf_check_mtu(skb, 0, &mtu, 0, BPF_MTU_CHK_SEGS) ? lose() : NEXT;
}
