//! Two connected ports -> the offloads that work correctly.
//!
//! A kernel or NIC that segments GSO packets wrongly corrupts every flow without notice. So known GSO packets are
//! sent by one port, and the packets received at the other are compared with the expected ones. The comparison
//! covers each byte, length, sequence number and checksum.
//!
//! The two ports must be the ends of a private veth pair, because the packets are addressed to hosts that do not
//! exist.

use crate::port::{GsoKind, GsoRequest, Offloads, Port, TxFrame, TxOffload};
use crate::send_error::SendError;
use packet::tcp::Segment;
use packet::udp::UdpHeader;
use packet::{Checksum, Frame, Ingress, LinkType, Packet, Pool, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::{Duration, Instant};

/// Result of a self-test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The offloads that work as announced.
    pub offloads: Offloads,
    /// The failures of the other offloads, one sentence each.
    pub doubts: Vec<String>,
}

/// Sends known packets by `one`, for each of its offloads, and checks the packets that arrive at `other`. Needs at
/// most 200 ms.
///
/// # Errors
/// The interface of a port has an error. If `one` refuses a GSO packet, this is a failed test and no error.
pub fn self_test(one: &mut dyn Port, other: &mut dyn Port, pool: &mut Pool) -> io::Result<Proof> {
    let offered = one.offloads();
    let mut proof = Proof { offloads: offered, doubts: Vec::new() };
    for trial in TRIALS.into_iter().filter(|trial| trial.is_offered(offered)) {
        if let Err(doubt) = trial.run(one, other, pool)? {
            proof.doubts.push(format!("{}: {}: {doubt}", one.address(), trial.name));
            trial.withdraw(&mut proof.offloads);
        }
    }
    other.give_back(pool);
    Ok(proof)
}

/// The test of one offload.
#[derive(Clone, Copy, Debug)]
struct OffloadProbe {
    name: &'static str,
    version: Version,
    upper: ProbeTransport,
    /// Length of the payload, in bytes.
    len: usize,
    /// Low byte of the source port, which identifies the probe's packets.
    number: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeTransport {
    Tcp,
    Udp,
}

/// The payload received during one probe.
struct ProbeResult {
    bytes: Vec<u8>,
    len: usize,
}

impl OffloadProbe {
    fn is_gso(self) -> bool {
        self.len > SEGMENT_LEN
    }

    fn is_offered(self, offloads: Offloads) -> bool {
        match (self.is_gso(), self.upper) {
            (false, _) => offloads.checksum,
            (true, ProbeTransport::Tcp) => offloads.checksum && offloads.tcp,
            (true, ProbeTransport::Udp) => offloads.checksum && offloads.udp,
        }
    }

    /// Removes this probe's offload. Segmentation includes writing checksums, so without checksum offload no
    /// offload is left.
    fn withdraw(self, offloads: &mut Offloads) {
        match (self.is_gso(), self.upper) {
            (false, _) => *offloads = Offloads::default(),
            (true, ProbeTransport::Tcp) => offloads.tcp = false,
            (true, ProbeTransport::Udp) => offloads.udp = false,
        }
    }

