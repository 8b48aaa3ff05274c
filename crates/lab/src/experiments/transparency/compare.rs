//! Frames that arrived through the kernel and through a gateway -> a description of the first difference.
//!
//! The intended differences of `known.rs` are removed from the frames first, so that only unlisted differences
//! remain.

use super::PortKind;
use super::frames::{SentFrame, Side};
use super::rig::{Arrived, NARROW_MTU, WIDE_MTU};
use linux::frames::SeenFrame;
use packet::Sum;
use std::collections::BTreeMap;

/// Frames of one kind of traffic that arrived through the kernel and through a gateway.
pub(super) struct Evidence<'a> {
    /// Kind of the gateway's ports.
    pub port: PortKind,
    pub sent: &'a [SentFrame],
    pub kernel: Arrived,
    pub ours: Arrived,
}

impl Evidence<'_> {
    /// Returns the first difference; `None` if the same frames arrived in the same order within each flow.
    pub(super) fn difference(&self) -> Option<String> {
        let of = |side: Side| {
            let (kernel, ours) = (&self.kernel[side as usize], &self.ours[side as usize]);
            let (missing, extra) = (without(kernel, ours), without(ours, kernel));
            let counts = format!("at the {} end", side.name());
            match (missing.first(), extra.first()) {
                (None, None) => in_other_order(kernel, ours).map(|text| format!("{counts} {text}")),
                (Some(gone), None) => {
                    Some(format!("{counts} {} frames are missing; the first: {}", missing.len(), told(gone)))
                }
                (None, Some(new)) => {
                    Some(format!("{counts} {} extra frames; the first: {}", extra.len(), told(new)))
                }
                (Some(gone), Some(new)) => {
                    let at = gone.bytes.iter().zip(&new.bytes).position(|(one, other)| one != other);
                    Some(format!(
                        "{counts} {} frames differ, from byte {}; kernel: {}; gateway: {}",
                        missing.len(),
                        at.unwrap_or(gone.bytes.len().min(new.bytes.len())),
                        told(gone),
                        told(new)
                    ))
                }
            }
        };
        let said: Vec<String> = [Side::Wide, Side::Narrow].into_iter().filter_map(of).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Replaces each frame that arrived through the gateway by the kernel's frame, if they differ only by an
    /// excused difference.
    pub(super) fn pair(&mut self, is_excused: impl Fn(&SeenFrame, &SeenFrame) -> bool) {
        for (kernel, ours) in self.kernel.iter().zip(&mut self.ours) {
            let mut open = without(kernel, ours);
            for extra in without(ours, kernel) {
                if let Some(at) = open.iter().position(|frame| is_excused(frame, &extra)) {
                    let place = ours.iter().position(|frame| *frame == extra).expect("it is one of them");
                    ours[place] = open.remove(at);
                }
            }
        }
    }

    /// Removes the excused frames that arrived only through the gateway.
    pub(super) fn drop_extra(&mut self, is_excused: impl Fn(Side, &SeenFrame, &[SentFrame]) -> bool) {
        for side in [Side::Wide, Side::Narrow] {
            let (kernel, ours) = (&self.kernel[side as usize], &mut self.ours[side as usize]);
            for extra in without(ours, kernel) {
                if is_excused(side, &extra, self.sent) {
                    let place = ours.iter().position(|frame| *frame == extra).expect("it is one of them");
                    ours.remove(place);
                }
            }
        }
    }

    /// Removes the excused frames that arrived only through the kernel.
    pub(super) fn drop_missing(&mut self, is_excused: impl Fn(Side, &SeenFrame) -> bool) {
        for side in [Side::Wide, Side::Narrow] {
            let (kernel, ours) = (&mut self.kernel[side as usize], &self.ours[side as usize]);
            for gone in without(kernel, ours) {
                if is_excused(side, &gone) {
                    let place = kernel.iter().position(|frame| *frame == gone).expect("it is one of them");
                    kernel.remove(place);
                }
            }
        }
    }

    /// Removes fragments that arrived through the gateway, if together and in order they contain the payload of a
    /// sent IPv4 packet.
    pub(super) fn drop_fragments(&mut self) {
        for sent in self.sent.iter().filter(|sent| sent.from == Side::Wide) {
            let frame = SeenFrame { bytes: sent.bytes.clone(), segment_len: None };
            let Some(whole) = Packet::read(&frame).filter(|whole| whole.bytes[whole.ip_at] >> 4 == 4) else {
                continue;
            };
            let header = |packet: &Packet<'_>| {
                let ip = &packet.bytes[packet.ip_at..];
                [&packet.bytes[..packet.ip_at], &ip[..2], &ip[4..6], &ip[8..10], &ip[12..20]].concat()
            };
            let (mut at, key) = (0, header(&whole));
            let body = &whole.bytes[whole.transport_at..whole.end];
            let is_next = |packet: &Packet<'_>, at: usize| {
                let field = u16::from_be_bytes([packet.bytes[packet.ip_at + 6], packet.bytes[packet.ip_at + 7]]);
                let part = &packet.bytes[packet.transport_at..packet.end];
                let is_last = at + part.len() == body.len();
                let fits = packet.end - packet.ip_at <= NARROW_MTU as usize;
                let right = (at / 8) as u16 | if is_last { 0 } else { 0x2000 };
                fits && field == right && body[at..].starts_with(part)
            };
            let mut left = Vec::new();
            for frame in &self.ours[Side::Narrow as usize] {
                match Packet::read(frame) {
                    Some(packet) if header(&packet) == key && is_next(&packet, at) => {
                        at += packet.end - packet.transport_at
                    }
                    _ => left.push(frame.clone()),
                }
            }
            if at == body.len() {
                self.ours[Side::Narrow as usize] = left;
            }
        }
    }

    /// Replaces consecutive IPv4 fragments by their runs.
    pub(super) fn join_fragments(&mut self) {
        for side in [Side::Wide, Side::Narrow] {
            self.kernel[side as usize] = fragment_runs(&self.kernel[side as usize]);
            self.ours[side as usize] = fragment_runs(&self.ours[side as usize]);
        }
    }

    /// Replaces TCP packets by the bytes of their streams. A packet that the kernel dropped as too long for the
    /// narrow link is treated as arrived. A packet that exceeds the link's MTU, or whose checksum is wrong, is not
    /// replaced.
    pub(super) fn compare_streams(&mut self) {
        for side in [Side::Wide, Side::Narrow] {
            let mtu = if side == Side::Wide { WIDE_MTU } else { NARROW_MTU } as usize;
            let mut kernel = self.kernel[side as usize].clone();
            let sent = self.sent.iter().filter(|sent| sent.from != side);
            let long = sent.filter(|sent| sent.bytes.len() > NARROW_MTU as usize + 14 && side == Side::Narrow);
            kernel.extend(long.map(|sent| SeenFrame { bytes: sent.bytes.clone(), segment_len: None }));
            self.kernel[side as usize] = streams(&kernel, WIDE_MTU as usize);
            self.ours[side as usize] = streams(&self.ours[side as usize], mtu);
        }
    }
}

