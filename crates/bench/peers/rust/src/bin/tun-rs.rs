//! Packets -> coalesced or segmented packets, by tun-rs.
//!
//! This harness measures the part of tun-rs that does not use the kernel's own offloads.

use peers::{Args, Packet, Sink, System, UNTOUCHED, serve, unknown};
use tun_rs::{
    ExpandBuffer, GROTable, VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, VIRTIO_NET_HDR_LEN, VirtioNetHdr,
    gso_split,
};

enum TunRs {
    Coalesce { table: GROTable, burst: usize },
    Segment { outputs: Vec<Vec<u8>>, lens: Vec<usize>, segment_len: usize },
}

impl System for TunRs {
    const HEADROOM: usize = VIRTIO_NET_HDR_LEN;

    fn open(args: &Args, packets: &[Vec<u8>]) -> Result<Self, String> {
        match (args.text("function"), args.text("work")) {
            ("coalesce", "checksummed") if args.text("hold") != "burst" => {
                Err("tun-rs holds nothing from one burst to the next".into())
            }
            ("coalesce", "checksummed") => {
                Ok(TunRs::Coalesce { table: GROTable::new(), burst: args.number("burst").unwrap_or(64).max(1) })
            }
            ("segment", "checksummed") => {
                let segment_len = args.number("segment").ok_or("segment=N is missing")?;
                let len_max = packets.iter().map(Vec::len).max().unwrap_or(0);
                let count = len_max.div_ceil(segment_len);
                let outputs = vec![vec![0; HEADERS_LEN_MAX + segment_len]; count];
                Ok(TunRs::Segment { outputs, lens: vec![0; count], segment_len })
            }
            _ => unknown(args),
        }
    }

    fn delivers(&self) -> String {
        match self {
            TunRs::Coalesce { .. } => {
                "contiguous packets, TCP checksums verified, a joined packet's own left to the kernel"
            }
            TunRs::Segment { .. } => "contiguous packets, both checksums written",
        }
        .into()
    }

    /// Returns the room behind the headroom, in bytes. For coalescing, this is the longest coalesced packet and a
    /// virtio header.
    fn capacity(args: &Args, len_max: usize) -> usize {
        match args.text("function") {
            "coalesce" => VIRTIO_NET_HDR_LEN + args.number("len_max").unwrap_or(65_535),
            _ => len_max,
        }
    }

    fn section(&mut self, packets: &mut [Packet], sink: &mut impl Sink) {
        match self {
            TunRs::Coalesce { table, burst } => {
                for burst in packets.chunks_mut(*burst) {
                    let buffers = Buffer::each(burst);
                    table.apply_gro(buffers, VIRTIO_NET_HDR_LEN, false).expect("a burst has its headroom");
                    // tun-rs writes the virtio header only in front of packets that it delivers. All other packets
                    // were coalesced.
                    for buffer in buffers {
                        let (header, packet) = buffer.as_ref().split_at(VIRTIO_NET_HDR_LEN);
                        if header[0] != UNTOUCHED {
                            sink.take(packet);
                        }
                    }
                }
            }
            TunRs::Segment { outputs, lens, segment_len } => {
                for packet in packets {
                    let packet = &mut packet.whole_mut()[VIRTIO_NET_HDR_LEN..];
                    let (is_v6, header) = header_for(packet, *segment_len);
                    let count =
                        gso_split(packet, header, outputs, lens, 0, is_v6).expect("the packet is TCP and fits");
                    for (output, len) in outputs.iter().zip(lens.iter()).take(count) {
                        sink.take(&output[..*len]);
                    }
                }
            }
        }
    }
}

/// Returns whether a long TCP packet is IPv6, and the virtio header that the kernel would write for it.
fn header_for(packet: &[u8], segment_len: usize) -> (bool, VirtioNetHdr) {
    let is_v6 = packet[0] >> 4 == 6;
    let (csum_start, gso_type) = if is_v6 {
        (40, VIRTIO_NET_HDR_GSO_TCPV6)
    } else {
        (usize::from(packet[0] & 15) * 4, VIRTIO_NET_HDR_GSO_TCPV4)
    };
    let header = VirtioNetHdr {
        flags: VIRTIO_NET_HDR_F_NEEDS_CSUM,
        gso_type,
        hdr_len: (csum_start + usize::from(packet[csum_start + 12] >> 4) * 4) as u16,
        gso_size: segment_len as u16,
        csum_start: csum_start as u16,
        csum_offset: 16,
    };
    (is_v6, header)
}

/// A packet's buffer, which can grow in place.
#[repr(transparent)]
struct Buffer(Packet);

impl Buffer {
    fn each(packets: &mut [Packet]) -> &mut [Buffer] {
        // `Buffer` is a transparent wrapper of `Packet`, so both have the same layout.
        unsafe { &mut *(packets as *mut [Packet] as *mut [Buffer]) }
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline(always)]
    fn as_ref(&self) -> &[u8] {
        self.0.whole()
    }
}

impl AsMut<[u8]> for Buffer {
    #[inline(always)]
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.whole_mut()
    }
}

impl ExpandBuffer for Buffer {
    fn buf_capacity(&self) -> usize {
        self.0.capacity()
    }

    fn buf_resize(&mut self, len: usize, value: u8) {
        let held = self.0.whole().len();
        self.0.set_len(len);
        if let Some(added) = self.0.whole_mut().get_mut(held..) {
            added.fill(value);
        }
    }

    fn buf_extend_from_slice(&mut self, bytes: &[u8]) {
        let held = self.0.whole().len();
        self.0.set_len(held + bytes.len());
        self.0.whole_mut()[held..].copy_from_slice(bytes);
    }
}

/// Room for the longest headers of a segment, in bytes: 40 of IPv6 or 60 of IPv4, and 60 of TCP.
const HEADERS_LEN_MAX: usize = 120;
/// Virtio flag: the checksum must be completed (linux/virtio_net.h).
const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;

fn main() {
    serve::<TunRs>("tun-rs");
}
