//! Addresses, places and payloads -> packets as on the wire.
//!
//! This file shares no code with the measured crates, because their output is compared with its packets.

/// Addresses of a packet's source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Version of IP: 4 or 6.
    pub version: u8,
    /// The last bits of the source's address.
    pub source: u32,
    /// The last bits of the destination's address.
    pub destination: u32,
}

/// Identification, offset and flag of a fragment.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Identification of the datagram.
    pub id: u32,
    /// Offset of the fragment in its datagram, in bytes.
    pub offset: usize,
    /// Whether more fragments of the datagram follow.
    pub more: bool,
}

/// A TCP header with timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Sequence number of the first payload byte.
    pub seq: u32,
    /// TCP flags, such as [`ACK`] and [`PSH`].
    pub flags: u8,
}

impl Pair {
    fn addresses(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        for number in [self.source, self.destination] {
            if self.version == 6 {
                bytes.extend_from_slice(&[0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0]);
                bytes.extend_from_slice(&number.to_be_bytes());
            } else {
                bytes.extend_from_slice(&(10 << 24 | number & 0xFF_FFFF).to_be_bytes());
            }
        }
        bytes
    }

    /// Returns the sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
    fn pseudo(self, protocol: u8, len: usize) -> u64 {
        sum(&self.addresses()) + u64::from(protocol) + len as u64
    }

    /// Returns a UDP datagram without IP headers: UDP header with checksum, and payload.
    pub fn udp(self, payload: &[u8]) -> Vec<u8> {
        let len = 8 + payload.len();
        let mut bytes = vec![0x23, 0x28, 0x23, 0x29, (len >> 8) as u8, len as u8, 0, 0];
        bytes.extend_from_slice(payload);
        let checksum = match !fold(sum(&bytes) + self.pseudo(UDP, len)) {
            0 => 0xFFFF,
            checksum => checksum,
        };
        put(&mut bytes, 6, checksum);
        bytes
    }

    /// Returns a TCP segment without IP headers. With `half`, the checksum is left to the NIC: the checksum field
    /// contains the sum of the pseudo-header.
    pub fn tcp(self, tcp: Tcp, payload: &[u8], half: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TCP_LEN + payload.len());
        bytes.extend_from_slice(&tcp.ports[0].to_be_bytes());
        bytes.extend_from_slice(&tcp.ports[1].to_be_bytes());
        bytes.extend_from_slice(&tcp.seq.to_be_bytes());
        bytes.extend_from_slice(&0x1234_5678_u32.to_be_bytes());
        bytes.extend_from_slice(&[(TCP_LEN as u8 / 4) << 4, tcp.flags, 0x20, 0, 0, 0, 0, 0, 1, 1, 8, 10]);
        bytes.extend_from_slice(&[0, 1, 2, 3, 0, 4, 5, 6]);
        bytes.extend_from_slice(payload);
        let pseudo = self.pseudo(TCP, bytes.len());
        let checksum = if half { fold(pseudo) } else { !fold(sum(&bytes) + pseudo) };
        put(&mut bytes, 16, checksum);
        bytes
    }

    /// Returns an unfragmented packet. In IPv4, DF is set.
    pub fn whole(self, protocol: u8, id: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = match self.version {
            6 => self.ipv6_header(protocol, payload.len()),
            _ => self.ipv4_header(protocol, id, 0x4000, payload.len()),
        };
        packet.extend_from_slice(payload);
        packet
    }

    /// Returns an unfragmented IPv4 packet without DF, which routers may fragment.
    pub fn cuttable(self, protocol: u8, id: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = self.ipv4_header(protocol, id, 0, payload.len());
        packet.extend_from_slice(payload);
        packet
    }

    /// Returns one fragment of a datagram.
    pub fn fragment(self, protocol: u8, place: Place, payload: &[u8]) -> Vec<u8> {
        let more = u16::from(place.more);
        let eights = (place.offset / 8) as u16;
        let mut packet = match self.version {
            6 => {
                let mut header = self.ipv6_header(FRAGMENT_HEADER, 8 + payload.len());
                header.extend_from_slice(&[protocol, 0]);
                header.extend_from_slice(&(eights << 3 | more).to_be_bytes());
                header.extend_from_slice(&place.id.to_be_bytes());
                header
            }
            _ => self.ipv4_header(protocol, place.id as u16, more << 13 | eights, payload.len()),
        };
        packet.extend_from_slice(payload);
        packet
    }

    fn ipv4_header(self, protocol: u8, id: u16, place: u16, payload_len: usize) -> Vec<u8> {
        let len = (IPV4_LEN + payload_len) as u16;
        let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        put(&mut header, 2, len);
        put(&mut header, 4, id);
        put(&mut header, 6, place);
        header.extend_from_slice(&self.addresses());
        seal_ipv4(&mut header);
        header
    }

    fn ipv6_header(self, next: u8, payload_len: usize) -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0, (payload_len >> 8) as u8, payload_len as u8, next, 64];
        header.extend_from_slice(&self.addresses());
        header
    }
}

/// Writes the checksum of an IPv4 header without options.
pub fn seal_ipv4(header: &mut [u8]) {
    put(header, 10, 0);
    let checksum = !fold(sum(&header[..IPV4_LEN]));
    put(header, 10, checksum);
}

/// Writes the checksum of a TCP segment in an IPv4 packet without options.
pub fn seal_tcp4(packet: &mut [u8]) {
    let len = packet.len() - IPV4_LEN;
    let pseudo = sum(&packet[12..IPV4_LEN]) + u64::from(TCP) + len as u64;
    put(packet, IPV4_LEN + 16, 0);
    let checksum = !fold(sum(&packet[IPV4_LEN..]) + pseudo);
    put(packet, IPV4_LEN + 16, checksum);
}

/// Writes a 16-bit word in network order.
pub fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// Reads a 16-bit word in network order.
pub fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Returns the sum of big-endian 16-bit words, not folded.
pub fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |last| u64::from(*last) << 8);
    words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + last
}

/// Folds a sum to 16 bits with end-around carry (RFC 1071).
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// Returns bytes without a pattern. Equal seeds give equal bytes.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of the IPv6 Fragment header.
const FRAGMENT_HEADER: u8 = 44;
/// Length of the IPv4 header, in bytes.
pub const IPV4_LEN: usize = 20;
/// Length of the IPv6 header, in bytes.
pub const IPV6_LEN: usize = 40;
/// Length of the TCP header with timestamps, in bytes.
pub const TCP_LEN: usize = 32;
/// TCP flag: the acknowledgement number is valid.
pub const ACK: u8 = 0x10;
/// TCP flag: push.
pub const PSH: u8 = 0x08;