/// Returns the frames of one list that the other lacks. Each occurrence of a frame is matched by one occurrence in
/// the other list.
fn without(frames: &[SeenFrame], others: &[SeenFrame]) -> Vec<SeenFrame> {
    let mut counts = BTreeMap::<&SeenFrame, usize>::new();
    others.iter().for_each(|frame| *counts.entry(frame).or_default() += 1);
    let is_left = |frame: &&SeenFrame| match counts.get_mut(*frame) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    frames.iter().filter(is_left).cloned().collect()
}

/// Describes the first flow whose frames arrived through the gateway in another order; `None` without such a flow.
fn in_other_order(kernel: &[SeenFrame], ours: &[SeenFrame]) -> Option<String> {
    let sorted = |frames: &[SeenFrame]| {
        let mut flows = BTreeMap::<Vec<u8>, Vec<SeenFrame>>::new();
        frames.iter().for_each(|frame| flows.entry(flow(frame)).or_default().push(frame.clone()));
        flows
    };
    let (kernel, ours) = (sorted(kernel), sorted(ours));
    kernel.iter().find_map(|(flow, frames)| {
        let others = ours.get(flow)?;
        let at = frames.iter().zip(others).position(|(one, other)| one != other)?;
        Some(format!("the order differs, starting at frame {at} of a flow: {}", told(&others[at])))
    })
}

