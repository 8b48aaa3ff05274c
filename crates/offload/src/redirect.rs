//! An interface -> packets to reassemble or fragment, redirected to a helper device and back.
//!
//! A wide interface and a router process only some packets of an interface. Programs at the interface (TCX)
//! redirect these packets to the helper, a TAP or TUN device that a worker reads. Packets that the worker writes to
//! the helper are received again at the interface's ingress, or sent by its egress. So the kernel routes, filters
//! and delivers each packet once, as without redirection. The kernel removes the programs when the [`Redirect`] is
//! dropped or the process ends.
//!
//! A returning packet carries a note in `tc_index`, which only traffic control sees. The programs do not redirect a
//! packet with a note, and clear the note.

use crate::bpf::{
    self, DROP, EXIT, FIRST, Hook, IF_EQUAL, IF_LESS, IF_MORE, IF_OTHER, Insn, Kind, LOAD_BYTES, NEXT, R0, R1, R2,
    R3, R4, R5, R6, R8, R10, REDIRECT, RIGHTS, add, add_register, assemble, call, copy, divide, go, jump,
    load_byte, load_half, load_word, mask, put_byte, put_word, set, store_byte, store_word, subtract,
};
use crate::heartbeat::Heartbeat;
use crate::names::{self, Name};
use crate::recent_fragments::RecentFragments;
use linux::failure::{advised, failed};
use packet::LinkType;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Programs that redirect an interface's packets to a helper and back; detached on drop.
#[derive(Debug)]
pub struct Redirect {
    /// The link of the redirecting program. It is dropped first, so that every redirected packet can still return.
    taking: Option<OwnedFd>,
    coming_back: [OwnedFd; 2],
    _recent_fragments: RecentFragments,
}

/// Links of three programs: at the interface, at the helper's ingress, at the helper's egress.
pub type RedirectLinks = [OwnedFd; 3];

/// An interface and its helper. Both are in the calling thread's namespace.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Index of the interface.
    pub interface: u32,
    /// Index of the helper, which must have the link type of the interface.
    pub helper: u32,
    /// Link type of the interface and of the helper.
    pub link_type: LinkType,
}

/// The choice of packets that are redirected at an interface's ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking {
    /// The destination of the packets that are redirected.
    pub target: Target,
    /// Whether TCP packets are redirected in addition to fragments.
    pub tcp: bool,
}

/// The destination of redirected packets, according to the kernel's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This host.
    Host,
    /// The interface with index `by`: the kernel forwards the packets over this interface, and a packet of `len`
    /// bytes fits the route's MTU.
    Forwarded {
        /// Index of the egress interface.
        by: u32,
        /// Length of the longest packet that may be reassembled or coalesced from the packets, in bytes.
        len: u16,
    },
}

impl Redirect {
    /// Redirects packets that arrive on an interface for this host's MAC address, without a VLAN tag. These are
    /// fragments, and TCP packets if requested. For 2 ms afterwards, unfragmented packets between the same two
    /// addresses are redirected too, so that packets stay in order. Packets written to the helper are received as
    /// if from the interface.
    ///
    /// These packets are never redirected:
    ///
    /// - neighbour discovery (RFC 6980),
    /// - IPv6 fragments with another extension header before the Fragment header, or with hop-by-hop options after
    ///   it,
    /// - all packets while a worker's heartbeat is missing.
    ///
    /// `before` contains the links of an earlier process for this pair. These links are reused, and their programs
    /// are replaced without missing a packet.
    ///
    /// # Errors
    /// Privileges are missing, the kernel is older than Linux 6.6, or an interface does not exist.
    pub fn ingress(
        pair: Pair,
        taking: Taking,
        heartbeat: Option<&Heartbeat>,
        before: Option<RedirectLinks>,
    ) -> io::Result<Redirect> {
        Redirect::attach(pair, (names::TAKE_INGRESS, Hook::Ingress), COMES_IN, before, |lately| {
            ingress(pair, taking, heartbeat, lately)
        })
    }

