//! A TCP packet -> a TCP packet without data in the opposite direction, such as an acknowledgement.
//!
//! The reply goes back to the station that sent the packet. The choice of the numbers is left to the engine.

use crate::checksum::Sum;
use crate::ip::{TCP, pseudo_sum};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::packet::{Packet, Pool};
use crate::tcp;
use core::net::IpAddr;
use zerocopy::IntoBytes;

/// The header fields of a TCP packet without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpReply {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number: the next byte expected from the peer.
    pub ack: u32,
    /// Receive window, without window scaling.
    pub window: u16,
    /// The eight flags.
    pub flags: u8,
    /// Timestamp, and the peer's timestamp, echoed (RFC 7323 section 3). `None`: the packet has no options.
    pub timestamps: Option<[u32; 2]>,
}

impl TcpReply {
    /// Builds the reply to `packet`, from its receiver to its sender. IPv4 packets have DF and no identification (RFC
    /// 6864 section 4.1). `None` if `packet` is no TCP segment, or if the pool has no buffer.
    pub fn to(&self, packet: &Packet, pool: &mut Pool) -> Option<Packet> {
        let [source_port, destination_port] = packet.tcp_facts()?.ports;
        let mut options = Vec::new();
        if let Some([value, echo]) = self.timestamps {
            options.extend(TIMESTAMPS);
            options.extend([value.to_be_bytes(), echo.to_be_bytes()].concat());
        }
        let len = tcp::HEADER_LEN + options.len();
        let mut segment = Vec::with_capacity(len);
        segment.extend([destination_port.to_be_bytes(), source_port.to_be_bytes()].concat());
        segment.extend([self.seq.to_be_bytes(), self.ack.to_be_bytes()].concat());
        segment.extend([(len as u8 / 4) << 4, self.flags]);
        segment.extend([self.window.to_be_bytes(), [0; 2], [0; 2]].concat());
        segment.extend(options);
        let (receiver, sender) = packet.addresses();
        let checksum = (pseudo_sum((sender, receiver), TCP, len) + Sum::of(&segment)).checksum();
        segment.get_mut(tcp::CHECKSUM_AT..tcp::CHECKSUM_AT + 2)?.copy_from_slice(&checksum.to_be_bytes());
        match (IpAddr::from(sender), IpAddr::from(receiver)) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = Ipv4Header::for_reply(TCP, 0, from.octets(), to.octets(), segment.len());
                packet.reply(&[header.as_bytes(), &segment], pool)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let header = Ipv6Header::for_reply(TCP, from.octets(), to.octets(), segment.len());
                packet.reply(&[header.as_bytes(), &segment], pool)
            }
            _ => None,
        }
    }
}

/// The start of a timestamps option behind two bytes of padding (RFC 7323 appendix A).
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
