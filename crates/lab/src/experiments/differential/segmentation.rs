//! GSO packet -> the kernel's segments, beside those of the engine.
//!
//! The comparison with the kernel has three parts; this part compares segmentation. Apart from a few known
//! differences, only one result is correct.

use super::{Bench, Kind, Verdict};
use crate::experiments::forwarder::{Forwarder, HostOffload, StopAfter};
use crate::experiments::wire::{
    ACK, CWR, ECE, FIN, Filled, Ip, Options, PSH, TransportFacts, URG, one_hop_on, put_content, put_upper,
};
use engine::{
    Batch, Egress, Gateway, GatewaySettings, Position, Secret, Secrets, SegmentSize, SideSettings, WirePackets,
};
use fastrand::Rng;
use packet::{Checksum, Frame, Gso, Identifications, Ingress, LinkType, Maker, Pool, Time, Version};
use port::{GsoKind, GsoRequest, TxFrame, TxOffload};
use std::io;

/// A GSO packet to segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    ip: Ip,
    front: OptionsKind,
    upper: TransportFacts,
    content: u32,
    payload_len: u16,
    segment_len: u16,
    /// Segment length of the engine's input, if the engine must resize the segments to `segment_len`. `None`: no
    /// resizing.
    resized_from: Option<u16>,
}

/// Optional headers of a GSO packet: IPv4 options or IPv6 extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionsKind {
    None,
    /// IPv4: no-operation options of this many 32-bit words.
    Options(u8),
    /// IPv6: a destination options header; `HopByHop` is a hop-by-hop options header.
    Destination,
    HopByHop,
}

/// The kernel between two TUN devices, and an engine.
pub(super) struct Segmentation {
    forwarder: Forwarder,
}

impl Bench for Segmentation {
    type Case = Case;
    const KIND: Kind = Kind::Segmentation;

    fn open(_: &mut Rng) -> io::Result<Segmentation> {
        Ok(Segmentation { forwarder: Forwarder::open(HostOffload::Gso)? })
    }

    fn draw(rng: &mut Rng) -> Case {
        draw(rng)
    }

    fn compare(&mut self, cases: &[Case]) -> io::Result<Vec<Verdict>> {
        cases.iter().map(|case| self.compare_one(case)).collect()
    }

    fn smaller(case: &Case) -> Vec<Case> {
        let two = case.segment_len.saturating_mul(2).min(case.payload_len);
        let plain_ip = Ip { class: 0, flow: 0, id: 1, flags_offset: 0, ..case.ip };
        let upper = case.upper;
        let candidates = [
            Case { payload_len: two, ..*case },
            Case { payload_len: case.payload_len.min(case.segment_len.saturating_add(1)), ..*case },
            Case { front: OptionsKind::None, ..*case },
            Case { upper: TransportFacts { options: Options::None, ..upper }, ..*case },
            Case { upper: TransportFacts { flags: ACK, urgent: 0, ..upper }, ..*case },
            Case { ip: plain_ip, ..*case },
            Case { resized_from: None, ..*case },
        ];
        candidates.into_iter().filter(|smaller| format!("{smaller:?}") != format!("{case:?}")).collect()
    }

    fn words(case: &Case) -> String {
        format!("  {case:?}\n")
    }

    fn counts(case: &Case) -> (u64, u64) {
        (1, u64::from(case.payload_len.div_ceil(case.segment_len)))
    }
}

impl Segmentation {
    fn compare_one(&mut self, case: &Case) -> io::Result<Verdict> {
        let (bytes, upper_at) = case.bytes();
        let kernel = self.ask_kernel(case, &bytes, upper_at)?;
        let engine = self.ask_engine(case, &bytes);
        Ok(match (kernel, engine) {
            (Ok(kernel), Ok(engine)) => judge(&kernel, engine),
            (kernel, engine) => {
                let said = |it: Result<Vec<Vec<u8>>, String>| {
                    it.map_or_else(|why| why, |it| format!("{} segments", it.len()))
                };
                Verdict::Differs(format!("kernel: {}; engine: {}", said(kernel), said(engine)))
            }
        })
    }