    /// Redirects packets that this host sends by an interface and that exceed `mtu` bytes. For a GSO packet, the
    /// length of its longest segment counts. For 2 ms afterwards, shorter packets between the same two addresses
    /// are redirected too. Packets written to the helper are sent by the interface.
    ///
    /// # Errors
    /// The errors of [`Redirect::ingress`].
    pub fn egress(pair: Pair, mtu: u16, before: Option<RedirectLinks>) -> io::Result<Redirect> {
        Redirect::attach(pair, (names::TAKE_EGRESS, Hook::Egress), LEAVES, before, |lately| {
            egress(pair, mtu, lately)
        })
    }

    /// Stops redirecting. Packets that are already redirected still return.
    pub fn stop_taking(&mut self) {
        self.taking = None;
    }

    /// Returns the links for a successor; `None` if redirection was stopped.
    pub fn into_links(self) -> Option<RedirectLinks> {
        let [back, shield] = self.coming_back;
        Some([self.taking?, back, shield])
    }

    /// Returns the links to hand over to another process; `None` if redirection was stopped.
    pub fn links(&self) -> Option<[&OwnedFd; 3]> {
        let [back, shield] = &self.coming_back;
        Some([self.taking.as_ref()?, back, shield])
    }

    fn attach(
        pair: Pair,
        (name, hook): (Name, Hook),
        direction: i32,
        before: Option<RedirectLinks>,
        take: impl FnOnce(&RecentFragments) -> Vec<Insn>,
    ) -> io::Result<Redirect> {
        let Pair { interface, helper, .. } = pair;
        let what = format!("interface {interface}: cannot attach the redirect of packets to the gateway");
        let lately = RecentFragments::new().map_err(|why| advised(&what, &why, RIGHTS))?;
        let attach = |name, steps: &[Insn], (index, hook): (u32, Hook), before: Option<OwnedFd>| {
            let program = bpf::load(name, Kind::Classifier, 0, &assemble(steps)).map_err(|why| why.about(&what))?;
            if let Some(link) = before {
                return bpf::replace(link.as_fd(), program.as_fd())
                    .map(|()| link)
                    .map_err(|why| failed(&what, &why));
            }
            bpf::attach(program.as_fd(), index, hook, FIRST).map_err(|why| match why.raw_os_error() {
                Some(libc::EINVAL) => advised(&what, &why, "it needs Linux 6.6"),
                Some(libc::ENODEV) => failed(&what, &why),
                _ => advised(&what, &why, RIGHTS),
            })
        };
        let [at_interface, at_ingress, at_egress] = before.map_or([None, None, None], |links| links.map(Some));
        // The return path must exist before the first packet is redirected.
        let back =
            attach(names::HELPER_INGRESS, &put_back(interface, direction), (helper, Hook::Ingress), at_ingress)?;
        let shield = attach(names::HELPER_EGRESS, &shield(), (helper, Hook::Egress), at_egress)?;
        let taken = attach(name, &take(&lately), (interface, hook), at_interface)?;
        Ok(Redirect { taking: Some(taken), coming_back: [back, shield], _recent_fragments: lately })
    }
}

/// Returns the program at the helper's ingress: it redirects all packets from the worker to the interface.
fn put_back(interface: u32, direction: i32) -> Vec<Insn> {
    vec![
        set(R2, NOTE),
        store_word(R1, NOTE_AT, R2),
        set(R1, interface.cast_signed()),
        set(R2, direction),
        call(REDIRECT),
        EXIT,
    ]
}

/// Returns the program at the helper's egress: it drops packets that were not redirected, such as the host's own.
fn shield() -> Vec<Insn> {
    vec![
        load_word(R0, R1, NOTE_AT),
        jump(IF_EQUAL, R0, NOTE, "taken"),
        set(R0, DROP),
        EXIT,
        Insn::Place("taken"),
        set(R0, NEXT),
        EXIT,
    ]
}

/// Returns steps that pass packets with a note, and clear the note. Register 6 contains the packet afterwards.
fn unless_back() -> Vec<Insn> {
    vec![
        copy(R6, R1),
        load_word(R0, R6, NOTE_AT),
        jump(IF_OTHER, R0, NOTE, "is new"),
        set(R0, 0),
        store_word(R6, NOTE_AT, R0),
        Insn::Place("pass"),
        set(R0, NEXT),
        EXIT,
        Insn::Place("is new"),
    ]
}