/// Returns the flow key of a frame: link addresses and types. For IP, the key also has the addresses, the protocol,
/// and the ports or a fragment's identification.
fn flow(frame: &SeenFrame) -> Vec<u8> {
    if let Some([len, rest @ ..]) = frame.bytes.strip_prefix(STREAM) {
        return rest[..usize::from(*len)].to_vec();
    }
    let Some(packet) = Packet::read(frame) else {
        return frame.bytes[..frame.bytes.len().min(14)].to_vec();
    };
    let ip = &packet.bytes[packet.ip_at..];
    let rest = packet.bytes.get(packet.transport_at..).unwrap_or_default();
    let (addresses, tail) = match packet.bytes[packet.ip_at] >> 4 {
        4 if ip[6] & 0x3F != 0 || ip[7] != 0 => (&ip[12..20], &ip[4..6]),
        4 => (&ip[12..20], &rest[..rest.len().min(4)]),
        _ => (&ip[8..40], &rest[..rest.len().min(if packet.protocol == 44 { 8 } else { 4 })]),
    };
    let tail = if packet.protocol == 44 { tail.get(4..).unwrap_or_default() } else { tail };
    [&packet.bytes[..packet.ip_at], addresses, &[packet.protocol], tail].concat()
}

/// An IP packet in a frame, as far as it can be parsed.
pub(super) struct Packet<'a> {
    pub bytes: &'a [u8],
    pub ip_at: usize,
    pub transport_at: usize,
    pub protocol: u8,
    /// Offset of the packet's end in the frame. Padding may follow.
    pub end: usize,
}

impl Packet<'_> {
    pub(super) fn read(frame: &SeenFrame) -> Option<Packet<'_>> {
        let bytes = &frame.bytes[..];
        let mut ip_at = 14;
        while matches!(bytes.get(ip_at - 2..ip_at)?, [0x81, 0] | [0x88, 0xA8] | [0x91, 0]) {
            ip_at += 4;
        }
        let ip = bytes.get(ip_at..)?;
        let half = |at: usize| Some(usize::from(u16::from_be_bytes(ip.get(at..at + 2)?.try_into().ok()?)));
        let (transport_at, protocol, end) = match (bytes.get(ip_at - 2..ip_at)?, ip.first()? >> 4) {
            ([8, 0], 4) if ip.len() >= 20 => (ip_at + usize::from(ip[0] & 15) * 4, ip[9], ip_at + half(2)?),
            ([0x86, 0xDD], 6) if ip.len() >= 40 => (ip_at + 40, ip[6], ip_at + 40 + half(4)?),
            _ => return None,
        };
        (transport_at <= end && end <= bytes.len()).then_some(Packet { bytes, ip_at, transport_at, protocol, end })
    }

    /// Returns the bytes of the TCP header; `None` for other protocols and for fragments.
    pub(super) fn tcp(&self) -> Option<&[u8]> {
        let is_fragment = self.bytes[self.ip_at] >> 4 == 4
            && (self.bytes[self.ip_at + 6] & 0x3F != 0 || self.bytes[self.ip_at + 7] != 0);
        let body = self.bytes.get(self.transport_at..self.end)?;
        let len = usize::from(body.get(12)? >> 4) * 4;
        (self.protocol == 6 && !is_fragment && len >= 20).then_some(body.get(..len)?)
    }

    /// Returns the offset of the value of a SYN's MSS option in the frame, and the value; `None` without the
    /// option.
    pub(super) fn mss(&self) -> Option<(usize, u16)> {
        let header = self.tcp()?;
        if header[13] & 2 == 0 {
            return None;
        }
        let mut at = 20;
        loop {
            match header.get(at)? {
                0 => return None,
                1 => at += 1,
                2 => {
                    let value = header.get(at + 2..at + 4)?;
                    return Some((self.transport_at + at + 2, u16::from_be_bytes([value[0], value[1]])));
                }
                _ => at += usize::from(*header.get(at + 1)?).max(2),
            }
        }
    }

    /// Whether the checksum of a TCP or UDP packet is correct.
    pub(super) fn is_right(&self) -> bool {
        (self.pseudo_header() + Sum::of(&self.bytes[self.transport_at..self.end])).is_right()
    }

    /// Returns the sum of the pseudo-header that the packet's checksum covers.
    pub(super) fn pseudo_header(&self) -> Sum {
        let ip = &self.bytes[self.ip_at..];
        let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
        let len = (self.end - self.transport_at) as u16;
        Sum::of(addresses) + Sum::word(self.protocol.into()) + Sum::word(len)
    }
}

