//! A packet -> the kind of tunnel that it appears to belong to.
//!
//! Tunnels add headers, so tunnelled packets often exceed the MTU of a link. A tunnel is detected by its IP
//! protocol, or by its UDP port and the first bytes behind the UDP header. No inner header is parsed, and no flow
//! is remembered. Detection is a heuristic: callers must stay correct after a wrong result.

use crate::ip::UDP;
use crate::packet::Packet;
use crate::udp::{self, UdpHeader};

/// A kind of tunnel, and how it is detected.
///
/// - A tunnel with an IP protocol of its own is detected by the protocol number, in later fragments too.
/// - A tunnel over UDP is detected only on its usual ports, and only if the UDP length fits the packet. Later
///   fragments have no ports, so they are not detected.
/// - Behind an Authentication header, all tunnels are detected in IPv6, but none in IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// UDP to port 4789, or to Linux's default port 8472, with one of two forms of flags:
    ///
    /// - the I flag, no other flag, and 0 in the reserved fields (RFC 7348 section 5);
    /// - the flags of a group policy (draft-smith-vxlan-group-policy).
    ///
    /// Other extensions are not detected. One in four million random datagrams on these ports is a false positive.
    Vxlan,
    /// UDP to port 6081: version 0, and Ethernet, IPv4 or IPv6 inside (RFC 8926 section 3.4). Other contents are
    /// not detected. One in 90,000 random datagrams on this port is a false positive.
    Geneve,
    /// IP protocol 47, with any content (RFC 2784). GRE in UDP (RFC 8086) is not detected.
    Gre,
    /// IPv4 inside IPv4 or IPv6 (protocol 4: RFC 2003, RFC 2473), or IPv6 inside either (protocol 41: RFC 4213,
    /// RFC 2473). The inner IP header is not checked.
    IpInIp,
    /// UDP from or to port 51820, the usual port. Other ports are not detected.
    ///
    /// The payload has one of the four message types, three zero bytes, and a length allowed for the type
    /// (WireGuard paper, section 5.4). One in four thousand million random datagrams on this port is a false
    /// positive.
    WireGuard,
    /// UDP from or to port 2152: GTP version 1 with a user's packet, message type 255 (3GPP TS 29.281 sections 5.1
    /// and 6.1). Control messages are not detected. One in 4,096 random datagrams on this port is a false positive.
    Gtp,
    /// ESP: IP protocol 50 (RFC 4303), or UDP from or to port 4500 with an SPI in its first four bytes (RFC 3948
    /// section 2).
    ///
    /// Transport mode is no tunnel, but cannot be distinguished, so it is detected too. Key exchange has 0 in place
    /// of the SPI, and is not detected. Keepalives are not detected either. All other datagrams of at least eight
    /// bytes on this port are detected. So datagrams to a client that uses 4500 as its ephemeral port are false
    /// positives.
    Ipsec,
}

impl Tunnel {
    /// Returns the kind of tunnel that a packet appears to belong to. `None` if no tunnel is detected.
    #[inline(always)]
    pub fn of(packet: &Packet) -> Option<Tunnel> {
        let ip = packet.ip();
        match ip.upper {
            Some(upper) if upper.protocol == UDP => in_udp(packet),
            Some(upper) => Tunnel::of_protocol(upper.protocol),
            // Later IPv6 fragments may name any protocol (RFC 8200 section 4.5). In practice, they name the
            // protocol of the first fragment.
            None => Tunnel::of_protocol(ip.protocol),
        }
    }

    /// Returns the kind of tunnel for a later fragment with this protocol.
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

/// Returns the kind of tunnel over UDP. Every rule with a matching port is tried, because the other endpoint may
/// use any port, also that of another tunnel. The least strict rule is tried last.
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

/// The bytes behind a UDP header in a packet.
struct Message<'a> {
    /// The bytes that are present in the packet.
    bytes: &'a [u8],
    /// Length of the complete UDP payload, in bytes. In a first fragment, it exceeds the length of the bytes
    /// present.
    len: usize,
}

impl<'a> Message<'a> {
    /// Returns the message that starts at `behind`. `None` if the UDP length is impossible.
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
            // The payload is padded to a multiple of 16 bytes, but never beyond the tunnel's MTU. So the length of
            // the longest packets may be no multiple of 16.
            [4, 0, 0, 0, ..] => self.len >= 32,
            _ => false,
        }
    }

    fn is_esp(&self) -> bool {
        matches!(*self.bytes, [a, b, c, d, _, _, _, _, ..] if [a, b, c, d] != NO_ESP)
    }
}

/// Protocol numbers of tunnels (IANA).
const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const ESP: u8 = 50;
/// UDP ports of tunnels. IANA assigned these ports to the tunnels, except the old port of VXLAN and the port of
/// WireGuard.
const VXLAN_PORT: u16 = 4_789;
/// UDP port of VXLAN in Linux before the assignment by IANA. It is still the default of Linux, flannel and Cilium.
const OLD_VXLAN_PORT: u16 = 8_472;
const GENEVE_PORT: u16 = 6_081;
const GTP_PORT: u16 = 2_152;
const ESP_PORT: u16 = 4_500;
const WIREGUARD_PORT: u16 = 51_820;
/// First byte of a VXLAN header with a network identifier, and of one with a network identifier and a group policy.
const VXLAN_ID: u8 = 0x08;
const VXLAN_ID_AND_GROUP: u8 = 0x88;
/// Bits that may be set in the second byte of a VXLAN header with a group policy: "do not learn" and "policy
/// applied".
const VXLAN_POLICY: u8 = 0x48;
/// Protocol types inside Geneve, as EtherTypes: Ethernet, IPv4, IPv6.
const GENEVE_CONTENTS: [u16; 3] = [0x6558, 0x0800, 0x86DD];
/// Mask of version and protocol type in the first byte of GTP. The protocol type is 1 for GTP and 0 for GTP'.
const GTP_KIND: u8 = 0xF0;
const GTP_VERSION_1: u8 = 0x30;
const GTP_USER_PACKET: u8 = 255;
/// First four bytes of key exchange messages, in place of the SPI of ESP.
const NO_ESP: [u8; 4] = [0; 4];
