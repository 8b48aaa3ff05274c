//! A packet -> the kind of tunnel that it belongs to.
//!
//! Tunnels add headers, so tunnelled packets are the ones that outgrow a link. A tunnel is detected by its IP
//! protocol, or by its UDP port and the first bytes behind the UDP header. Nothing deeper is read, and no flow is
//! remembered. Detection is a heuristic: callers must stay correct when it is wrong.

use crate::ip::UDP;
use crate::packet::Packet;
use crate::udp::{self, UdpHeader};

/// A kind of tunnel, and how it is detected.
///
/// - A tunnel with its own IP protocol is detected by that alone, in later fragments too.
/// - A tunnel over UDP is detected on its usual ports only, and only if the UDP length fits the packet. Later
///   fragments have no ports, so they are not detected.
/// - Behind AH, all tunnels are detected in IPv6. None are in IPv4, where AH counts as the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// UDP to port 4789, or 8472 of older Linux, with one of two forms of flags:
    ///
    /// - the I flag, no other flag, and 0 in the reserved fields (RFC 7348 section 5);
    /// - the flags of a group policy (draft-smith-vxlan-group-policy).
    ///
    /// Other extensions are not detected. One random datagram in four million on these ports is a false positive.
    Vxlan,
    /// UDP to port 6081: version 0, and Ethernet, IPv4 or IPv6 inside (RFC 8926 section 3.4). Other contents are
    /// not detected. One random datagram in 90,000 on this port is a false positive.
    Geneve,
    /// IP protocol 47, with any content (RFC 2784). GRE in UDP (RFC 8086) is not detected.
    Gre,
    /// IPv4 inside IPv4 or IPv6 (protocol 4: RFC 2003, RFC 2473), or IPv6 inside either (protocol 41: RFC 4213,
    /// RFC 2473). The inner IP header is not checked.
    IpInIp,
    /// UDP from or to port 51820, the customary port; other ports are not detected.
    ///
    /// The payload has one of the four message types, three zero bytes, and a length allowed for the type
    /// (WireGuard paper, section 5.4). One random datagram in four thousand million on this port is a false
    /// positive.
    WireGuard,
    /// UDP from or to port 2152: GTP version 1 with a user's packet, message type 255 (3GPP TS 29.281 sections 5.1
    /// and 6.1). Control messages between its stations do not count. One random datagram in 4,096 on this port is a
    /// false positive.
    Gtp,
    /// ESP: IP protocol 50 (RFC 4303), or UDP from or to port 4500 with an SPI in its first four bytes (RFC 3948
    /// section 2).
    ///
    /// Transport mode is no tunnel, but looks the same and counts. Key exchange, which has 0 in place of the SPI,
    /// and keepalives do not count. All other datagrams of at least eight bytes on this port count. An example are
    /// the answers to a client that uses 4500 as its ephemeral port.
    Ipsec,
}

impl Tunnel {
    /// The tunnel that a packet appears to belong to.
    #[inline(always)]
    pub fn of(packet: &Packet) -> Option<Tunnel> {
        let ip = packet.ip();
        match ip.upper {
            Some(upper) if upper.protocol == UDP => in_udp(packet),
            Some(upper) => Tunnel::of_protocol(upper.protocol),
            // Later fragments in IPv6 may name any protocol (RFC 8200 section 4.5), but as sent they name that of
            // the first.
            None => Tunnel::of_protocol(ip.protocol),
        }
    }

    /// The tunnel that a later fragment with this protocol appears to belong to.
    #[inline]
    pub fn of_protocol(protocol: u8) -> Option<Tunnel> {
        match protocol {
            IPV4 | IPV6 => Some(Tunnel::IpInIp),
            GRE => Some(Tunnel::Gre),
            ESP => Some(Tunnel::Ipsec),
            _ => None,
        }
    }
}