/// Returns steps that send the packet to the helper.
fn take(helper: u32) -> [Insn; 7] {
    [
        Insn::Place("take"),
        set(R0, NOTE),
        store_word(R6, NOTE_AT, R0),
        set(R1, helper.cast_signed()),
        set(R2, LEAVES),
        call(REDIRECT),
        EXIT,
    ]
}

/// Returns the program at an interface's ingress. It computes the hash of the addresses in register 7. Register 8
/// becomes 1 for a packet to redirect.
fn ingress(pair: Pair, taking: Taking, heartbeat: Option<&Heartbeat>, lately: &RecentFragments) -> Vec<Insn> {
    let mut steps = unless_back();
    let base = if pair.link_type == LinkType::Ethernet {
        steps.extend([load_word(R0, R6, STATION_AT), jump(IF_OTHER, R0, THIS_STATION, "pass")]);
        Base::Frame(ETHERNET_LEN)
    } else {
        steps.extend(unfragmented());
        Base::Ip
    };
    steps.extend([load_word(R0, R6, HAS_TAG_AT), jump(IF_OTHER, R0, 0, "pass")]);
    if let Some(heartbeat) = heartbeat {
        steps.extend(heartbeat.silent("pass"));
    }
    steps.extend((0..QUESTION_LEN / 4).map(|word| put_word(R10, QUESTION + 4 * word, 0)));
    if let Target::Forwarded { len, .. } = taking.target {
        let [one, other] = len.to_ne_bytes();
        steps.push(put_word(R10, QUESTION + PORT_AND_LEN_AT, i32::from_ne_bytes([0, 0, one, other])));
    }
    steps.extend([
        put_word(R10, QUESTION + INDEX_AT, pair.interface.cast_signed()),
        load_word(R0, R6, ETHERTYPE_AT),
        jump(IF_EQUAL, R0, network_order(ETHERTYPE_IPV4), "version 4"),
        jump(IF_OTHER, R0, network_order(ETHERTYPE_IPV6), "pass"),
    ]);
    steps.extend(ingress_v6(base, taking, lately));
    steps.push(Insn::Place("version 4"));
    steps.extend(ingress_v4(base, taking, lately));
    steps.push(jump(IF_EQUAL, R8, 0, "follows"));
    steps.extend(is_for(taking.target));
    steps.push(Insn::Place("follows"));
    steps.extend(lately.steps());
    steps.extend(take(pair.helper));
    steps
}

fn ingress_v6(base: Base, taking: Taking, lately: &RecentFragments) -> Vec<Insn> {
    let mut steps = header_v6(base, lately);
    steps.extend([
        put_byte(R10, QUESTION, libc::AF_INET6),
        load_byte(R0, R10, HEADER + 6),
        store_byte(R10, QUESTION + UPPER_AT, R0),
        load_word(R1, R10, HEADER),
        mask(R1, 0x0FFF_FFFF_u32.to_be().cast_signed()),
        store_word(R10, QUESTION + SERVICE_AT, R1),
    ]);
    steps.extend((0..4).flat_map(|word| copy_word(8 + 4 * word, SOURCE_AT + 4 * word)));
    steps.extend((0..4).flat_map(|word| copy_word(24 + 4 * word, DESTINATION_AT + 4 * word)));
    steps.extend([set(R8, 0), jump(IF_EQUAL, R0, NEXT_IS_FRAGMENT, "fragment")]);
    if taking.tcp {
        steps.extend([jump(IF_OTHER, R0, TCP, "known"), set(R8, 1)]);
    }
    steps.extend([go("known"), Insn::Place("fragment")]);
    steps.extend(read(base, IPV6_LEN, FRAGMENT, FRAGMENT_LEN));
    steps.extend([
        set(R8, 1),
        load_byte(R0, R10, FRAGMENT),
        store_byte(R10, QUESTION + UPPER_AT, R0),
        jump(IF_EQUAL, R0, HOP_BY_HOP, "pass"),
        jump(IF_OTHER, R0, ICMPV6, "known"),
        load_half(R0, R10, FRAGMENT + 2),
        mask(R0, network_order(OFFSET_V6)),
        jump(IF_OTHER, R0, 0, "known"),
    ]);
    // A fragment without a type does not belong to neighbour discovery.
    steps.extend(read_or(base, IPV6_LEN + FRAGMENT_LEN, FRAGMENT, 1, "known"));
    steps.extend([
        load_byte(R0, R10, FRAGMENT),
        jump(IF_LESS, R0, DISCOVERY_MIN, "known"),
        jump(IF_MORE, R0, DISCOVERY_MAX, "known"),
        go("pass"),
    ]);
    steps
}