/// Returns the frames with the bytes of each stream in place of its packets.
fn streams(frames: &[SeenFrame], mtu: usize) -> Vec<SeenFrame> {
    // For each flow: its open run, and the run's index in the list.
    let mut runs = BTreeMap::<Vec<u8>, (u32, usize)>::new();
    let mut list: Vec<SeenFrame> = Vec::new();
    for frame in frames {
        let Some((packet, header)) = Packet::read(frame).and_then(|packet| {
            let header = packet.tcp()?.to_vec();
            Some((packet, header))
        }) else {
            list.push(frame.clone());
            continue;
        };
        let payload = &packet.bytes[packet.transport_at + header.len()..packet.end];
        let len = frame.segment_len.map_or(packet.end - packet.ip_at, |len| {
            usize::from(len) + packet.transport_at + header.len() - packet.ip_at
        });
        // SYN, RST, FIN and URG stay in their place.
        let is_plain = header[13] & 0x27 == 0 && !payload.is_empty() && len <= mtu;
        if !is_plain || (frame.segment_len.is_none() && !packet.is_right()) {
            list.push(frame.clone());
            continue;
        }
        let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let key = flow(frame);
        let next = seq.wrapping_add(payload.len() as u32);
        match runs.get_mut(&key) {
            Some((expected, at)) if *expected == seq => {
                list[*at].bytes.extend(payload);
                *expected = next;
            }
            _ => {
                let bytes = [STREAM, &[key.len() as u8], &key, &seq.to_be_bytes(), payload].concat();
                runs.insert(key, (next, list.len()));
                list.push(SeenFrame { bytes, segment_len: None });
            }
        }
    }
    list
}

/// Returns the frames with each run of consecutive fragments in place of the fragments. An unfragmented datagram is
/// also a run.
fn fragment_runs(frames: &[SeenFrame]) -> Vec<SeenFrame> {
    let mut list: Vec<SeenFrame> = Vec::new();
    // For the last run: its datagram, and the offset of its next fragment.
    let mut open: Option<(Vec<u8>, usize)> = None;
    for frame in frames {
        let readable = Packet::read(frame)
            .filter(|packet| packet.bytes[packet.ip_at] == 0x45 && packet.end - packet.ip_at <= WIDE_MTU as usize);
        let Some(packet) = readable else {
            open = None;
            list.push(frame.clone());
            continue;
        };
        let ip = &packet.bytes[packet.ip_at..];
        let key = [&packet.bytes[..packet.ip_at], &ip[1..2], &ip[4..6], &[ip[6] & 0xC0], &ip[8..10], &ip[12..20]]
            .concat();
        let offset = usize::from(u16::from_be_bytes([ip[6] & 0x1F, ip[7]])) * 8;
        let body = &packet.bytes[packet.transport_at..packet.end];
        let is_last = ip[6] & 0x20 == 0;
        match (&mut open, list.last_mut()) {
            (Some((of, next)), Some(run)) if *of == key && *next == offset && offset > 0 => {
                run.bytes.extend(body);
                *next += body.len();
            }
            _ => {
                let bytes = [b"run", &key[..], &(offset as u32).to_be_bytes(), body].concat();
                list.push(SeenFrame { bytes, segment_len: None });
                open = Some((key, offset + body.len()));
            }
        }
        if is_last {
            list.last_mut().expect("it was just pushed or extended").bytes.extend(b"last");
            open = None;
        }
    }
    list
}

/// Describes a frame in one line, with the length and the first bytes.
fn told(frame: &SeenFrame) -> String {
    let shown: Vec<String> = frame
        .bytes
        .chunks(2)
        .take(SHOWN_LEN / 2)
        .map(|two| two.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    let gso = frame.segment_len.map(|len| format!(", a GSO packet of {len}")).unwrap_or_default();
    format!("{} bytes{gso} [{}]", frame.bytes.len(), shown.join(" "))
}

/// Whether a name matches a pattern, in which a trailing `*` stands for any characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |front| name.starts_with(front))
}

/// Number of a frame's bytes that are shown: all headers of a TCP packet.
const SHOWN_LEN: usize = 78;

/// Mark before the bytes of a stream. The length of the flow's key, the key, and the first sequence number follow.
const STREAM: &[u8] = b"stream";
