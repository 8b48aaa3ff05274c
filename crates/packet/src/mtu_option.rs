//! A router advertisement or a DHCP message -> the MTU that it advises to hosts.
//!
//! On a network with a large MTU, a router or DHCP server may still advise 1,500 bytes. Hosts that follow this
//! advice send small packets again. This file changes no packet. The warning to the operator is left to the caller.
//! Only advice that a host would follow is reported. Each packet is evaluated alone: no DHCP exchange is
//! remembered.

use crate::checksum::Sum;
use crate::ip::{ICMPV6, UDP, Version, pseudo_sum};
use crate::packet::Packet;
use crate::udp::{self, UdpHeader};

/// Returns the MTU that a packet advises to its receivers, in bytes. Of several MTUs, the smallest is returned.
///
/// - A router advertisement advises an MTU by its MTU option (RFC 4861 section 4.6.4). The advertisement must be
///   valid for hosts (section 6.1.2).
/// - A DHCPv4 server advises an MTU by the option Interface MTU (RFC 2132 section 5.1). The message must be an
///   offer, an acknowledgement or a BOOTP reply.
///
/// An MTU below the minimum MTU of the IP version is ignored.
pub fn advised_mtu(packet: &Packet) -> Option<u32> {
    let ip = packet.ip();
    let upper = ip.upper.filter(|_| ip.fragment.is_none())?;
    let bytes = packet.upper_bytes(upper);
    match (ip.version, upper.protocol) {
        (Version::V6, ICMPV6) => router_mtu(packet, bytes),
        (Version::V4, UDP) => dhcp_mtu(packet, bytes),
        _ => None,
    }
    .filter(|mtu| *mtu as usize >= ip.mtu_min())
}

/// Returns the MTU that a router advertises on its link; `None` if there is none, or if a host would ignore the
/// packet.
fn router_mtu(packet: &Packet, bytes: &[u8]) -> Option<u32> {
    let (header, options) = bytes.split_first_chunk::<ADVERTISEMENT_LEN>()?;
    let [ROUTER_ADVERTISEMENT, 0, ..] = header else { return None };
    // A forwarded packet was not sent by a router on this link (RFC 4861 section 6.1.2).
    let is_from_here = packet.header().get(HOP_LIMIT_AT) == Some(&HOP_LIMIT_MAX)
        && packet.header().get(SOURCE_AT..SOURCE_AT + 2).is_some_and(is_link_local);
    let sum = pseudo_sum(packet.addresses(), ICMPV6, bytes.len()) + Sum::of(bytes);
    if is_from_here && sum.is_right() { smallest_router_mtu(options) } else { None }
}

/// Returns the smallest MTU in these options; `None` if there is none. Also `None` if an option has length 0 or
/// exceeds the packet, because hosts then ignore the packet.
fn smallest_router_mtu(mut options: &[u8]) -> Option<u32> {
    let mut smallest: Option<u32> = None;
    while let [kind, eights, ..] = *options {
        let len = usize::from(eights) * 8;
        let (option, rest) = options.split_at_checked(len).filter(|_| len > 0)?;
        if let (MTU_OPTION, &[_, _, _, _, m0, m1, m2, m3]) = (kind, option) {
            let mtu = u32::from_be_bytes([m0, m1, m2, m3]);
            smallest = Some(smallest.map_or(mtu, |other| other.min(mtu)));
        }
        options = rest;
    }
    smallest.filter(|_| options.is_empty())
}

/// Returns the MTU that a DHCP server assigns to a client's interface; `None` if there is none, or if a client
/// would ignore the message.
fn dhcp_mtu(packet: &Packet, bytes: &[u8]) -> Option<u32> {
    let (header, message) = UdpHeader::parse(bytes)?;
    let is_for_client = (header.source.get(), header.destination.get()) == (SERVER_PORT, CLIENT_PORT);
    let message = message.get(..usize::from(header.len.get()).checked_sub(udp::HEADER_LEN)?)?;
    let (fixed, options) = message.split_first_chunk::<OPTIONS_AT>()?;
    let is_reply = fixed.first() == Some(&BOOT_REPLY) && fixed.ends_with(&COOKIE);
    if !is_for_client || !is_reply || !matches!(packet.checksum_error().fold(), 0 | 0xFFFF) {
        return None;
    }
    let mut said = AdvisedMtu::default();
    said.read(options)?;
    // Options may continue in the fields for the names of a file and a server (RFC 2132 section 9.3).
    let fields = match said.overload {
        0 => [None, None],
        1 => [fixed.get(FILE), None],
        2 => [None, fixed.get(SERVER_NAME)],
        3 => [fixed.get(FILE), fixed.get(SERVER_NAME)],
        _ => return None,
    };
    fields.into_iter().flatten().try_for_each(|field| said.read(field))?;
    said.mtu.filter(|_| matches!(said.kind, None | Some(OFFER | ACKNOWLEDGEMENT))).map(u32::from)
}