fn ingress_v4(base: Base, taking: Taking, lately: &RecentFragments) -> Vec<Insn> {
    let mut steps = header_v4(base, lately);
    steps.push(put_byte(R10, QUESTION, libc::AF_INET));
    for (from, to) in [(1, SERVICE_AT), (9, UPPER_AT)] {
        steps.extend([load_byte(R0, R10, HEADER + from), store_byte(R10, QUESTION + to, R0)]);
    }
    steps.extend(copy_word(12, SOURCE_AT).into_iter().chain(copy_word(16, DESTINATION_AT)));
    steps.extend([
        load_half(R1, R10, HEADER + 6),
        mask(R1, network_order(OFFSET_OR_MORE_V4)),
        set(R8, 1),
        jump(IF_OTHER, R1, 0, "known"),
    ]);
    if taking.tcp {
        steps.push(jump(IF_EQUAL, R0, TCP, "known"));
    }
    steps.extend([set(R8, 0), Insn::Place("known")]);
    steps
}

/// Returns steps that look up the route for the request on the stack. A packet whose destination is not `target` is
/// not redirected.
fn is_for(target: Target) -> Vec<Insn> {
    let mut steps = vec![
        copy(R1, R6),
        copy(R2, R10),
        add(R2, QUESTION.into()),
        set(R3, QUESTION_LEN.into()),
        set(R4, WITHOUT_NEIGHBOUR),
        call(LOOK_UP_ROUTE),
    ];
    match target {
        Target::Host => steps.extend([
            jump(IF_EQUAL, R0, NOT_FORWARDED, "is ours"),
            jump(IF_OTHER, R0, FORWARDS_NOTHING, "pass"),
            Insn::Place("is ours"),
        ]),
        Target::Forwarded { by, .. } => steps.extend([
            jump(IF_EQUAL, R0, FORWARDED, "is forwarded"),
            jump(IF_OTHER, R0, KNOWS_NO_NEIGHBOUR, "pass"),
            Insn::Place("is forwarded"),
            load_word(R0, R10, QUESTION + INDEX_AT),
            jump(IF_OTHER, R0, by.cast_signed(), "pass"),
        ]),
    }
    steps
}

/// Returns the program at an interface's egress. It computes the hash of the addresses in register 7. Register 8
/// becomes 1 for a packet that exceeds the MTU.
fn egress(pair: Pair, mtu: u16, lately: &RecentFragments) -> Vec<Insn> {
    let ip_at = ip_at(pair.link_type);
    let mut steps = unless_back();
    steps.extend([
        // A packet with an ingress interface is forwarded, not sent by this host.
        load_word(R0, R6, CAME_BY_AT),
        jump(IF_OTHER, R0, 0, "pass"),
        load_word(R0, R6, ETHERTYPE_AT),
        jump(IF_EQUAL, R0, network_order(ETHERTYPE_IPV4), "version 4"),
        jump(IF_OTHER, R0, network_order(ETHERTYPE_IPV6), "pass"),
    ]);
    steps.extend(header_v6(Base::Frame(ip_at), lately));
    steps.extend([go("known"), Insn::Place("version 4")]);
    steps.extend(header_v4(Base::Frame(ip_at), lately));
    steps.extend([
        Insn::Place("known"),
        load_word(R0, R6, LEN_AT),
        load_word(R1, R6, SEGMENT_LEN_AT),
        jump(IF_EQUAL, R1, 0, "measured"),
        jump(IF_EQUAL, R1, OF_ANY_LEN, "pass"),
        load_word(R2, R6, SEGMENT_COUNT_AT),
        jump(IF_OTHER, R2, 0, "counted"),
        // A GSO packet from a virtual machine, without a number of segments.
        copy(R2, R0),
        divide(R2, R1),
        add(R2, 1),
        Insn::Place("counted"),
        add(R2, -1),
        jump(IF_EQUAL, R2, 0, "measured"),
        // A GSO packet fits if each of its segments does. `wire_len` (qdisc_pkt_len_init) counts the headers once
        // for each segment, including those of a tunnel. `len` counts them once, so the difference is the headers
        // of all segments but one.
        load_word(R3, R6, SEGMENTS_LEN_AT),
        subtract(R3, R0),
        divide(R3, R2),
        copy(R0, R1),
        add_register(R0, R3),
        Insn::Place("measured"),
        set(R8, 1),
        jump(IF_MORE, R0, i32::from(mtu) + ip_at, "compare"),
        set(R8, 0),
        Insn::Place("compare"),
    ]);
    steps.extend(lately.steps());
    steps.extend(take(pair.helper));
    steps
}

