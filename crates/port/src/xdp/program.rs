//! Frames that a driver gives in, those that a socket takes over out: the program in front of an AF_XDP socket.

use crate::bpf::{
    self, EXIT, Hook, IF_EQUAL, IF_LESS, IF_MORE, IF_OTHER, Kind, R0, R1, R2, R3, R4, R5, R6, R8, Step, add,
    assemble, call, copy, go, jump, jump_above, load_byte, load_half, load_map, load_word, mask, set,
};
use crate::failure::advised;
use crate::lately::{Lately, number};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Which frames a socket takes over from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takes {
    /// All: a bump in the wire. The interface is promiscuous for as long.
    #[default]
    All,
    /// IP packets for one station, but for neighbour discovery (RFC 4861 section 4): the kernel keeps that, ARP, frames for
    /// groups and for all, and those with a VLAN tag.
    Unicast,
    /// Of those the ones that can be joined: fragments and TCP.
    Joinable,
    /// Of those fragments only. Whole packets between the same two addresses that come a moment later are taken with them, so
    /// that they come in order; fragments of IPv6 behind another extension header are not.
    Fragments,
}

/// The program and its map, on an interface until they are dropped.
#[derive(Debug)]
pub(super) struct Redirect {
    _link: OwnedFd,
    _map: OwnedFd,
    _lately: Lately,
}

impl Redirect {
    /// Attaches the program for the interface's only queue, in the driver where it can, else in front of the host.
    pub(super) fn attach(name: &str, index: u32, socket: BorrowedFd<'_>, takes: Takes) -> io::Result<Redirect> {
        let what = format!("xdp:{name}: cannot take frames over");
        let refused = |why: io::Error| advised(&what, &why, remedy(&why));
        let map = bpf::map(XSK_MAP, 1).map_err(refused)?;
        bpf::put(map.as_fd(), 0, socket.as_raw_fd().cast_unsigned()).map_err(refused)?;
        let lately = Lately::new().map_err(refused)?;
        let program = load(&taking(map.as_fd(), takes, &lately), &what)?;
        let attach = |mode| bpf::attach(program.as_fd(), index, Hook::Express, mode);
        let link = attach(IN_DRIVER).or_else(|_| attach(IN_FRONT)).map_err(refused)?;
        Ok(Redirect { _link: link, _map: map, _lately: lately })
    }
}

/// A program that lets every frame pass, until it is dropped. A veth receives by NAPI while it stands there, as a card does;
/// else it would only where GRO joins packets.
#[derive(Debug)]
pub struct Passing {
    _link: OwnedFd,
}

impl Passing {
    /// Attaches it to the interface with this index in the namespace of the calling thread.
    ///
    /// # Errors
    /// The right is missing, another program stands there, or the driver takes none.
    pub fn attach(index: u32) -> io::Result<Passing> {
        let what = format!("interface {index}: cannot let its frames pass by a program");
        let program = load(&[set(R0, PASS), EXIT], &what)?;
        let link = bpf::attach(program.as_fd(), index, Hook::Express, IN_DRIVER)
            .map_err(|why| advised(&what, &why, remedy(&why)))?;
        Ok(Passing { _link: link })
    }
}

fn load(steps: &[Step], what: &str) -> io::Result<OwnedFd> {
    bpf::load(Kind::Express, HAS_FRAGMENTS, &assemble(steps)).map_err(|refusal| refusal.about(what))
}

fn taking(map: BorrowedFd<'_>, takes: Takes, lately: &Lately) -> Vec<Step> {
    let mut steps = vec![copy(R6, R1)];
    if takes != Takes::All {
        steps.extend(choose(takes, lately));
    }
    steps.push(load_word(R2, R6, QUEUE_AT));
    steps.extend(load_map(R1, map));
    // The third argument is the verdict where nobody has the queue.
    steps.extend([set(R3, PASS), call(REDIRECT), EXIT]);
    steps
}

