//! A connection with a raised MSS -> a TCP segment of this connection, to be quoted in an ICMP error.
//!
//! A border that is being removed tells wide hosts to send shorter segments. A host accepts the ICMP error only if
//! it quotes a segment of the connection. Sending is left to [`Connections::tell`](crate::Connections::tell).

use core::net::IpAddr;
use packet::ip::TCP;
use packet::{Address, LINK_LEN_MAX, LinkType, Packet, Sum, tcp};

/// A wide host that was told an MSS above that of the narrow side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raised {
    /// Maximum length of the packets that the wide host may send, in bytes, including the IP header.
    pub(crate) len: u16,
    /// The last acknowledgement number of the narrow host. `None` before the first acknowledgement.
    pub(crate) acked: Option<u32>,
    /// The link header of packets to the wide host.
    link: [u8; LINK_LEN_MAX],
    link_len: u8,
    link_type: LinkType,
}

impl Raised {
    /// Creates the record of a raised MSS, with the link header of a packet to the wide host.
    pub(crate) fn new(packet: &Packet, len: u16, acked: Option<u32>) -> Raised {
        let mut link = [0; LINK_LEN_MAX];
        let link_len = packet.link().len().min(LINK_LEN_MAX);
        link.iter_mut().zip(packet.link()).for_each(|(to, from)| *to = *from);
        Raised { len, acked, link, link_len: link_len as u8, link_type: packet.link_type() }
    }

    /// Creates the record of a raised MSS, with the link header of a packet from the wide host. The MAC addresses
    /// are swapped. The acknowledgement number is unknown.
    pub(crate) fn of_sender(packet: &Packet, len: u16) -> Raised {
        let mut raised = Raised::new(packet, len, None);
        if packet.link_type() == LinkType::Ethernet
            && let Some(stations) = raised.link.get_mut(..2 * STATION_LEN)
        {
            stations.rotate_left(STATION_LEN);
        }
        raised
    }

    /// Stores a later acknowledgement number. An advance by more than the longest window is ignored (RFC 7323
    /// section 2.3).
    #[inline]
    pub(crate) fn go_on_to(&mut self, ack: u32) {
        if self.acked.is_none_or(|before| ack.wrapping_sub(before) <= WINDOW_MAX) {
            self.acked = Some(ack);
        }
    }

    /// Builds a frame of the maximum length, as the wide host might have sent it. The TCP payload starts at the
    /// first unacknowledged byte. `None` before the first acknowledgement.
    pub(crate) fn segment(&self, wide: (Address, u16), narrow: (Address, u16)) -> Option<(Vec<u8>, LinkType)> {
        let (seq, len) = (self.acked?, usize::from(self.len));
        let mut frame = self.link.get(..usize::from(self.link_len))?.to_vec();
        if self.link_type == LinkType::Ethernet {
            frame.get_mut(..2 * STATION_LEN)?.rotate_left(STATION_LEN);
        }
        let link_len = frame.len();
        let ip_len = match (IpAddr::from(wide.0), IpAddr::from(narrow.0)) {
            (IpAddr::V4(wide), IpAddr::V4(narrow)) => {
                frame.extend([0x45, 0]);
                frame.extend(self.len.to_be_bytes());
                frame.extend([0, 0, 0x40, 0, TTL, TCP, 0, 0]);
                frame.extend([wide.octets(), narrow.octets()].concat());
                let checksum = Sum::of(frame.get(link_len..)?).checksum();
                frame.get_mut(link_len + 10..link_len + 12)?.copy_from_slice(&checksum.to_be_bytes());
                20
            }
            (IpAddr::V6(wide), IpAddr::V6(narrow)) => {
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((self.len - 40).to_be_bytes());
                frame.extend([TCP, TTL]);
                frame.extend([wide.octets(), narrow.octets()].concat());
                40
            }
            _ => return None,
        };
        frame.extend([wide.1.to_be_bytes(), narrow.1.to_be_bytes()].concat());
        frame.extend(seq.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, tcp::ACK, 0, 0, 0, 0, 0, 0]);
        debug_assert!(frame.len() == link_len + ip_len + tcp::HEADER_LEN, "headers are written");
        frame.resize(link_len + len, 0);
        Some((frame, self.link_type))
    }
}

/// Longest window (RFC 7323 section 2.3), in bytes.
const WINDOW_MAX: u32 = 1 << 30;
/// TTL or hop limit of a quoted packet.
const TTL: u8 = 64;
/// Length of an Ethernet address, in bytes.
const STATION_LEN: usize = 6;