    fn ask_kernel(
        &mut self,
        case: &Case,
        bytes: &[u8],
        upper_at: usize,
    ) -> io::Result<Result<Vec<Vec<u8>>, String>> {
        let is_v4 = case.ip.version == Version::V4;
        let cwr = case.upper.flags & CWR != 0;
        let kind = match (case.upper.is_tcp, is_v4) {
            (false, _) => GsoKind::Udp,
            (true, true) => GsoKind::Tcp4 { cwr },
            (true, false) => GsoKind::Tcp6 { cwr },
        };
        let gso = GsoRequest {
            segment_len: case.segment_len,
            header_len: (upper_at + case.upper.header_len()) as u16,
            kind,
        };
        let checksum = Some((upper_at as u16, (upper_at + case.upper.field_at()) as u16));
        let to_do = TxOffload { checksum, gso: Some(gso) };
        if let Err(why) = self.forwarder.send(TxFrame { header: bytes, payload: &[], offload: to_do }) {
            return Ok(Err(why.to_string()));
        }
        let mut segments = Vec::new();
        let wanted = usize::from(case.payload_len.div_ceil(case.segment_len));
        self.forwarder.receive(|packet| {
            segments.push(packet.bytes().to_vec());
            if segments.len() >= wanted { StopAfter::Yes } else { StopAfter::No }
        })?;
        Ok(Ok(segments))
    }

    fn ask_engine(&mut self, case: &Case, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let segment_len = case.resized_from.unwrap_or(case.segment_len);
        let header_len = bytes.len() - usize::from(case.payload_len);
        let (mtu, gso_packets) = match case.resized_from {
            Some(_) => (header_len as u16 + case.segment_len, SegmentSize::Maximise),
            None => (u16::MAX, SegmentSize::Preserve),
        };
        let side = SideSettings { segment_size: [gso_packets; 2], ..SideSettings::new(mtu, Position::Transit) };
        let secrets = Secrets::both(Secret::new(7));
        let mut gateway = Gateway::new(&GatewaySettings::one(side), secrets, || Pool::new(1 << 20));
        let pool = &mut gateway.output_mut(0).pool;
        let mut packet = Frame::copy(bytes, LinkType::Ip, Ingress(0), pool).map_err(|why| format!("{why:?}"))?;
        packet.checksum = Checksum::Partial;
        packet.gso = Some(Gso { segment_len, ids: Identifications::Rise, maker: Maker::Sender });
        let mut batch = Batch { frames: vec![Frame::Ip(packet)], ..Batch::default() };
        gateway.push(Time::ZERO, 0, &mut batch);
        let mut segments = Vec::new();
        while let Some(direction) = gateway.next(0) {
            let Egress::Forward(packet) = direction else {
                return Err("the output contains more than the packet".to_owned());
            };
            let mut fragments = WirePackets::of(&packet);
            while let Some(fragment) = fragments.next() {
                segments.push([fragment.header, fragment.payload].concat());
            }
            gateway.recycle(0, packet);
        }
        Ok(segments)
    }
}

fn judge(kernel: &[Vec<u8>], mut engine: Vec<Vec<u8>>) -> Verdict {
    engine.iter_mut().for_each(|segment| one_hop_on(segment));
    if kernel == engine {
        return Verdict::Same;
    }
    if kernel.len() != engine.len() {
        return Verdict::Differs(format!("the kernel made {} segments, the engine {}", kernel.len(), engine.len()));
    }
    let differing = kernel.iter().zip(&engine).position(|(kernel, engine)| kernel != engine).unwrap_or_default();
    let (kernel, engine) = (&kernel[differing], &engine[differing]);
    let at = kernel.iter().zip(engine).position(|(one, other)| one != other).unwrap_or_default();
    Verdict::Differs(format!(
        "segment {differing} differs at byte {at}: kernel {} bytes {:02x?}, engine {} bytes {:02x?}",
        kernel.len(),
        &kernel[..kernel.len().min(80)],
        engine.len(),
        &engine[..engine.len().min(80)]
    ))
}