/// Lets pass what is not an IP packet for one station, neighbour discovery, and what else is not taken. Register 2 holds the
/// frame's start, 3 the end of what may be looked at: at least all headers, also of a frame in several parts.
fn choose(takes: Takes, lately: &Lately) -> Vec<Step> {
    let mut steps = vec![load_word(R2, R1, START_AT), load_word(R3, R1, END_AT)];
    steps.extend(reaches(IP_AT + IPV4_LEN, "pass"));
    steps.extend([
        load_byte(R5, R2, 0),
        mask(R5, GROUP),
        jump(IF_OTHER, R5, 0, "pass"),
        load_half(R5, R2, ETHERTYPE_AT),
        jump(IF_EQUAL, R5, network_order(ETHERTYPE_IPV4), "version 4"),
        jump(IF_OTHER, R5, network_order(ETHERTYPE_IPV6), "pass"),
        load_byte(R5, R2, NEXT_HEADER_AT),
        jump(IF_OTHER, R5, ICMPV6, "version 6"),
    ]);
    steps.extend(reaches(ICMPV6_AT + 1, "version 6"));
    steps.extend([
        load_byte(R5, R2, ICMPV6_AT as i16),
        jump(IF_LESS, R5, DISCOVERY_MIN, "version 6"),
        jump(IF_MORE, R5, DISCOVERY_MAX, "version 6"),
        Step::Place("pass"),
        set(R0, PASS),
        EXIT,
        Step::Place("version 6"),
    ]);
    if takes == Takes::Unicast {
        steps.extend([Step::Place("version 4"), Step::Place("take")]);
        return steps;
    }
    let is_tcp = |at| [load_byte(R5, R2, at), jump(IF_EQUAL, R5, TCP, "take")];
    steps.extend(reaches(ICMPV6_AT, "pass"));
    if takes == Takes::Joinable {
        steps.extend(is_tcp(NEXT_HEADER_AT));
    }
    steps.extend(number(8, |word| load_word(R5, R2, IPV6_SOURCE_AT + 4 * word)));
    steps.extend([
        load_byte(R5, R2, NEXT_HEADER_AT),
        set(R8, 1),
        jump(IF_EQUAL, R5, FRAGMENT, "known"),
        set(R8, 0),
        go("known"),
        Step::Place("version 4"),
    ]);
    if takes == Takes::Joinable {
        steps.extend(is_tcp(PROTOCOL_AT));
    }
    steps.extend(number(2, |word| load_word(R5, R2, IPV4_SOURCE_AT + 4 * word)));
    steps.extend([
        load_half(R5, R2, OFFSET_AT),
        mask(R5, network_order(OFFSET_OR_MORE)),
        set(R8, 1),
        jump(IF_OTHER, R5, 0, "known"),
        set(R8, 0),
        Step::Place("known"),
    ]);
    steps.extend(lately.steps());
    steps.push(Step::Place("take"));
    steps
}

/// Goes on at `otherwise` where the frame does not reach this far.
fn reaches(len: i32, otherwise: &'static str) -> [Step; 3] {
    [copy(R4, R2), add(R4, len), jump_above(R4, R3, otherwise)]
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            "another XDP program is there: `ip link` shows it; end who put it there"
        }
        Some(libc::ERANGE | libc::EINVAL | libc::EOPNOTSUPP) => {
            "its driver takes no such program at this MTU; use packet:"
        }
        _ => bpf::RIGHTS,
    }
}

/// As two bytes of a frame read in a register.
const fn network_order(ethertype: u16) -> i32 {
    ethertype.to_be() as i32
}

/// XDP_PASS.
const PASS: i32 = 2;
/// bpf_redirect_map.
const REDIRECT: i32 = 51;
/// BPF_MAP_TYPE_XSKMAP.
const XSK_MAP: u32 = 17;
/// BPF_F_XDP_HAS_FRAGS: frames of several parts.
const HAS_FRAGMENTS: u32 = 1 << 5;
/// XDP_FLAGS_DRV_MODE.
const IN_DRIVER: u32 = 1 << 2;
/// XDP_FLAGS_SKB_MODE.
const IN_FRONT: u32 = 1 << 1;
/// Where `struct xdp_md` has the frame's start and end, and the queue by which it came.
const START_AT: i16 = 0;
const END_AT: i16 = 4;
const QUEUE_AT: i16 = 16;
/// The bit of a station's first byte that says that it is a group.
const GROUP: i32 = 1;
/// Where the parts of an Ethernet frame stand, in bytes.
const ETHERTYPE_AT: i16 = 12;
const IP_AT: i32 = 14;
const NEXT_HEADER_AT: i16 = 20;
const IPV6_SOURCE_AT: i16 = 22;
const OFFSET_AT: i16 = 20;
const PROTOCOL_AT: i16 = 23;
const IPV4_SOURCE_AT: i16 = 26;
const ICMPV6_AT: i32 = 54;
const IPV4_LEN: i32 = 20;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
/// The fragment's offset and whether more follow (RFC 791 section 3.1).
const OFFSET_OR_MORE: u16 = 0x3FFF;
const TCP: i32 = 6;
const FRAGMENT: i32 = 44;
const ICMPV6: i32 = 58;
/// Router solicitation to redirect (RFC 4861 section 4).
const DISCOVERY_MIN: i32 = 133;
const DISCOVERY_MAX: i32 = 137;
