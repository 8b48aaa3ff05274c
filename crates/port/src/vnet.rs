//! virtio-net header -> a packet's GSO and checksum state; offload request -> virtio-net header.
//!
//! TUN devices and packet sockets put this header before each frame. The numbers in it are in the host's byte
//! order. The engine only sees the packet's state, never the header.

use crate::port::{GsoKind, TxOffload};
use packet::{
    Buffer, Checksum, Frame, Gso, Identifications, Ingress, InnerSegments, LinkType, Maker, Packet, ParseError,
    Pool, Sum,
};

/// Contents of a virtio-net header (virtio 1.2, section 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    kind: u8,
    header_len: u16,
    segment_len: u16,
    /// Offset of the first byte that the checksum covers, from the frame's start, in bytes.
    sum_at: u16,
    /// Offset of the checksum field from `sum_at`, in bytes.
    field_at: u16,
}

/// Position of a frame in its buffer's memory, and the frame's link type and ingress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub at: usize,
    pub len: usize,
    pub link_type: LinkType,
    pub ingress: Ingress,
}

impl VnetHeader {
    /// Parses a virtio-net header.
    #[inline]
    pub fn read(bytes: &[u8; LEN]) -> VnetHeader {
        let [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1, ..] = *bytes;
        VnetHeader {
            flags,
            kind,
            header_len: u16::from_ne_bytes([h0, h1]),
            segment_len: u16::from_ne_bytes([s0, s1]),
            sum_at: u16::from_ne_bytes([c0, c1]),
            field_at: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// Serialises the header.
    #[inline]
    pub fn write(self) -> [u8; LEN] {
        let [h0, h1] = self.header_len.to_ne_bytes();
        let [s0, s1] = self.segment_len.to_ne_bytes();
        let [c0, c1] = self.sum_at.to_ne_bytes();
        let [o0, o1] = self.field_at.to_ne_bytes();
        [self.flags, self.kind, h0, h1, s0, s1, c0, c1, o0, o1, 0, 0]
    }

    /// Returns the header that requests the offloads `offload` from the kernel.
    #[inline]
    pub fn of(to_do: TxOffload) -> VnetHeader {
        let mut header = VnetHeader::default();
        if let Some((sum_at, field_at)) = to_do.checksum {
            header.flags = NEEDS_CHECKSUM;
            (header.sum_at, header.field_at) = (sum_at, field_at.saturating_sub(sum_at));
        }
        if let Some(gso) = to_do.gso {
            header.kind = kind(gso.kind);
            (header.header_len, header.segment_len) = (gso.header_len, gso.segment_len);
        }
        header
    }

    /// Returns this header with a request for contiguous kernel memory for a frame of `len` bytes. A link without
    /// scatter-gather would otherwise copy the frame. The header of a GSO packet, or of a frame longer than
    /// [`ONE_FRAGMENT_LEN_MAX`], is returned unchanged.
    #[inline]
    pub fn unfragmented(self, len: usize) -> VnetHeader {
        match u16::try_from(len) {
            Ok(header_len) if self.kind == 0 && header_len <= ONE_FRAGMENT_LEN_MAX => {
                VnetHeader { header_len, ..self }
            }
            _ => self,
        }
    }

    /// Returns this header, adapted to `len` bytes that were inserted in front of the bytes that the checksum
    /// covers.
    pub fn moved_by(self, len: u16) -> VnetHeader {
        VnetHeader { sum_at: self.sum_at.saturating_add(len), ..self }
    }

    /// Returns this header, adapted to `len` bytes that were removed in front of the bytes that the checksum
    /// covers.
    pub fn moved_back_by(self, len: u16) -> VnetHeader {
        VnetHeader { sum_at: self.sum_at.saturating_sub(len), ..self }
    }

    /// Whether the header requests no offload. Only then can the frame be a fragment.
    #[inline]
    pub fn leaves_nothing(self) -> bool {
        self.flags & NEEDS_CHECKSUM == 0 && self.kind & !CWR == 0
    }

    /// Whether the sender left a checksum or segmentation to the NIC.
    fn is_offloaded(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0 || self.kind & !CWR != 0
    }

    /// Returns the state of the transport checksum. The header must request no offload.
    #[inline]
    pub fn checksum(self) -> Checksum {
        if self.flags & CHECKSUM_IS_VALID != 0 { Checksum::Verified } else { Checksum::Unverified }
    }

    /// Appends the frame of this header to `frames`. A GSO packet inside a tunnel is appended as separate segments
    /// instead. Returns the number of frames for which the pool had no buffer.
    #[inline]
    pub fn read_into(self, buffer: Buffer, laid: Split, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        if self.flags & NEEDS_CHECKSUM == 0 || self.segment_len == 0 || self.kind & !CWR == 0 {
            frames.push(self.read_frame(buffer, laid));
            return 0;
        }
        let bytes = buffer.bytes(laid.at..laid.at + laid.len);
        match InnerSegments::of(bytes, laid.link_type, self.sum_at.into(), self.segment_len) {
            None => frames.push(self.read_frame(buffer, laid)),
            Some(segments) if segments.count() > INNER_COUNT_MAX => {
                let raw = match self.read_frame(buffer, laid) {
                    Frame::Ip(packet) => packet.into_opaque_frame(),
                    Frame::Other(raw, _) => raw,
                };
                frames.push(Frame::Other(raw, ParseError::TooManySegments));
            }
            Some(segments) => {
                let lost_count = read_segments(segments, laid, pool, frames);
                pool.give(buffer);
                return lost_count;
            }
        }
        0
    }

    /// Parses the frame of this header.
    ///
    /// A partial checksum of a TCP or UDP packet stays partial until the packet is sent. All other partial
    /// checksums are completed here, such as those of SCTP and those inside a tunnel.
    #[inline]
    pub fn read_frame(self, buffer: Buffer, laid: Split) -> Frame {
        match Frame::read(buffer, laid.at, laid.len, laid.link_type, laid.ingress) {
            // A host may leave the IP length to its NIC, but a packet from a wire must have a length (RFC 1812
            // section 5.2.2).
            Frame::Ip(packet) if packet.ip().length_missing && !self.is_offloaded() => {
                Frame::Other(packet.into_opaque_frame(), ParseError::BadTotalLen)
            }
            Frame::Ip(mut packet) => {
                if self.flags & NEEDS_CHECKSUM != 0 {
                    packet.checksum = Checksum::Partial;
                    if !self.covers_transport(&mut packet) {
                        return self.finish(packet, laid);
                    }
                } else if self.flags & CHECKSUM_IS_VALID != 0 {
                    packet.checksum = Checksum::Verified;
                }
                packet.gso = self.gso(&packet);
                Frame::Ip(packet)
            }
            Frame::Other(raw, _) if self.flags & NEEDS_CHECKSUM != 0 => {
                let mut buffer = raw.into_buffer();
                self.finish_inside(&mut buffer, laid, false);
                Frame::read(buffer, laid.at, laid.len, laid.link_type, laid.ingress)
            }
            other => other,
        }
    }

    /// Whether the partial checksum is the packet's own transport checksum.
    fn covers_transport(self, packet: &mut Packet) -> bool {
        let Some((upper_at, field_at)) = packet.defer_checksum() else { return false };
        let upper_at = packet.link().len() + upper_at;
        let sum_at = usize::from(self.sum_at);
        sum_at == upper_at && sum_at + usize::from(self.field_at) == packet.link().len() + field_at
    }

    /// Returns the GSO properties of the packet; `None` for a packet of one segment. Also `None` for a GSO packet
    /// inside two or more tunnels, which is later fragmented or dropped.
    fn gso(self, packet: &Packet) -> Option<Gso> {
        let is_of_kind = match self.kind & !CWR {
            TCP4 | TCP6 => packet.is_tcp(),
            UDP => !packet.is_tcp(),
            _ => return None,
        };
        let has_many = self.segment_len > 0 && packet.gso_len() > usize::from(self.segment_len);
        // The IP IDs of the original segments are unknown. The kernel's own segmentation increments IP IDs.
        let gso = Gso { segment_len: self.segment_len, ids: Identifications::Rise, maker: Maker::Sender };
        (is_of_kind && has_many).then_some(gso)
    }

    #[cold]
    fn finish(self, packet: Packet, laid: Split) -> Frame {
        let is_sctp = packet.ip().upper.is_some_and(|upper| {
            let upper_at = packet.link().len() + usize::from(upper.at);
            upper.protocol == SCTP && usize::from(self.sum_at) == upper_at && self.field_at == SCTP_FIELD_AT
        });
        let mut buffer = packet.into_buffer();
        self.finish_inside(&mut buffer, laid, is_sctp);
        Frame::read(buffer, laid.at, laid.len, laid.link_type, laid.ingress)
    }

    /// Completes the checksum over the bytes from `sum_at` to the frame's end. Does nothing if the checksum field
    /// is outside the frame.
    #[cold]
    fn finish_inside(self, buffer: &mut Buffer, laid: Split, is_sctp: bool) {
        let covered = buffer.bytes_mut(laid.at..laid.at + laid.len).get_mut(usize::from(self.sum_at)..);
        let Some(covered) = covered else { return };
        let field_at = usize::from(self.field_at);
        if is_sctp {
            finish_crc(covered, field_at);
        } else {
            finish_sum(covered, field_at);
        }
    }
}

/// Copies each segment to a buffer of its own, and appends the frames. Returns the number of frames for which the
/// pool had no buffer.
#[cold]
fn read_segments(mut segments: InnerSegments<'_>, laid: Split, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
    let mut lost_count = 0;
    let mut room = Vec::new();
    while let Some(len) = segments.next_len() {
        room.resize(len, 0);
        segments.write(&mut room);
        match pool.allocate(len) {
            Some(mut buffer) => {
                buffer.put(laid.at, &room);
                frames.push(Frame::read(buffer, laid.at, len, laid.link_type, laid.ingress));
            }
            None => lost_count += 1,
        }
    }
    lost_count
}

/// Replaces the pseudo-header's sum in the checksum field by the checksum. A checksum of 0 is written as all ones,
/// because 0 means "no checksum" in UDP.
fn finish_sum(covered: &mut [u8], field_at: usize) {
    let checksum = match Sum::of(covered).checksum() {
        0 => 0xFFFF,
        checksum => checksum,
    };
    if let Some(field) = covered.get_mut(field_at..field_at + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Writes the CRC32c of an SCTP packet (RFC 9260 section 6.8 and appendix A).
fn finish_crc(covered: &mut [u8], field_at: usize) {
    let Some(field) = covered.get_mut(field_at..field_at + 4) else { return };
    field.fill(0);
    let crc = crc32c(covered);
    if let Some(field) = covered.get_mut(field_at..field_at + 4) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { CRC_POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

fn kind(kind: GsoKind) -> u8 {
    let cwr = |cwr| if cwr { CWR } else { 0 };
    match kind {
        GsoKind::Tcp4 { cwr: set } => TCP4 | cwr(set),
        GsoKind::Tcp6 { cwr: set } => TCP6 | cwr(set),
        GsoKind::Udp => UDP,
    }
}

/// Length of the header in bytes, including the field for the number of buffers. Ports always set this field to 0.
pub(crate) const LEN: usize = 12;
/// Flags and GSO types (virtio 1.2, section 5.1.6; linux/virtio_net.h).
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_IS_VALID: u8 = 2;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// Flag of a GSO type: the first segment carries CWR.
const CWR: u8 = 0x80;
/// Longest frame for which contiguous memory is requested, in bytes: 16 KiB less 1 KiB for the kernel's overhead.
const ONE_FRAGMENT_LEN_MAX: u16 = 15 << 10;
/// Largest number of segments in one GSO packet inside a tunnel. The kernel's longest packet has 65,535 bytes. The
/// shortest payload of a segment is 36 bytes: 48 (net.ipv4.tcp_min_snd_mss) less 12 for timestamps. So a packet has
/// at most 1,821 segments.
const INNER_COUNT_MAX: usize = 2_048;
/// Protocol number of SCTP (IANA), and the offset of the checksum in its header in bytes (RFC 9260 section 3.1).
const SCTP: u8 = 132;
const SCTP_FIELD_AT: u16 = 8;
/// Polynomial of CRC32c, with its bits reversed (RFC 9260 appendix A).
const CRC_POLYNOMIAL: u32 = 0x82F6_3B78;
static CRC_TABLE: [u32; 256] = crc_table();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::GsoRequest;
    use packet::HEADROOM;

    #[test]
    fn written_values_read_back() {
        let header =
            VnetHeader { flags: 1, kind: 0x81, header_len: 54, segment_len: 1_448, sum_at: 34, field_at: 16 };
        let bytes = header.write();
        assert_eq!(bytes[..2], [1, 0x81]);
        assert_eq!(bytes[6..8], 34u16.to_ne_bytes());
        assert_eq!(VnetHeader::read(&bytes), header);
    }

    #[test]
    fn tx_offloads_are_written_as_virtio_headers() {
        let gso = |kind| TxOffload {
            checksum: Some((34, 50)),
            gso: Some(GsoRequest { segment_len: 1_448, header_len: 54, kind }),
        };
        let kinds = [
            (GsoKind::Tcp4 { cwr: false }, 1),
            (GsoKind::Tcp4 { cwr: true }, 0x81),
            (GsoKind::Tcp6 { cwr: false }, 4),
            (GsoKind::Tcp6 { cwr: true }, 0x84),
            (GsoKind::Udp, 5),
        ];
        for (kind, number) in kinds {
            let header = VnetHeader::of(gso(kind));
            let expected =
                VnetHeader { flags: 1, kind: number, header_len: 54, segment_len: 1_448, sum_at: 34, field_at: 16 };
            assert_eq!(header, expected, "{kind:?}");
        }
        assert_eq!(VnetHeader::of(TxOffload::default()).write(), [0; LEN]);
    }

    #[test]
    fn only_a_short_single_packet_is_contiguous() {
        let checksum = TxOffload { checksum: Some((34, 50)), gso: None };
        let single = VnetHeader::of(checksum).unfragmented(9_014);
        assert_eq!(single, VnetHeader { header_len: 9_014, ..VnetHeader::of(checksum) });
        let gso = GsoRequest { segment_len: 1_448, header_len: 54, kind: GsoKind::Udp };
        let gso = VnetHeader::of(TxOffload { gso: Some(gso), ..checksum });
        assert_eq!(gso.unfragmented(9_014), gso);
        for len in [15 * 1_024 + 1, 65_549, 1 << 17] {
            assert_eq!(VnetHeader::default().unfragmented(len), VnetHeader::default(), "{len}");
        }
    }

    #[test]
    fn a_long_tcp_packet_is_gso_with_a_partial_checksum() {
        let said = VnetHeader { flags: 1, kind: TCP4, segment_len: 100, sum_at: 34, field_at: 16, header_len: 54 };
        let packet = ip(said, &tcp(250));
        assert_eq!(packet.gso, Some(Gso { segment_len: 100, ids: Identifications::Rise, maker: Maker::Sender }));
        assert_eq!(packet.checksum, Checksum::Partial);
        assert!(ip(said, &tcp(101)).gso.is_some());
        assert_eq!(ip(said, &tcp(100)).gso, None);
        let unlike = [VnetHeader { segment_len: 0, ..said }, VnetHeader { kind: UDP, ..said }];
        assert!(unlike.into_iter().all(|unlike| ip(unlike, &tcp(250)).gso.is_none()));
        // Type 3 is the former UDP fragmentation offload: one datagram.
        assert_eq!(ip(VnetHeader { kind: 3, ..said }, &tcp(250)).gso, None);
    }

    #[test]
    fn only_checksums_verified_by_the_kernel_are_verified() {
        let said = VnetHeader { flags: CHECKSUM_IS_VALID, ..VnetHeader::default() };
        assert_eq!(ip(said, &tcp(10)).checksum, Checksum::Verified);
        assert_eq!(ip(VnetHeader::default(), &tcp(10)).checksum, Checksum::Unverified);
    }

    #[test]
    fn only_offloaded_packets_lack_a_length() {
        let mut frame = tcp(250);
        frame[16..18].fill(0);
        for sum_is_left_out in [false, true] {
            frame[24..26].fill(0);
            let sum = Sum::of(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&if sum_is_left_out { 0 } else { sum }.to_be_bytes());
            let Frame::Other(raw, ParseError::BadTotalLen) = read(VnetHeader::default(), &frame) else {
                panic!("no host's card would have sent it so")
            };
            assert_eq!(raw.frame(), frame);
            let left = VnetHeader { kind: TCP4, segment_len: 100, ..VnetHeader::default() };
            assert!(ip(left, &frame).ip().length_missing);
        }
    }

    #[test]
    fn a_tunnelled_gso_packet_is_received_as_segments() {
        let inner = &tcp(250)[14..];
        let frame = ipv4(4, inner);
        let said = VnetHeader { flags: 1, kind: TCP4, segment_len: 100, sum_at: 54, field_at: 16, header_len: 74 };
        let mut pool = Pool::new(1 << 20);
        let read = |pool: &mut Pool| {
            let mut buffer = pool.allocate(frame.len()).expect("the pool has room");
            buffer.put(HEADROOM - 14, &frame);
            let laid =
                Split { at: HEADROOM - 14, len: frame.len(), link_type: LinkType::Ethernet, ingress: Ingress(0) };
            let mut frames = Vec::new();
            (said.read_into(buffer, laid, pool, &mut frames), frames)
        };
        let (lost_count, frames) = read(&mut pool);
        let lens: Vec<_> = frames
            .iter()
            .map(|frame| match frame {
                Frame::Ip(packet) => (packet.len(), packet.gso, packet.checksum),
                Frame::Other(..) => panic!("each is a packet"),
            })
            .collect();
        let single = |len| (len, None, Checksum::Unverified);
        assert_eq!((lost_count, lens), (0, vec![single(160), single(160), single(110)]));
        assert_eq!(pool.in_use_count(), 3, "its own buffer is back");
    }

    #[test]
    fn a_tunnelled_gso_packet_has_at_most_the_kernels_segment_count() {
        let read = |payload_len: usize, segment_len| {
            let inner = &tcp(payload_len)[14..];
            let frame = ipv4(4, inner);
            let said = VnetHeader { flags: 1, kind: TCP4, segment_len, sum_at: 54, field_at: 16, header_len: 74 };
            let mut pool = Pool::new(64 << 20);
            let mut buffer = pool.allocate(frame.len()).expect("the pool has room");
            buffer.put(HEADROOM - 14, &frame);
            let laid =
                Split { at: HEADROOM - 14, len: frame.len(), link_type: LinkType::Ethernet, ingress: Ingress(0) };
            let mut frames = Vec::new();
            assert_eq!(said.read_into(buffer, laid, &mut pool, &mut frames), 0);
            assert_eq!(pool.in_use_count(), frames.len());
            frames
        };
        assert_eq!(read(65_000, 36).len(), 1_806);
        assert_eq!(read(2_048, 1).len(), 2_048);
        for (payload_len, segment_len) in [(2_049, 1), (65_000, 1), (65_000, 31)] {
            let frames = read(payload_len, segment_len);
            let [Frame::Other(raw, ParseError::TooManySegments)] = &frames[..] else {
                panic!("{} frames", frames.len())
            };
            assert_eq!(raw.frame().len(), 14 + 40 + 20 + payload_len);
        }
    }

    #[test]
    fn a_checksum_in_a_tunnel_is_completed_here() {
        // A GRE header of four bytes (protocol 47), then a UDP header with a partial checksum.
        let inner = [0x12, 0x34, 0, 53, 0, 9, 0x77, 0x01, 0xAB];
        let frame = ipv4(47, &[&[0, 0, 8, 0][..], &inner].concat());
        let said = VnetHeader { flags: 1, kind: UDP, segment_len: 4, sum_at: 38, field_at: 6, header_len: 0 };
        let packet = ip(said, &frame);
        let finished = &packet.frame()[38..];
        assert_eq!((packet.checksum, packet.gso), (Checksum::Unverified, None));
        let mut expected = inner;
        let sum = Sum::of(&inner).checksum();
        expected[6..8].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(finished, expected);
        assert_ne!(expected, inner);
    }

    #[test]
    fn a_checksum_of_a_non_ip_frame_is_completed_here() {
        let mut frame = vec![2; 12];
        frame.extend([0x88, 0x47, 0, 0, 1, 64, 9, 9, 0, 0]);
        let said = VnetHeader { flags: 1, sum_at: 18, field_at: 2, ..VnetHeader::default() };
        let Frame::Other(raw, _) = read(said, &frame) else { panic!("MPLS is no IP") };
        assert_eq!(raw.frame()[..20], frame[..20]);
        assert_eq!(raw.frame()[20..], (!0x0909u16).to_be_bytes());
        // A checksum offset outside the frame changes nothing.
        let outside = VnetHeader { sum_at: 500, ..said };
        let Frame::Other(raw, _) = read(outside, &frame) else { panic!("MPLS is no IP") };
        assert_eq!(raw.frame(), frame);
    }

    #[test]
    fn a_partial_sctp_packet_gets_its_crc() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let said = VnetHeader { flags: 1, sum_at: 34, field_at: 8, ..VnetHeader::default() };
        let mut sctp = [7u8; 28];
        sctp[8..12].fill(0);
        let packet = ip(said, &ipv4(132, &sctp));
        let finished = &packet.frame()[34..];
        assert_eq!(finished[8..12], crc32c(&sctp).to_le_bytes());
        assert_eq!((&finished[..8], &finished[12..]), (&sctp[..8], &sctp[12..]));
    }

    fn read(said: VnetHeader, frame: &[u8]) -> Frame {
        let mut buffer = Pool::new(1 << 20).allocate(frame.len()).expect("the pool has room");
        let at = HEADROOM - 14;
        buffer.put(at, frame);
        let laid = Split { at, len: frame.len(), link_type: LinkType::Ethernet, ingress: Ingress(0) };
        said.read_frame(buffer, laid)
    }

    fn ip(said: VnetHeader, frame: &[u8]) -> Packet {
        match read(said, frame) {
            Frame::Ip(packet) => packet,
            Frame::Other(_, unfit) => panic!("the frame is IP: {unfit:?}"),
        }
    }

    fn tcp(payload_len: usize) -> Vec<u8> {
        let mut upper = vec![0; 20 + payload_len];
        upper[12] = 5 << 4;
        ipv4(6, &upper)
    }

    fn ipv4(protocol: u8, upper: &[u8]) -> Vec<u8> {
        let mut header = [0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        header[2..4].copy_from_slice(&((20 + upper.len()) as u16).to_be_bytes());
        let sum = Sum::of(&header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&[2; 12][..], &[8, 0], &header, upper].concat()
    }
}
