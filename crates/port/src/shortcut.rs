//! A wide interface and a narrow one in, a kernel that sends by the narrow one what needs no change out.
//!
//! What a host sends by its wide interface crosses the gateway only where it is longer than the narrow link takes. The rest the
//! kernel hands on by itself: it costs no copy and wakes nobody. Packets that follow longer ones go their way, so that flows
//! stay in order.

use crate::bpf::{
    self, EXIT, Hook, IF_EQUAL, IF_MORE, IF_OTHER, Kind, R0, R1, R2, R3, R4, R5, R6, R8, R9, R10, RIGHTS, Step,
    add, add_register, assemble, call, copy, go, jump, load_byte, load_word, mask, multiply, set, shift_left,
    shift_right, subtract,
};
use crate::failure::{advised, failed};
use crate::lately::{Lately, number};
use packet::Medium;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Has the kernel send what fits, for as long as this lives.
#[derive(Debug)]
pub struct Shortcut {
    _link: OwnedFd,
    _lately: Lately,
}

impl Shortcut {
    /// What is sent by the interface `from` and is not longer than `mtu` bytes, as a packet or in segments, goes out by the
    /// interface `to`, by the routes that lead over that one, to its neighbours; both are of the calling thread's namespace.
    /// What is for groups does not.
    ///
    /// # Errors
    /// The right is missing, or the kernel is too old.
    pub fn open(from: u32, medium: Medium, to: u32, mtu: u16) -> io::Result<Shortcut> {
        let what = format!("interface {from}: cannot have the kernel send what fits");
        let lately = Lately::new().map_err(|why| advised(&what, &why, RIGHTS))?;
        let steps = assemble(&steps(medium, to, mtu, &lately));
        let program = bpf::load(Kind::Classifier, 0, &steps).map_err(|refusal| refusal.about(&what))?;
        let link = bpf::attach(program.as_fd(), from, Hook::Egress, 0).map_err(|why| match why.raw_os_error() {
            Some(libc::EINVAL) => advised(&what, &why, "it needs Linux 6.6"),
            Some(libc::ENODEV) => failed(&what, &why),
            _ => advised(&what, &why, RIGHTS),
        })?;
        Ok(Shortcut { _link: link, _lately: lately })
    }
}

/// Register 8 becomes 1 where the packet is too long; 9 is the length of its headers.
fn steps(medium: Medium, to: u32, mtu: u16, lately: &Lately) -> Vec<Step> {
    let ip_at = if medium == Medium::Ethernet { ETHERNET_LEN } else { 0 };
    let mut steps = vec![
        copy(R6, R1),
        load_word(R0, R6, ETHERTYPE_AT),
        jump(IF_EQUAL, R0, network_order(ETHERTYPE_IPV4), "version 4"),
        jump(IF_OTHER, R0, network_order(ETHERTYPE_IPV6), "take"),
    ];
    steps.extend(read(ip_at, IPV6_LEN));
    steps.extend([load_byte(R0, R10, HEADER + 24), jump(IF_EQUAL, R0, GROUPS_V6, "take")]);
    steps.extend(number(8, |word| load_word(R5, R10, HEADER + 8 + 4 * word)));
    steps.extend([set(R9, IPV6_LEN), load_byte(R8, R10, HEADER + 6), go("known"), Step::Place("version 4")]);
    steps.extend(read(ip_at, IPV4_LEN));
    steps.extend([load_byte(R0, R10, HEADER + 16), jump(IF_MORE, R0, GROUPS_V4 - 1, "take")]);
    steps.extend(number(2, |word| load_word(R5, R10, HEADER + 12 + 4 * word)));
    steps.extend([
        load_byte(R9, R10, HEADER),
        mask(R9, 0x0F),
        shift_left(R9, 2),
        load_byte(R8, R10, HEADER + 9),
        Step::Place("known"),
        load_word(R0, R6, SEGMENT_LEN_AT),
        jump(IF_OTHER, R0, 0, "train"),
        load_word(R0, R6, LEN_AT),
        add(R0, -ip_at),
        go("measured"),
        // A train fits where each of its segments does.
        Step::Place("train"),
        jump(IF_OTHER, R8, TCP, "no TCP"),
    ]);
    steps.extend([
        copy(R1, R6),
        copy(R2, R9),
        add(R2, ip_at + 12),
        copy(R3, R10),
        add(R3, TYPE.into()),
        set(R4, 1),
    ]);
    steps.extend([
        call(LOAD_BYTES),
        jump(IF_OTHER, R0, 0, "take"),
        load_byte(R1, R10, TYPE),
        shift_right(R1, 4),
        shift_left(R1, 2),
        add_register(R9, R1),
        go("sum"),
        Step::Place("no TCP"),
        jump(IF_OTHER, R8, UDP, "take"),
        add(R9, UDP_LEN),
    ]);
    steps.extend(unless_inside(ip_at));
    steps.extend([
        Step::Place("sum"),
        load_word(R0, R6, SEGMENT_LEN_AT),
        add_register(R0, R9),
        Step::Place("measured"),
        set(R8, 1),
        jump(IF_MORE, R0, mtu.into(), "compare"),
        set(R8, 0),
        Step::Place("compare"),
    ]);
    steps.extend(lately.steps());
    steps.push(Step::Place("pass"));
    if medium == Medium::Ip {
        // Room for the link header, which the kernel then writes.
        steps.extend([copy(R1, R6), set(R2, ETHERNET_LEN), set(R3, 0), call(GROW_FRONT)]);
        steps.push(jump(IF_OTHER, R0, 0, "take"));
    }
    steps.extend([set(R1, to.cast_signed()), set(R2, 0), set(R3, 0), set(R4, 0), call(SEND_TO_NEIGHBOUR), EXIT]);
    steps.extend([Step::Place("take"), set(R0, NEXT), EXIT]);
    steps
}

