//! A frame -> the hashes that identify its flow.

use crate::keyed_hash::TableKey;
use packet::ip::TCP;
use packet::tcp::{FIN, RST, SYN};
use packet::{Frame, Packet, Version};

/// The hashes that may identify the flow of a frame.
pub(super) struct FlowKey {
    /// The hash of addresses and ports. `None` unless the frame is a whole TCP packet.
    pub(super) connection: Option<u64>,
    /// The hash of the addresses.
    pub(super) pair: u64,
    /// Whether the frame may be a fragment of a TCP packet.
    pub(super) may_be_tcp_fragment: bool,
    /// Whether the frame is a SYN, FIN or RST. A FIN with data is not one.
    pub(super) is_control: bool,
}

impl FlowKey {
    pub(super) fn of(frame: &Frame, key: &TableKey) -> FlowKey {
        match frame {
            Frame::Ip(packet) => FlowKey::of_packet(packet, key),
            Frame::Other(..) => {
                FlowKey { connection: None, pair: 0, may_be_tcp_fragment: false, is_control: false }
            }
        }
    }

    fn of_packet(packet: &Packet, key: &TableKey) -> FlowKey {
        let ip = packet.ip();
        let [first, second, third, fourth] = packet.ends().words();
        let [tags, _] = packet.l2_scope().words();
        let version = match ip.version {
            Version::V4 => 4,
            Version::V6 => 6,
        };
        let hash = |ports: u64, protocol: u8| {
            key.hash([first, second, third, fourth, ports, u64::from(protocol) << 8 | version, tags, 0])
        };
        let pair = hash(0, ip.key_protocol());
        let (is_whole, is_tcp) = (ip.fragment.is_none(), ip.is_numbered() && ip.protocol == TCP);
        let may_be_tcp_fragment = !is_whole && (is_tcp || !ip.is_numbered());
        let header =
            ip.upper.filter(|upper| is_whole && upper.protocol == TCP).map(|upper| packet.upper_bytes(upper));
        match header {
            Some([a, b, c, d, _, _, _, _, _, _, _, _, offset, flags, ..]) => {
                let ports = u32::from_be_bytes([*a, *b, *c, *d]);
                // One more than the ports, so that no connection has the hash of its pair of hosts.
                let connection = Some(hash(u64::from(ports) + 1, TCP));
                let has_payload = header.is_some_and(|header| header.len() > usize::from(offset >> 4) * 4);
                let is_control = flags & (SYN | RST) != 0 || flags & FIN != 0 && !has_payload;
                FlowKey { connection, pair, may_be_tcp_fragment, is_control }
            }
            _ => FlowKey { connection: None, pair, may_be_tcp_fragment, is_control: false },
        }
    }
}