    fn run(self, one: &mut dyn Port, other: &mut dyn Port, pool: &mut Pool) -> io::Result<Result<(), String>> {
        let frame = self.frame(one.link_type());
        let Ok(mut packet) = Frame::copy(&frame, one.link_type(), Ingress(0), pool) else {
            return Err(io::Error::other("the pool has no memory for a self-test; give it 1 MiB"));
        };
        // The checksum field of `frame` contains an arbitrary number other than 0. `offload` replaces it by the
        // pseudo-header's sum.
        packet.checksum = Checksum::Verified;
        let to_do = self.offload(&mut packet);
        let (header, payload) = packet.frame().split_at(packet.frame().len() - self.len);
        let sent = one.transmit(&[TxFrame { header, payload, offload: to_do }]);
        pool.give(packet.into_buffer());
        match sent {
            Ok(0) => Ok(Err("the port accepts no packet".to_owned())),
            Ok(_) => self.collect(other, pool),
            Err(error) if SendError::of(&error) == Some(SendError::Down) => Err(error),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Returns the offload request for the probe's packet, and leaves the packet's checksum incomplete.
    fn offload(self, packet: &mut Packet) -> TxOffload {
        let link_len = packet.link().len();
        let place = |at: usize| (link_len + at) as u16;
        let checksum = packet.defer_checksum().map(|(start, field)| (place(start), place(field)));
        let kind = match (self.upper, self.version) {
            (ProbeTransport::Udp, _) => GsoKind::Udp,
            (ProbeTransport::Tcp, Version::V4) => GsoKind::Tcp4 { cwr: false },
            (ProbeTransport::Tcp, Version::V6) => GsoKind::Tcp6 { cwr: false },
        };
        let header_len = (packet.frame().len() - self.len) as u16;
        let gso = GsoRequest { segment_len: SEGMENT_LEN as u16, header_len, kind };
        TxOffload { checksum, gso: self.is_gso().then_some(gso) }
    }

    /// Receives frames until all payload has arrived or the time-out has passed.
    fn collect(self, port: &mut dyn Port, pool: &mut Pool) -> io::Result<Result<(), String>> {
        let until = Instant::now() + TIMEOUT;
        let mut came = ProbeResult { bytes: vec![0; self.len], len: 0 };
        let mut frames = Vec::new();
        let mut verdict = Ok(());
        while verdict.is_ok() && came.len < self.len {
            port.receive(Ingress(0), pool, &mut frames)?;
            for frame in frames.drain(..) {
                let buffer = match frame {
                    Frame::Ip(mut packet) => {
                        verdict = verdict.and_then(|()| self.compare(&mut packet, &mut came));
                        packet.into_buffer()
                    }
                    Frame::Other(raw, _) => raw.into_buffer(),
                };
                pool.give(buffer);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if came.len < self.len {
                wait(port, left)?;
            }
        }
        Ok(verdict.and_then(|()| self.judge(&came)))
    }

    /// Compares a packet with the next expected one. Ignores packets that do not belong to this probe.
    fn compare(self, packet: &mut Packet, came: &mut ProbeResult) -> Result<(), String> {
        let Some((offset, len)) = self.place(packet, came.len) else { return Ok(()) };
        let segment_len = packet.gso.map_or(len, |gso| usize::from(gso.segment_len));
        if self.is_gso() && segment_len != SEGMENT_LEN.min(self.len.saturating_sub(offset)) {
            return Err(format!("a segment at byte {offset} has {segment_len} bytes, not {SEGMENT_LEN}"));
        }
        if offset != came.len || offset + len > self.len {
            return Err(format!("{len} bytes arrived at offset {offset} after {} bytes", came.len));
        }
        if packet.checksum != Checksum::Partial {
            packet.checksum = Checksum::Unverified;
        }
        if !matches!(packet.checksum_error().fold(), 0 | 0xFFFF) {
            return Err(format!("the segment at byte {offset} has a wrong checksum"));
        }
        let payload = packet.bytes().get(packet.len() - len..).unwrap_or_default();
        came.bytes[offset..offset + len].copy_from_slice(payload);
        came.len += len;
        Ok(())
    }

    /// Returns the offset and the length of a packet's payload; `None` if the packet does not belong to this probe.
    /// UDP datagrams have no sequence numbers, so `next` is their offset.
    fn place(self, packet: &Packet, next: usize) -> Option<(usize, usize)> {
        let upper = packet.ip().upper?;
        let bytes = packet.upper_bytes(upper);
        let is_ours = packet.ip().version == self.version && bytes.starts_with(&[PORT, self.number, PORT, PORT]);
        match self.upper {
            ProbeTransport::Tcp if is_ours && packet.is_tcp() => {
                let segment = Segment::parse(bytes)?;
                Some((segment.header.seq.get().wrapping_sub(SEQ) as usize, segment.payload.len()))
            }
            ProbeTransport::Udp if is_ours && !packet.is_tcp() => Some((next, UdpHeader::parse(bytes)?.1.len())),
            _ => None,
        }
    }

    fn judge(self, came: &ProbeResult) -> Result<(), String> {
        if came.len < self.len {
            return Err(format!("of {} bytes, only {} arrived in time", self.len, came.len));
        }
        match came.bytes.iter().zip(self.payload()).position(|(came, sent)| *came != sent) {
            Some(at) => Err(format!("byte {at} differs")),
            None => Ok(()),
        }
    }

    /// Returns the probe's frame. Its transport checksum is an arbitrary number other than 0.
    fn frame(self, link_type: LinkType) -> Vec<u8> {
        let upper = match self.upper {
            ProbeTransport::Tcp => {
                let [s0, s1, s2, s3] = SEQ.to_be_bytes();
                vec![
                    PORT,
                    self.number,
                    PORT,
                    PORT,
                    s0,
                    s1,
                    s2,
                    s3,
                    0,
                    0,
                    0,
                    1,
                    5 << 4,
                    TCP_FLAGS,
                    16,
                    0,
                    1,
                    1,
                    0,
                    0,
                ]
            }
            ProbeTransport::Udp => {
                let [l0, l1] = ((8 + self.len) as u16).to_be_bytes();
                vec![PORT, self.number, PORT, PORT, l0, l1, 1, 1]
            }
        };
        let protocol = if self.upper == ProbeTransport::Tcp { packet::ip::TCP } else { packet::ip::UDP };
        let ip = match self.version {
            Version::V4 => ipv4(protocol, upper.len() + self.len),
            Version::V6 => ipv6(protocol, upper.len() + self.len),
        };
        let link = match (link_type, self.version) {
            (LinkType::Ethernet, Version::V4) => [&STATIONS[..], &[0x08, 0x00]].concat(),
            (LinkType::Ethernet, Version::V6) => [&STATIONS[..], &[0x86, 0xDD]].concat(),
            _ => Vec::new(),
        };
        [link, ip, upper, self.payload().collect()].concat()
    }

    /// Returns the probe's payload. Its bytes differ between neighbouring segments.
    fn payload(self) -> impl Iterator<Item = u8> {
        (0..self.len).map(move |at| (at * 7 + at / 251 + usize::from(self.number)) as u8)
    }
}

fn ipv4(protocol: u8, upper_len: usize) -> Vec<u8> {
    let [l0, l1] = ((20 + upper_len) as u16).to_be_bytes();
    let mut header = vec![0x45, 0, l0, l1, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header.extend(ENDS4);
    let sum = packet::Sum::of(&header).checksum().to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    header
}

fn ipv6(protocol: u8, upper_len: usize) -> Vec<u8> {
    let [l0, l1] = (upper_len as u16).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, l0, l1, protocol, 64];
    for network in NETWORKS6 {
        header.extend([0x20, 0x01, 0x0D, 0xB8, 0, network, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    }
    header
}

/// Waits until a frame may be available, at most for the time `left`, which must be less than 1 s.
fn wait(port: &dyn Port, left: Duration) -> io::Result<()> {
    let fd = port.fd();
    let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The probes. The first one tests only the checksum.
const TRIALS: [OffloadProbe; 5] = [
    OffloadProbe { name: "checksum", version: Version::V4, upper: ProbeTransport::Udp, len: 501, number: 1 },
    OffloadProbe {
        name: "GSO packet of TCP over IPv4",
        version: Version::V4,
        upper: ProbeTransport::Tcp,
        len: 3_501,
        number: 2,
    },
    OffloadProbe {
        name: "GSO packet of TCP over IPv6",
        version: Version::V6,
        upper: ProbeTransport::Tcp,
        len: 3_501,
        number: 3,
    },
    OffloadProbe {
        name: "GSO packet of UDP over IPv4",
        version: Version::V4,
        upper: ProbeTransport::Udp,
        len: 3_501,
        number: 4,
    },
    OffloadProbe {
        name: "GSO packet of UDP over IPv6",
        version: Version::V6,
        upper: ProbeTransport::Udp,
        len: 3_501,
        number: 5,
    },
];
/// Payload of a segment, in bytes. Such segments fit every IPv6 link.
const SEGMENT_LEN: usize = 1_000;
/// Time-out of one probe. All probes together take at most 200 ms.
const TIMEOUT: Duration = Duration::from_millis(40);
/// Sequence number of the first segment. The number wraps within the GSO packet.
const SEQ: u32 = 0xFFFF_F900;
/// Both bytes of the destination port, and the high byte of the source port.
const PORT: u8 = 0xC7;
/// The flags ACK and PSH. Only the last segment may keep PSH.
const TCP_FLAGS: u8 = 0x18;
/// Two unused MAC addresses: destination, then source.
const STATIONS: [u8; 12] = [2, 0, 0, 0, 0x77, 2, 2, 0, 0, 0, 0x77, 1];
/// Hosts in benchmarking networks (RFC 2544 section C.2.2, RFC 6815): 198.18.0.9 sends to 198.19.0.9.
const ENDS4: [u8; 8] = [198, 18, 0, 9, 198, 19, 0, 9];
/// Third groups of two documentation networks (RFC 3849). 2001:db8:1::9 sends to 2001:db8:2::9.
const NETWORKS6: [u8; 2] = [1, 2];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Received;
    use crate::send_error::refused;
    use packet::{Identifications, Place, SegmentRange, SegmentTemplate};
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_port_with_valid_segmentation_keeps_all_offloads() {
        for link_type in [LinkType::Ip, LinkType::Ethernet] {
            let proof = test(link_type, Fault::None, ALL);
            assert_eq!(proof, Proof { offloads: ALL, doubts: Vec::new() });
        }
    }

    #[test]
    fn absent_offloads_are_not_probed() {
        let offered = Offloads { tcp: false, ..ALL };
        assert_eq!(test(LinkType::Ip, Fault::Refuses, offered).doubts.len(), 3);
        assert_eq!(test(LinkType::Ip, Fault::Refuses, Offloads::default()).doubts, Vec::<String>::new());
    }

    #[test]
    fn each_planted_fault_is_found() {
        let only_checksum = Offloads { checksum: true, ..Offloads::default() };
        let cases = [
            (Fault::ByteDiffers, only_checksum, "differs"),
            (Fault::SumIsWrong, Offloads::default(), "wrong checksum"),
            (Fault::CutsElsewhere, only_checksum, "has 900 bytes, not 1000"),
            (Fault::LosesTheLast, only_checksum, "arrived in time"),
            (
                Fault::NumbersStandStill,
                Offloads { udp: true, ..only_checksum },
                "arrived at offset 0 after 1000 bytes",
            ),
            (Fault::Refuses, Offloads::default(), "does not segment this GSO packet"),
        ];
        for (fault, left, doubt) in cases {
            let proof = test(LinkType::Ip, fault, ALL);
            assert_eq!(proof.offloads, left, "{fault:?}: {:?}", proof.doubts);
            assert!(proof.doubts.iter().all(|said| said.contains(doubt)), "{fault:?}: {:?}", proof.doubts);
            assert!(!proof.doubts.is_empty());
        }
    }

    fn test(link_type: LinkType, fault: Fault, offloads: Offloads) -> Proof {
        let between = Arc::new(Mutex::new(Vec::new()));
        let [mut one, mut other] = [0, 1].map(|_| Fake {
            link_type,
            fault,
            offloads,
            between: Arc::clone(&between),
            always: File::open("/dev/null").expect("it is there"),
        });
        let mut pool = Pool::new(1 << 20);
        let proof = self_test(&mut one, &mut other, &mut pool).expect("both are up");
        assert_eq!(pool.in_use_count(), 0);
        proof
    }

    const ALL: Offloads = Offloads { checksum: true, tcp: true, udp: true };

    /// A fault of a port in a test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        None,
        ByteDiffers,
        SumIsWrong,
        CutsElsewhere,
        LosesTheLast,
        NumbersStandStill,
        Refuses,
    }

    /// A port that segments in software. Frames sent at one side arrive at the other.
    struct Fake {
        link_type: LinkType,
        fault: Fault,
        offloads: Offloads,
        between: Arc<Mutex<Vec<Vec<u8>>>>,
        always: File,
    }

    impl Fake {
        fn cut(&self, wire: &TxFrame<'_>) -> Vec<Vec<u8>> {
            let mut pool = Pool::new(1 << 20);
            let frame = [wire.header, wire.payload].concat();
            let mut packet = Frame::copy(&frame, self.link_type, Ingress(0), &mut pool).expect("it is a packet");
            packet.checksum = Checksum::Partial;
            let template = SegmentTemplate::new(&packet, Identifications::Rise).expect("it is TCP or UDP");
            let is_gso = wire.offload.gso.is_some();
            let segment_len = match wire.offload.gso {
                Some(_) if self.fault == Fault::CutsElsewhere => 900,
                Some(gso) => usize::from(gso.segment_len),
                None => wire.payload.len(),
            };
            let count = wire.payload.len().div_ceil(segment_len);
            let mut frames = Vec::new();
            for (index, payload) in wire.payload.chunks(segment_len).enumerate() {
                let mut payload = payload.to_vec();
                if is_gso && self.fault == Fault::ByteDiffers && index == 1 {
                    payload[7] ^= 1;
                }
                let offset = if self.fault == Fault::NumbersStandStill { 0 } else { index * segment_len };
                let place = Place { first: index == 0, last: index + 1 == count };
                let mut room = [0; 128];
                let header = template.stamp(&mut room, SegmentRange { index, offset, payload: &payload, place });
                frames.push([header, &payload].concat());
            }
            if self.fault == Fault::SumIsWrong {
                let field_at = wire.offload.checksum.map_or(0, |(_, field_at)| usize::from(field_at));
                frames.iter_mut().for_each(|frame| frame[field_at] ^= 0x10);
            }
            if is_gso && self.fault == Fault::LosesTheLast {
                frames.pop();
            }
            frames
        }
    }

    impl Port for Fake {
        fn address(&self) -> &str {
            "fake"
        }

        fn link_type(&self) -> LinkType {
            self.link_type
        }

        fn offloads(&self) -> Offloads {
            self.offloads
        }

        fn fd(&self) -> BorrowedFd<'_> {
            self.always.as_fd()
        }

        fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
            let came: Vec<_> = self.between.lock().expect("nobody panics").drain(..).collect();
            for frame in &came {
                frames.push(Frame::Ip(Frame::copy(frame, self.link_type, ingress, pool).expect("it is a packet")));
            }
            Ok(Received { count: came.len(), lost_count: 0, was_last: true })
        }

        fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
            if self.fault == Fault::Refuses {
                return Err(refused("fake", io::Error::from_raw_os_error(libc::EINVAL), true));
            }
            let cut = wires.iter().flat_map(|wire| self.cut(wire));
            self.between.lock().expect("nobody panics").extend(cut);
            Ok(wires.len())
        }
    }
}