/// Returns steps that read an IPv6 header and compute the hash of its addresses in register 7.
fn header_v6(base: Base, lately: &RecentFragments) -> Vec<Insn> {
    let mut steps = read(base, 0, HEADER, IPV6_LEN);
    steps.extend(lately.number(8, |word| load_word(R5, R10, HEADER + 8 + 4 * word)));
    steps
}

/// Returns steps that read an IPv4 header and compute the hash of its addresses in register 7.
fn header_v4(base: Base, lately: &RecentFragments) -> Vec<Insn> {
    let mut steps = read(base, 0, HEADER, IPV4_LEN);
    steps.extend(lately.number(2, |word| load_word(R5, R10, HEADER + 12 + 4 * word)));
    steps
}

/// The base of an offset in a packet.
#[derive(Clone, Copy)]
enum Base {
    /// The start of the frame, plus a number of bytes. The bytes to read need not be contiguous in memory.
    Frame(i32),
    /// The start of the IP header. The header must be contiguous in memory with all bytes to read.
    Ip,
}

/// Returns steps that make the headers contiguous in memory. Packets from a GRE tunnel still start with their outer
/// headers, whose length varies.
fn unfragmented() -> [Insn; 6] {
    [
        load_word(R2, R6, LEN_AT),
        jump(IF_LESS, R2, HEADERS_LEN_MAX, "is short"),
        set(R2, HEADERS_LEN_MAX),
        Insn::Place("is short"),
        copy(R1, R6),
        // A packet that stays scattered cannot be read, so it is not redirected.
        call(PULL_DATA),
    ]
}

/// Returns steps that copy `len` bytes of the packet to the stack. A shorter packet is not redirected.
fn read(base: Base, at: i32, to: i16, len: i32) -> Vec<Insn> {
    read_or(base, at, to, len, "pass")
}

/// Returns steps that copy `len` bytes of the packet to the stack. For a shorter packet, they jump to `otherwise`.
fn read_or(base: Base, at: i32, to: i16, len: i32, otherwise: &'static str) -> Vec<Insn> {
    let mut steps = vec![copy(R1, R6), copy(R3, R10), add(R3, to.into()), set(R4, len)];
    match base {
        Base::Frame(start) => steps.extend([set(R2, start + at), call(LOAD_BYTES)]),
        Base::Ip => steps.extend([set(R2, at), set(R5, FROM_IP_HEADER), call(LOAD_BYTES_RELATIVE)]),
    }
    steps.push(jump(IF_OTHER, R0, 0, otherwise));
    steps
}

/// Returns steps that copy a word of the IP header into the route request.
fn copy_word(from: i16, to: i16) -> [Insn; 2] {
    [load_word(R1, R10, HEADER + from), store_word(R10, QUESTION + to, R1)]
}

/// Returns the offset of the IP packet in an interface's frames, in bytes.
fn ip_at(link_type: LinkType) -> i32 {
    if link_type == LinkType::Ethernet { ETHERNET_LEN } else { 0 }
}

/// Converts to network byte order, as in `__sk_buff.protocol` and in two bytes read from a packet.
const fn network_order(half: u16) -> i32 {
    half.to_be() as i32
}