/// Every rule whose port matches is tried, because the other end may use any port. The least strict rule comes
/// last.
fn in_udp(packet: &Packet) -> Option<Tunnel> {
    let (header, behind) = UdpHeader::parse(packet.upper_bytes(packet.ip().upper?))?;
    let (source, destination) = (header.source.get(), header.destination.get());
    let either = |port| source == port || destination == port;
    let message = || Message::of(packet, header, behind);
    if matches!(destination, VXLAN_PORT | OLD_VXLAN_PORT) && message()?.is_vxlan() {
        Some(Tunnel::Vxlan)
    } else if destination == GENEVE_PORT && message()?.is_geneve() {
        Some(Tunnel::Geneve)
    } else if either(GTP_PORT) && message()?.is_gtp() {
        Some(Tunnel::Gtp)
    } else if either(WIREGUARD_PORT) && message()?.is_wireguard() {
        Some(Tunnel::WireGuard)
    } else if either(ESP_PORT) && message()?.is_esp() {
        Some(Tunnel::Ipsec)
    } else {
        None
    }
}

/// The bytes behind a UDP header.
struct Message<'a> {
    /// The part that the packet holds.
    bytes: &'a [u8],
    /// Length of the whole message, in bytes; in a first fragment this exceeds the bytes present.
    len: usize,
}

impl<'a> Message<'a> {
    /// The message that starts at `behind`; none where the header states an impossible length.
    fn of(packet: &Packet, header: &UdpHeader, behind: &'a [u8]) -> Option<Message<'a>> {
        let ip = packet.ip();
        let len = match usize::from(header.len.get()) {
            0 if ip.length_missing => behind.len(),
            claimed_len => claimed_len.checked_sub(udp::HEADER_LEN)?,
        };
        let goes_on = ip.fragment.is_some_and(|fragment| fragment.more);
        let bytes = behind.get(..len).or(goes_on.then_some(behind))?;
        Some(Message { bytes, len })
    }

    fn is_vxlan(&self) -> bool {
        match *self.bytes {
            [VXLAN_ID, 0, 0, 0, _, _, _, 0, ..] => true,
            [VXLAN_ID_AND_GROUP, policy, _, _, _, _, _, 0, ..] => policy & !VXLAN_POLICY == 0,
            _ => false,
        }
    }

    fn is_geneve(&self) -> bool {
        match *self.bytes {
            [version_len, _, high, low, _, _, _, _, ..] => {
                version_len >> 6 == 0 && GENEVE_CONTENTS.contains(&u16::from_be_bytes([high, low]))
            }
            _ => false,
        }
    }

    fn is_gtp(&self) -> bool {
        matches!(*self.bytes, [flags, GTP_USER_PACKET, _, _, _, _, _, _, ..] if flags & GTP_KIND == GTP_VERSION_1)
    }

    fn is_wireguard(&self) -> bool {
        match *self.bytes {
            [1, 0, 0, 0, ..] => self.len == 148,
            [2, 0, 0, 0, ..] => self.len == 92,
            [3, 0, 0, 0, ..] => self.len == 64,
            // Padded to a multiple of 16, but never past the tunnel's MTU: its longest packets are no multiple.
            [4, 0, 0, 0, ..] => self.len >= 32,
            _ => false,
        }
    }

    fn is_esp(&self) -> bool {
        matches!(*self.bytes, [a, b, c, d, _, _, _, _, ..] if [a, b, c, d] != NO_ESP)
    }
}

/// Protocol numbers (IANA).
const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const ESP: u8 = 50;
/// UDP ports (IANA, but for the last).
const VXLAN_PORT: u16 = 4_789;
/// Linux used this port for VXLAN before one was assigned, and still does by default; flannel and Cilium kept it.
const OLD_VXLAN_PORT: u16 = 8_472;
const GENEVE_PORT: u16 = 6_081;
const GTP_PORT: u16 = 2_152;
const ESP_PORT: u16 = 4_500;
const WIREGUARD_PORT: u16 = 51_820;
/// First byte of VXLAN: with a network identifier; with a group, too.
const VXLAN_ID: u8 = 0x08;
const VXLAN_ID_AND_GROUP: u8 = 0x88;
/// Second byte, where there is a group: "do not learn" and "policy applied".
const VXLAN_POLICY: u8 = 0x48;
/// Protocol types of Geneve, as EtherTypes: Ethernet, IPv4, IPv6.
const GENEVE_CONTENTS: [u16; 3] = [0x6558, 0x0800, 0x86DD];
/// First byte of GTP: version and protocol type, which is 1 for GTP and 0 for GTP'.
const GTP_KIND: u8 = 0xF0;
const GTP_VERSION_1: u8 = 0x30;
const GTP_USER_PACKET: u8 = 255;
/// Key exchange on the same port has this in place of ESP's security parameters index.
const NO_ESP: [u8; 4] = [0; 4];
