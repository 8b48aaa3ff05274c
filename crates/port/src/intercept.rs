//! An interface in, a kernel that leaves its packets to us out.
//!
//! A packet socket gets a copy: the kernel would still answer, forward or refuse what it sees. A program at the interface's
//! entry drops that. Packet sockets see frames before it. The program goes with its guard, or with the process, however
//! that ends.

use crate::bpf::{
    self, EXIT, Hook, IF_EQUAL, IF_LESS, IF_MORE, IF_OTHER, Kind, R0, R1, R2, R3, R4, R6, R10, RIGHTS, Step, add,
    assemble, call, copy, go, jump, load_byte, load_word, mask, put_byte, put_word, set, store_byte, store_word,
};
use crate::failure::{advised, failed};
use crate::leases::unless_noted;
use crate::netlink::Netlink;
use packet::Medium;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Keeps the kernel from taking what comes in by an interface, for as long as this lives.
///
/// It needs Linux 6.6 and CAP_BPF of the host: to be root in a user namespace is not enough.
///
/// Of a frame whose VLAN tag the kernel or the card has set apart, what it carries counts; one with a further tag passes to
/// the kernel.
#[derive(Debug)]
pub struct Intercept {
    _link: OwnedFd,
}

impl Intercept {
    /// The kernel gets nothing that comes in by this interface of the calling thread's namespace, but what was
    /// [lent](crate::leases) to it.
    ///
    /// # Errors
    /// `NotFound`, that the right is missing, or that the kernel is too old.
    pub fn all(index: u32) -> io::Result<Intercept> {
        let mut steps = unless_noted().to_vec();
        steps.extend([set(R0, DROP), EXIT, Step::Place("noted"), set(R0, PASS), EXIT]);
        attach(index, &steps)
    }

    /// The kernel gets no IPv4 and IPv6 packet that comes in for this station by this interface of the calling thread's
    /// namespace, but everything else: frames for groups, for all and for other stations, ARP, and neighbour discovery
    /// (RFC 4861 section 4). Without an Ethernet header every packet is for this station.
    ///
    /// # Errors
    /// As [`Intercept::all`], and that it is not known what stands in front of the interface's IP packets.
    pub fn ip(index: u32) -> io::Result<Intercept> {
        attach(index, &ip(ip_at(index)?))
    }

    /// The kernel gets what comes in by this interface of the calling thread's namespace, but for the IPv4 and IPv6 packets
    /// for this station that it would forward by the interface `to`; those that have no hop left, and neighbour discovery,
    /// pass all the same. So the host itself is reached, and
    /// forwards again once this is gone.
    ///
    /// Whether it would forward is what its routes say, by the rules for the packet's addresses, protocol and class of
    /// service; by those for ports and marks it is not asked. A packet that it would forward by a route with a tunnel of its
    /// own (`encap`) passes, and one that it would refuse with a word, such as without a route, too: the kernel says it.
    ///
    /// # Errors
    /// As [`Intercept::ip`].
    pub fn forwarded(index: u32, to: u32) -> io::Result<Intercept> {
        attach(index, &forwarded(index, to, ip_at(index)?))
    }
}