/// Value of `tc_index` that marks packets between an interface and its helper: "WL" in ASCII.
const NOTE: i32 = 0x574C;
/// Flags of bpf_redirect: to the interface's ingress (BPF_F_INGRESS), or to its egress.
const COMES_IN: i32 = 1;
const LEAVES: i32 = 0;
/// Offsets in `struct __sk_buff`: length, packet type, protocol, whether a tag was stripped, ingress interface,
/// `tc_index`. For a GSO packet also: length on the wire, number of segments, payload length of segments.
const LEN_AT: i16 = 0;
const STATION_AT: i16 = 4;
const ETHERTYPE_AT: i16 = 16;
const HAS_TAG_AT: i16 = 20;
const CAME_BY_AT: i16 = 36;
const NOTE_AT: i16 = 44;
const SEGMENTS_LEN_AT: i16 = 160;
const SEGMENT_COUNT_AT: i16 = 164;
const SEGMENT_LEN_AT: i16 = 176;
/// Segment size of a GSO packet with segments of different sizes, such as one of SCTP (GSO_BY_FRAGS).
const OF_ANY_LEN: i32 = 0xFFFF;
/// Packet type of frames to this host's MAC address (PACKET_HOST, linux/if_packet.h).
const THIS_STATION: i32 = 0;
/// BPF helper functions: `bpf_skb_pull_data`, `bpf_skb_load_bytes_relative` and `bpf_fib_lookup`.
const PULL_DATA: i32 = 39;
const LOAD_BYTES_RELATIVE: i32 = 68;
const LOOK_UP_ROUTE: i32 = 69;
/// Offsets on the stack, below the word of [`RecentFragments`]: the route request, the IP header, the Fragment
/// header.
const QUESTION: i16 = -QUESTION_LEN - 8;
const HEADER: i16 = QUESTION - 40;
const FRAGMENT: i16 = HEADER - 8;
/// Length of the route request (`struct bpf_fib_lookup`), and offsets in it. The address family is at offset 0. The
/// other offsets are: transport protocol, a port and the length, interface, traffic class (for IPv6 with the flow
/// label), addresses.
const QUESTION_LEN: i16 = 64;
const UPPER_AT: i16 = 1;
const PORT_AND_LEN_AT: i16 = 4;
const INDEX_AT: i16 = 8;
const SERVICE_AT: i16 = 12;
const SOURCE_AT: i16 = 16;
const DESTINATION_AT: i16 = 32;
/// The flag BPF_FIB_LOOKUP_SKIP_NEIGH: route lookup without neighbour lookup.
const WITHOUT_NEIGHBOUR: i32 = 1 << 2;
/// Results of a route lookup: BPF_FIB_LKUP_RET_SUCCESS, _NOT_FWDED, _FWD_DISABLED and _NO_NEIGH.
const FORWARDED: i32 = 0;
const NOT_FORWARDED: i32 = 4;
const FORWARDS_NOTHING: i32 = 5;
const KNOWS_NO_NEIGHBOUR: i32 = 7;
/// Base of an offset: the IP header (BPF_HDR_START_NET).
const FROM_IP_HEADER: i32 = 1;
/// Longest headers to read, in bytes: IPv4, GRE with all fields (RFC 2784, RFC 2890), IPv6, the IPv6 Fragment
/// header, and one byte of payload.
const HEADERS_LEN_MAX: i32 = 60 + 16 + 40 + 8 + 1;
/// Lengths of headers without options, in bytes.
const ETHERNET_LEN: i32 = 14;
const IPV4_LEN: i32 = 20;
const IPV6_LEN: i32 = 40;
const FRAGMENT_LEN: i32 = 8;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
/// Bits of the fragment field: offset and more-fragments flag of IPv4 (RFC 791 section 3.1), offset of IPv6 (RFC
/// 8200 section 4.5).
const OFFSET_OR_MORE_V4: u16 = 0x3FFF;
const OFFSET_V6: u16 = 0xFFF8;
const HOP_BY_HOP: i32 = 0;
const TCP: i32 = 6;
const NEXT_IS_FRAGMENT: i32 = 44;
const ICMPV6: i32 = 58;
/// Range of ICMPv6 types of neighbour discovery: router solicitation to redirect (RFC 4861 section 4).
const DISCOVERY_MIN: i32 = 133;
const DISCOVERY_MAX: i32 = 137;