/// Takes a train of a tunnel by UDP: its segments are longer, by the headers inside. The kernel says how long all of them are, each
/// with its headers; register 9 is the length that those of UDP alone have.
fn unless_inside(ip_at: i32) -> [Step; 10] {
    [
        load_word(R0, R6, SEGMENTS_LEN_AT),
        load_word(R1, R6, LEN_AT),
        subtract(R0, R1),
        load_word(R1, R6, SEGMENT_COUNT_AT),
        add(R1, -1),
        copy(R2, R9),
        add(R2, ip_at),
        multiply(R1, R2),
        subtract(R0, R1),
        jump(IF_OTHER, R0, 0, "take"),
    ]
}

/// Reads so much of the packet's header to the stack.
fn read(at: i32, len: i32) -> [Step; 7] {
    [
        copy(R1, R6),
        set(R2, at),
        copy(R3, R10),
        add(R3, HEADER.into()),
        set(R4, len),
        call(LOAD_BYTES),
        jump(IF_OTHER, R0, 0, "take"),
    ]
}

/// As `__sk_buff.protocol` reads.
const fn network_order(ethertype: u16) -> i32 {
    ethertype.to_be() as i32
}

/// TCX_NEXT.
const NEXT: i32 = -1;
/// Where `struct __sk_buff` has its length, its protocol, the length of a train once it is cut, the count of its segments, and
/// the length of their payload.
const LEN_AT: i16 = 0;
const ETHERTYPE_AT: i16 = 16;
const SEGMENTS_LEN_AT: i16 = 160;
const SEGMENT_COUNT_AT: i16 = 164;
const SEGMENT_LEN_AT: i16 = 176;
/// bpf_skb_load_bytes, bpf_skb_change_head and bpf_redirect_neigh.
const LOAD_BYTES: i32 = 26;
const GROW_FRONT: i32 = 43;
const SEND_TO_NEIGHBOUR: i32 = 152;
/// Where things lie on the stack: the IP header, a byte of the transport header.
const HEADER: i16 = -56;
const TYPE: i16 = -16;
const ETHERNET_LEN: i32 = 14;
const IPV4_LEN: i32 = 20;
const IPV6_LEN: i32 = 40;
const UDP_LEN: i32 = 8;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const TCP: i32 = 6;
const UDP: i32 = 17;
/// First bytes of groups' addresses (RFC 1112 section 4, with 255.255.255.255; RFC 4291 section 2.4).
const GROUPS_V4: i32 = 224;
const GROUPS_V6: i32 = 0xFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_fits_where_its_segments_do_with_all_of_their_headers() {
        let lately = Lately::new().expect("the test runs as root");
        let program = bpf::load(Kind::Classifier, 0, &assemble(&steps(Medium::Ethernet, 1, 1_500, &lately)))
            .expect("the kernel takes it");
        let mut last = 0;
        let mut fits = |ip: Vec<u8>, header_len: usize, count: usize, segment_len: usize| {
            // Packets between the same addresses would follow one that is taken.
            last += 1;
            let mut frame = [&[2; 12][..], if ip[0] == 0x45 { &[8, 0] } else { &[0x86, 0xDD] }, &ip].concat();
            frame[14 + if ip[0] == 0x45 { 19 } else { 39 }] = last;
            frame.resize(14 + header_len + count * segment_len, 0);
            let mut told = [0_u8; 184];
            let all = frame.len() + (count - 1) * (14 + header_len);
            for (at, value) in [(160, all), (164, count), (176, segment_len)] {
                told[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
            }
            bpf::run_told(program.as_fd(), &frame, &told).expect("it runs") == REDIRECTED
        };
        for (version, ip_len) in [(4, 20), (6, 40)] {
            for (segment_len, is_fit) in [(1_472, true), (1_473, false)] {
                let segment_len = segment_len + 20 - ip_len;
                assert_eq!(fits(ip(version, UDP), ip_len + 8, 2, segment_len), is_fit, "UDP {segment_len}");
                assert_eq!(fits(ip(version, TCP), ip_len + 20, 2, segment_len - 12), is_fit, "TCP {segment_len}");
            }
            // A tunnel by UDP, with TCP inside: 8 bytes of its own, Ethernet, IPv4, TCP with a timestamp.
            for segment_len in [1_398, 1_399, 1_448] {
                let header_len = ip_len + 8 + 8 + 14 + 20 + 32;
                assert!(!fits(ip(version, UDP), header_len, 2, segment_len), "a tunnel's {segment_len}");
            }
        }
    }

    /// The headers of a packet.
    fn ip(version: u8, protocol: i32) -> Vec<u8> {
        let mut packet = match version {
            6 => vec![0x60, 0, 0, 0, 0, 0, protocol as u8, 64],
            _ => vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol as u8, 0, 0],
        };
        packet.extend(vec![10; if version == 6 { 32 } else { 8 }]);
        packet.resize(packet.len() + 12, 0);
        packet.push(0x50);
        packet
    }

    /// TCX_REDIRECT.
    const REDIRECTED: u32 = 7;
}