/// The relevant options of a DHCP message.
#[derive(Debug, Default)]
struct AdvisedMtu {
    kind: Option<u8>,
    overload: u8,
    /// The smallest MTU in the options. `None` if there is none.
    mtu: Option<u16>,
}

impl AdvisedMtu {
    /// Reads options up to their end (RFC 2132 section 2). `None` if an option exceeds the field.
    fn read(&mut self, mut options: &[u8]) -> Option<()> {
        while let [kind, rest @ ..] = options {
            options = match *kind {
                END => break,
                PAD => rest,
                kind => {
                    let (len, rest) = rest.split_first()?;
                    let (content, rest) = rest.split_at_checked(usize::from(*len))?;
                    self.read_option(kind, content);
                    rest
                }
            };
        }
        Some(())
    }

    fn read_option(&mut self, kind: u8, content: &[u8]) {
        match (kind, content) {
            (MESSAGE_TYPE, &[kind]) => self.kind = Some(kind),
            (OVERLOAD, &[which]) => self.overload = which,
            (INTERFACE_MTU, &[high, low]) => {
                let mtu = u16::from_be_bytes([high, low]);
                self.mtu = Some(self.mtu.map_or(mtu, |other| other.min(mtu)));
            }
            _ => {}
        }
    }
}

/// Whether an IPv6 address with these first two bytes is link-local: in fe80::/10 (RFC 4291 section 2.4).
fn is_link_local(front: &[u8]) -> bool {
    matches!(front, [0xFE, second] if second & 0xC0 == 0x80)
}

/// ICMPv6 type of router advertisements (RFC 4861 section 4.2).
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Length of the fixed part of a router advertisement, in bytes.
const ADVERTISEMENT_LEN: usize = 16;
/// Type of the MTU option (RFC 4861 section 4.6.4).
const MTU_OPTION: u8 = 5;
/// Offset of the hop limit in an IPv6 header, in bytes (RFC 8200 section 3).
const HOP_LIMIT_AT: usize = 7;
/// Offset of the source address in an IPv6 header, in bytes (RFC 8200 section 3).
const SOURCE_AT: usize = 8;
/// Hop limit of packets that were not forwarded (RFC 4861 section 6.1.2).
const HOP_LIMIT_MAX: u8 = 255;
/// UDP port of DHCP servers (RFC 2131 section 4.1).
const SERVER_PORT: u16 = 67;
/// UDP port of DHCP clients (RFC 2131 section 4.1).
const CLIENT_PORT: u16 = 68;
/// Operation code of server messages (RFC 2131 section 2).
const BOOT_REPLY: u8 = 2;
/// The magic cookie before the options (RFC 2131 section 3).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Range of the server name in a message, in bytes (RFC 2131 section 2). The field may contain options.
const SERVER_NAME: core::ops::Range<usize> = 44..108;
/// Range of the file name in a message, in bytes. The field may contain options.
const FILE: core::ops::Range<usize> = 108..236;
/// Offset of the options behind the cookie, in bytes.
const OPTIONS_AT: usize = 240;
/// Code of the padding option (RFC 2132 section 3.1).
const PAD: u8 = 0;
/// Code of the end option (RFC 2132 section 3.2).
const END: u8 = 255;
/// Code of the option Interface MTU (RFC 2132 section 5.1).
const INTERFACE_MTU: u8 = 26;
/// Code of the option Option Overload (RFC 2132 section 9.3).
const OVERLOAD: u8 = 52;
/// Code of the option DHCP Message Type (RFC 2132 section 9.6).
const MESSAGE_TYPE: u8 = 53;
/// Message type of an offer (RFC 2132 section 9.6).
const OFFER: u8 = 2;
/// Message type of an acknowledgement (RFC 2132 section 9.6).
const ACKNOWLEDGEMENT: u8 = 5;
