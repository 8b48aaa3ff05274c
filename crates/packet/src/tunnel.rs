//! A packet in, the kind of tunnel that it carries out.
//!
//! A tunnel adds headers to what hosts sent, so it is in tunnels that packets outgrow a link. One is told by its IP
//! protocol, or by its UDP port and the first bytes behind it; nothing is read farther in, and no flow is remembered.
//! That is a guess: who asks must be right with a wrong answer too.

use crate::ip::UDP;
use crate::packet::Packet;
use crate::udp::{self, UdpHeader};

/// A kind of tunnel, and how it is told.
///
/// What has an IP protocol of its own is told by that alone, in later fragments too. What is in UDP is told on its
/// usual ports only, where the UDP header's length fits the packet, and not in later fragments, for they have no ports.
/// Behind AH all are told in IPv6, and none in IPv4, where AH counts as the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// UDP to port 4789, or 8472 of older Linux: the I flag, no flag beside it and 0 in what is reserved (RFC 7348
    /// section 5), or those of a group policy (draft-smith-vxlan-group-policy). With any other extension it
    /// is not seen. One random datagram in four million on these ports is taken for it.
    Vxlan,
    /// UDP to port 6081: version 0, and Ethernet, IPv4 or IPv6 inside (RFC 8926 section 3.4). With anything else inside
    /// it is not seen. One random datagram in 90,000 on this port is taken for it.
    Geneve,
    /// IP protocol 47, whatever is inside (RFC 2784). GRE in UDP (RFC 8086) is not seen.
    Gre,
    /// IPv4 inside IPv4 or IPv6 (protocol 4: RFC 2003, RFC 2473), or IPv6 inside either (protocol 41: RFC 4213,
    /// RFC 2473). Whether there is an IP header inside is not looked at.
    IpInIp,
    /// UDP from or to port 51820: one of the four message types, three zero bytes, and a length that the type may have
    /// (WireGuard paper, section 5.4). The port is a custom; on any other it is not seen. One random datagram in four
    /// thousand million on this port is taken for it.
    WireGuard,
    /// UDP from or to port 2152: GTP version 1 with a user's packet, message type 255 (3GPP TS 29.281 sections 5.1 and
    /// 6.1). What its stations say to each other is no tunnel. One random datagram in 4,096 on this port is taken for
    /// it.
    Gtp,
    /// ESP: IP protocol 50 (RFC 4303), or UDP from or to port 4500 with a number in its first four bytes (RFC 3948
    /// section 2). Transport mode, which is no tunnel, looks alike and counts. Key exchange, which has 0 there, and
    /// keepalives do not. All else of eight bytes and more on this port is taken for it, such as the answers to a
    /// client that drew it.
    Ipsec,
}

impl Tunnel {
    /// The tunnel that a packet belongs to, where it looks like one.
    #[inline(always)]
    pub fn of(packet: &Packet) -> Option<Tunnel> {
        let ip = packet.ip();
        match ip.upper {
            Some(upper) if upper.protocol == UDP => in_udp(packet),
            Some(upper) => Tunnel::of_protocol(upper.protocol),
            // Later pieces in IPv6 may name any protocol (RFC 8200 section 4.5), and as sent they name that of the
            // first.
            None => Tunnel::of_protocol(ip.protocol),
        }
    }

    /// The tunnel that a later piece with this protocol belongs to, where it looks like one.
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

/// Each rule whose port fits is asked, for the other end may have drawn any port; the one that asks least comes last.
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

/// What stands behind a UDP header.
struct Message<'a> {
    /// As much of it as the packet holds.
    bytes: &'a [u8],
    /// All of it, in bytes: more than the packet holds where this is a first fragment.
    len: usize,
}

impl<'a> Message<'a> {
    /// The message that starts at `behind`; none where the header says a length that cannot be.
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
/// Linux had VXLAN here before it had a port, and still does where it is told none; flannel and Cilium kept it.
const OLD_VXLAN_PORT: u16 = 8_472;
const GENEVE_PORT: u16 = 6_081;
const GTP_PORT: u16 = 2_152;
const ESP_PORT: u16 = 4_500;
const WIREGUARD_PORT: u16 = 51_820;
/// First byte of VXLAN: there is a network identifier; there is a group, too.
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
/// Where ESP has its security parameters index, key exchange on the same port has this.
const NO_ESP: [u8; 4] = [0; 4];