impl Case {
    /// Returns the bytes of the GSO packet, and the offset of its transport header.
    fn bytes(&self) -> (Vec<u8>, usize) {
        let mut bytes = Vec::with_capacity(usize::from(self.payload_len) + 128);
        let protocol = self.upper.protocol();
        let padded = |next: u8| vec![next, 0, 1, 4, 0, 0, 0, 0];
        let (front, first) = match self.front {
            OptionsKind::None => (Vec::new(), protocol),
            OptionsKind::Options(words) => (vec![1; usize::from(words) * 4], protocol),
            OptionsKind::Destination => (padded(protocol), 60),
            OptionsKind::HopByHop => (padded(protocol), 0),
        };
        let ip_len = if self.ip.version == Version::V4 { 20 } else { 40 } + front.len();
        put_upper(&mut bytes, (&self.ip, &front, first), &self.upper, Filled::Half, |to| {
            put_content(to, self.content, 0, self.payload_len.into());
        });
        (bytes, ip_len)
    }
}

fn draw(rng: &mut Rng) -> Case {
    let version = if rng.bool() { Version::V4 } else { Version::V6 };
    let front = match (rng.u8(..8), version) {
        (0, Version::V4) => OptionsKind::Options(rng.u8(1..=10)),
        (0, Version::V6) => OptionsKind::Destination,
        (1, Version::V6) => OptionsKind::HopByHop,
        _ => OptionsKind::None,
    };
    let upper = draw_upper(rng);
    let segment_len = match rng.u8(..16) {
        0 => rng.u16(1_400..9_000),
        1..4 => rng.u16(536..=1_460),
        4 => rng.u16(1..16),
        _ => rng.u16(16..300),
    };
    let most = usize::from(u16::MAX) - 200;
    let count_max = if upper.is_tcp { 60 } else { 60.min(UDP_SEGMENTS_MAX) };
    let count = if rng.u8(..4) == 0 { rng.usize(2..=count_max) } else { rng.usize(2..8) };
    let payload_len = (usize::from(segment_len) * (count - 1) + rng.usize(1..=usize::from(segment_len))).min(most);
    let dont_fragment = rng.bool();
    let ip = Ip {
        version,
        source: rng.u32(..1 << 16),
        destination: rng.u8(1..),
        class: rng.u8(..),
        hops: rng.u8(2..),
        flow: rng.u32(..),
        id: if rng.u8(..8) == 0 { u16::MAX - rng.u16(..4) } else { rng.u16(..) },
        flags_offset: if dont_fragment { 1 << 14 } else { 0 },
    };
    let resized_from =
        (upper.is_tcp && upper.flags & URG == 0 && rng.u8(..3) == 0).then(|| rng.u16(1..=payload_len as u16));
    let content = rng.u32(..);
    Case { ip, front, upper, content, payload_len: payload_len as u16, segment_len, resized_from }
}

fn draw_upper(rng: &mut Rng) -> TransportFacts {
    let is_tcp = rng.u8(..4) > 0;
    let mut flags = ACK;
    for flag in [FIN, PSH, ECE, CWR] {
        if rng.u8(..4) == 0 {
            flags |= flag;
        }
    }
    if rng.u8(..32) == 0 {
        flags |= URG;
    }
    let options = match rng.u8(..6) {
        0 => Options::None,
        1 => Options::Sack(rng.u32(..)),
        2 => Options::Unknown(rng.u8(..)),
        _ => Options::Stamps(rng.u32(..), rng.u32(..)),
    };
    let near_the_end = rng.u8(..4) == 0;
    TransportFacts {
        is_tcp,
        ports: [rng.u16(1..), rng.u16(1..)],
        seq: if near_the_end { u32::MAX - rng.u32(..5_000) } else { rng.u32(..) },
        ack: rng.u32(..),
        flags,
        window: rng.u16(..),
        urgent: if flags & URG != 0 { rng.u16(..) } else { 0 },
        options,
    }
}

/// Largest number of datagrams in a UDP GSO packet that the kernel segments.
const UDP_SEGMENTS_MAX: usize = 64;