/// Where the IP packets of an interface start, in bytes from the frame's start.
fn ip_at(index: u32) -> io::Result<i32> {
    let interface = Netlink::open()?.interface_at(index)?;
    match interface.medium {
        Some(Medium::Ethernet) => Ok(ETHERNET_LEN),
        Some(Medium::Ip) => Ok(0),
        _ => {
            let text = format!("{}: not an Ethernet or plain IP interface; name another", interface.name);
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

fn ip(ip_at: i32) -> Vec<Step> {
    let mut steps = for_this_station();
    steps.extend([
        copy(R6, R1),
        load_word(R0, R1, PROTOCOL_AT),
        jump(IF_EQUAL, R0, network_order(ETHERTYPE_IPV4), "drop"),
        jump(IF_OTHER, R0, network_order(ETHERTYPE_IPV6), "pass"),
    ]);
    steps.extend(read(ip_at + NEXT_HEADER_AT, HEADER, 1, "drop"));
    steps.extend(unless_discovery(HEADER, ip_at, "drop"));
    steps.extend(VERDICTS);
    steps
}

/// Fills a `struct bpf_fib_lookup` from the packet's header and asks the kernel's routes by it.
fn forwarded(index: u32, to: u32, ip_at: i32) -> Vec<Step> {
    let mut steps = for_this_station();
    steps.push(copy(R6, R1));
    steps.extend((0..QUESTION_LEN / 4).map(|word| put_word(R10, QUESTION + 4 * word, 0)));
    steps.extend([
        put_word(R10, QUESTION + INDEX_AT, index.cast_signed()),
        load_word(R0, R6, PROTOCOL_AT),
        jump(IF_EQUAL, R0, network_order(ETHERTYPE_IPV4), "version 4"),
        jump(IF_OTHER, R0, network_order(ETHERTYPE_IPV6), "pass"),
        put_byte(R10, QUESTION, libc::AF_INET6),
    ]);
    steps.extend(read(ip_at, HEADER, IPV6_LEN, "pass"));
    steps.extend(unless_discovery(HEADER + NEXT_HEADER_AT as i16, ip_at, "is no discovery"));
    steps.extend([
        Step::Place("is no discovery"),
        load_byte(R0, R10, HEADER + HOP_LIMIT_AT),
        jump(IF_LESS, R0, HOPS_MIN, "pass"),
        load_byte(R0, R10, HEADER + NEXT_HEADER_AT as i16),
        store_byte(R10, QUESTION + UPPER_AT, R0),
        load_word(R0, R10, HEADER),
        mask(R0, 0x0FFF_FFFF_u32.to_be().cast_signed()),
        store_word(R10, QUESTION + SERVICE_AT, R0),
    ]);
    steps.extend((0..4).flat_map(|word| copy_word(8 + 4 * word, SOURCE_AT + 4 * word)));
    steps.extend((0..4).flat_map(|word| copy_word(24 + 4 * word, DESTINATION_AT + 4 * word)));
    steps.extend([go("ask"), Step::Place("version 4"), put_byte(R10, QUESTION, libc::AF_INET)]);
    steps.extend(read(ip_at, HEADER, IPV4_LEN, "pass"));
    steps.extend([load_byte(R0, R10, HEADER + TTL_AT), jump(IF_LESS, R0, HOPS_MIN, "pass")]);
    for (from, to) in [(1, SERVICE_AT), (9, UPPER_AT)] {
        steps.extend([load_byte(R0, R10, HEADER + from), store_byte(R10, QUESTION + to, R0)]);
    }
    steps.extend(copy_word(12, SOURCE_AT).into_iter().chain(copy_word(16, DESTINATION_AT)));
    steps.extend([
        Step::Place("ask"),
        copy(R1, R6),
        copy(R2, R10),
        add(R2, QUESTION.into()),
        set(R3, QUESTION_LEN.into()),
        set(R4, WITHOUT_NEIGHBOUR),
        call(LOOK_UP_ROUTE),
        jump(IF_EQUAL, R0, FORWARDS, "forwards"),
        jump(IF_EQUAL, R0, KNOWS_NO_NEIGHBOUR, "forwards"),
        jump(IF_EQUAL, R0, WOULD_CUT, "forwards"),
        go("pass"),
        Step::Place("forwards"),
        load_word(R0, R10, QUESTION + INDEX_AT),
        jump(IF_EQUAL, R0, to.cast_signed(), "drop"),
        go("pass"),
    ]);
    steps.extend(VERDICTS);
    steps
}

/// Lets pass what is not for this station.
fn for_this_station() -> Vec<Step> {
    vec![load_word(R0, R1, STATION_AT), jump(IF_OTHER, R0, THIS_STATION, "pass")]
}

/// Reads `len` bytes of the frame to the stack, also where they do not lie in one piece; a frame without them goes to `otherwise`.
fn read(at: i32, to: i16, len: i32, otherwise: &'static str) -> [Step; 7] {
    [
        copy(R1, R6),
        set(R2, at),
        copy(R3, R10),
        add(R3, to.into()),
        set(R4, len),
        call(LOAD_BYTES),
        jump(IF_OTHER, R0, 0, otherwise),
    ]
}

/// Lets neighbour discovery pass, by the next header that lies on the stack and the type behind the IPv6 header; all else
/// goes to `otherwise`, a packet too short to hold a type with it.
fn unless_discovery(next_header: i16, ip_at: i32, otherwise: &'static str) -> Vec<Step> {
    let mut steps = vec![load_byte(R0, R10, next_header), jump(IF_OTHER, R0, ICMPV6, otherwise)];
    steps.extend(read(ip_at + IPV6_LEN, TYPE, 1, otherwise));
    steps.extend([
        load_byte(R0, R10, TYPE),
        jump(IF_LESS, R0, DISCOVERY_MIN, otherwise),
        jump(IF_MORE, R0, DISCOVERY_MAX, otherwise),
        go("pass"),
    ]);
    steps
}

/// Copies a word of the header into the question.
fn copy_word(from: i16, to: i16) -> [Step; 2] {
    [load_word(R0, R10, HEADER + from), store_word(R10, QUESTION + to, R0)]
}

fn attach(index: u32, steps: &[Step]) -> io::Result<Intercept> {
    let what = format!("interface {index}: cannot keep its packets from the kernel");
    let program = bpf::load(Kind::Classifier, 0, &assemble(steps)).map_err(|refusal| refusal.about(&what))?;
    let link =
        bpf::attach(program.as_fd(), index, Hook::Ingress, FIRST).map_err(|why| match why.raw_os_error() {
            Some(libc::EINVAL) => advised(&what, &why, "it needs Linux 6.6"),
            Some(libc::ENODEV) => failed(&what, &why),
            _ => advised(&what, &why, RIGHTS),
        })?;
    Ok(Intercept { _link: link })
}

/// As `__sk_buff.protocol` reads.
const fn network_order(ethertype: u16) -> i32 {
    ethertype.to_be() as i32
}

const VERDICTS: [Step; 6] = [Step::Place("drop"), set(R0, DROP), EXIT, Step::Place("pass"), set(R0, PASS), EXIT];
/// TCX_NEXT and TCX_DROP.
const PASS: i32 = -1;
const DROP: i32 = 2;
/// Where `struct __sk_buff` has its pkt_type and its protocol.
const STATION_AT: i16 = 4;
const PROTOCOL_AT: i16 = 16;
/// PACKET_HOST (linux/if_packet.h).
const THIS_STATION: i32 = 0;
/// BPF_FUNC_skb_load_bytes and BPF_FUNC_fib_lookup.
const LOAD_BYTES: i32 = 26;
const LOOK_UP_ROUTE: i32 = 69;
/// Where things lie on the stack: the question, the header, the ICMPv6 type.
const QUESTION: i16 = -QUESTION_LEN;
const HEADER: i16 = QUESTION - 40;
const TYPE: i16 = HEADER - 8;
/// Length of `struct bpf_fib_lookup`, and where it has the upper protocol, the interface, the class of service (for IPv6 with
/// the flow label), and the addresses. The family comes first.
const QUESTION_LEN: i16 = 64;
const UPPER_AT: i16 = 1;
const INDEX_AT: i16 = 8;
const SERVICE_AT: i16 = 12;
const SOURCE_AT: i16 = 16;
const DESTINATION_AT: i16 = 32;
/// BPF_FIB_LOOKUP_SKIP_NEIGH.
const WITHOUT_NEIGHBOUR: i32 = 1 << 2;
/// BPF_FIB_LKUP_RET_SUCCESS, _NO_NEIGH and _FRAG_NEEDED.
const FORWARDS: i32 = 0;
const KNOWS_NO_NEIGHBOUR: i32 = 7;
const WOULD_CUT: i32 = 8;
/// Length of an Ethernet header, in bytes.
const ETHERNET_LEN: i32 = 14;
/// Length of the IP headers, without options, in bytes.
const IPV4_LEN: i32 = 20;
const IPV6_LEN: i32 = 40;
/// Where an IPv6 header has its next header.
const NEXT_HEADER_AT: i32 = 6;
/// Where the IP headers have what hops are left, and how many a packet needs to be forwarded.
const TTL_AT: i16 = 8;
const HOP_LIMIT_AT: i16 = 7;
const HOPS_MIN: i32 = 2;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMPV6: i32 = 58;
/// Router solicitation to redirect (RFC 4861 section 4).
const DISCOVERY_MIN: i32 = 133;
const DISCOVERY_MAX: i32 = 137;
/// BPF_F_BEFORE without a program that is meant: before all.
const FIRST: u32 = 1 << 3;
