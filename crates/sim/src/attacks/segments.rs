//! A seed -> TCP segments that no host should send, and a verdict.
//!
//! Each attack checks that the gateway does not change the stream.

use super::craft::{self, ACK, PSH, Tcp, head, udp};
use super::fragments::{Clock, TICK, in_ethernet, shuffle};
use super::rig::{Rig, Verdict};
use super::{Field, holds};
use crate::pattern::Pattern;
use crate::topology::{Gateway, GatewayRole};
use crate::wire::{self, Head, TCP, TCP_LEN, UDP, WireFacts};
use core::time::Duration;
use engine::{Event, Hold, Mode, Reason, Toward};
use packet::LinkType;
use std::collections::BTreeMap;

/// rel:A37: short segments, in an order that prevents immediate coalescing: every other one first. At most 64
/// segments and 64 KiB of a flow may wait, and all data must be delivered. The bench measures the cost of each
/// (`attack` in BENCHMARKS.md).
pub fn segment_smack(field: &mut Field) -> Verdict {
    for mode in [Mode::Resize, Mode::Reversible] {
        let mut testbed = waiting(field, mode);
        let mut stream = Stream::new(field.seed, false);
        let mut now = Clock::default();
        for _ in 0..field.times(4_000, 60) {
            let len = field.rng.one_of(&[1, 2, 100]);
            let odd = (0..100).map(|number| 2 * number + 1);
            for number in odd.chain((0..100).map(|number| 2 * number)) {
                let frame = stream.segment_at(number * len, len as usize, ACK);
                now.0 += Duration::from_nanos(100);
                testbed.push(now.0, Toward::Wide, &frame)?;
                stream.take_all(&testbed)?;
                let (held, buffers) = testbed.held();
                holds(held <= 64 + 128 && buffers <= 66, || {
                    format!("{held} segments of one flow are held in {buffers} buffers")
                })?;
            }
            stream.sent += 200 * len;
            now.0 += Duration::from_millis(50);
            testbed.wait_until(now.0)?;
            stream.take_all(&testbed)?;
            stream.is_whole()?;
        }
        let waited = testbed.event(Event::Reordered);
        holds(waited > 0 || mode == Mode::Reversible, || "no segment was reordered".to_owned())?;
        holds(testbed.event(Event::Coalesced) > 0, || "no segment was coalesced".to_owned())?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A38: long sequences of segments with 1 to 100 bytes. A coalesced packet must have at most 65,535 bytes, and
/// in reversible mode at most 128 segments. All data must be delivered.
pub fn many_segments(field: &mut Field) -> Verdict {
    for (role, mode) in BOTH_MODES {
        let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [65_535, 1_500]);
        let mut stream = Stream::new(field.seed, false);
        let mut now = Clock::default();
        for len in 1..=100 {
            for _ in 0..field.times(40, 1) {
                for _ in 0..700 {
                    let frame = stream.segment_at(0, len, ACK);
                    stream.sent += len as u64;
                    testbed.push(now.0, Toward::Wide, &frame)?;
                    stream.take_all(&testbed)?;
                    let held = testbed.held().0;
                    holds(mode == Mode::Resize || held <= 128, || {
                        format!("{held} segments are in one GSO packet")
                    })?;
                }
                now.tick();
                testbed.rest()?;
                stream.take_all(&testbed)?;
                stream.is_whole()?;
            }
        }
        end_joined(field, &mut testbed)?;
    }
    Ok(())
}

/// rel:A41: streams of all segment lengths through gateways of all MTUs. No output may exceed the MTU, as the rig
/// asserts. Reversible mode must restore every packet byte for byte.
pub fn oversize_runs(field: &mut Field) -> Verdict {
    for round in 0..field.times(3_000, 40) {
        let (role, mode) = BOTH_MODES[round as usize % 2];
        let wide_mtu = field.rng.one_of(&[1_500, 1_501, 2_000, 4_000, 9_000, 65_535]);
        let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [wide_mtu, 1_500]);
        run_stream(field, &mut testbed, mode, round % 3 == 0)?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A42: a data segment, and then a segment with any of the 256 combinations of flags. Held data must be
/// transmitted first.
pub fn flags(field: &mut Field) -> Verdict {
    let mut id = 0;
    for (role, mode) in BOTH_MODES {
        for round in 0..field.times(60, 1) {
            let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
            let mut testbed = field.rig(&gateway, [9_000, 1_500]);
            for flags in 0..=255u8 {
                let ports = [flags.into(), 80 + round as u16];
                let head = |id: &mut u32| {
                    *id += 1;
                    head(false, 1, 2, TCP, *id & 0xFFFF)
                };
                let mut order = Vec::new();
                let data: Vec<_> = (0..3)
                    .map(|at| craft::segment(&head(&mut id), &Tcp::of(ports, 100 * at), &[at as u8; 100]))
                    .collect();
                let len = field.rng.one_of(&[0, 100]);
                let flagged = craft::segment(&head(&mut id), &Tcp { flags, ..Tcp::of(ports, 300) }, &vec![3; len]);
                for frame in data.iter().chain([&flagged]) {
                    testbed.push(TICK * u32::from(flags), Toward::Wide, frame)?;
                    order.extend(starts(&testbed));
                }
                testbed.rest()?;
                order.extend(starts(&testbed));
                let bytes: usize = order.iter().map(|(_, len)| len).sum();
                let is_in_order = order.is_sorted_by_key(|(seq, _)| *seq);
                holds(bytes == 300 + len && is_in_order, || format!("flags {flags:#04x}: {order:?} leave"))?;
            }
            field.end(&mut testbed)?;
        }
    }
    Ok(())
}

/// rel:A43: two to six segments of different lengths, in frames with trailing bytes, which the gateway may
/// coalesce. The output payload must equal the input payload.
pub fn payloads(field: &mut Field) -> Verdict {
    for (role, mode) in BOTH_MODES {
        let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [9_000, 1_500]);
        testbed.link_type = LinkType::Ethernet;
        let mut now = Clock::default();
        for round in 0..field.times(60_000, 800) {
            let mut stream = Stream::new(round, round % 2 == 1);
            stream.ports = [round as u16, (round >> 16) as u16 + 1];
            for _ in 0..field.rng.from(2, 6) {
                let len = field.rng.one_of(&[1, 2, 3, 5, 6, 7, 100, 101, 700, 1_400]);
                let flags = ACK | if field.rng.one_in(5) { PSH } else { 0 };
                let mut frame = in_ethernet(&[], &stream.segment_at(0, len, flags));
                stream.sent += len as u64;
                // Bytes that a driver left after the packet.
                frame.extend(craft::bytes(field.rng.number(), field.rng.below(20) as usize));
                testbed.push(now.0, Toward::Wide, &frame)?;
                stream.take_all(&testbed)?;
            }
            now.tick();
            testbed.rest()?;
            stream.take_all(&testbed)?;
            stream.is_whole()?;
        }
        end_joined(field, &mut testbed)?;
    }
    Ok(())
}

/// rel:A44: frames padded to 46 and to 60 bytes. Padding must never be treated as data.
pub fn padded(field: &mut Field) -> Verdict {
    for (role, mode) in BOTH_MODES {
        let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [9_000, 1_500]);
        testbed.link_type = LinkType::Ethernet;
        let mut now = Clock::default();
        let mut stream = Stream::new(field.seed, false);
        for round in 0..field.times(200_000, 3_000) {
            let len = field.rng.from(0, 8) as usize;
            let mut frame = in_ethernet(&[], &stream.segment_at(0, len, ACK));
            stream.sent += len as u64;
            frame.resize(frame.len().max(field.rng.one_of(&[46, 60, 64])), 0xAA);
            testbed.push(now.0, Toward::Wide, &frame)?;
            stream.take_all(&testbed)?;
            if round % 6 == 5 {
                now.tick();
                testbed.rest()?;
                stream.take_all(&testbed)?;
                stream.is_whole()?;
            }
        }
        end_joined(field, &mut testbed)?;
    }
    Ok(())
}

/// rel:A45: two segments that could be coalesced, except that one header byte differs. Reversible mode must restore
/// both, byte for byte.
pub fn metadata(field: &mut Field) -> Verdict {
    let gateway = Gateway::new(GatewayRole::ReceiveOffload, 0);
    let mut testbed = field.rig(&gateway, [9_000, 1_500]);
    testbed.has_right_sums = false;
    let mut now = Clock::default();
    let options = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 3];
    for is_v6 in [false, true] {
        let header_len = if is_v6 { 40 } else { 20 } + 32;
        for at in 0..header_len {
            // The full attack tries every other value of the byte, the short attack only changes of one bit.
            for change in 0..field.times(256, 24) {
                let change = if field.times(1, 0) == 1 { change as u8 } else { 1u8.rotate_left(change as u32) };
                let mut frames: Vec<_> = (0..3u32)
                    .map(|number| {
                        let head = head(is_v6, 1, 2, TCP, 7 + number);
                        let said = Tcp { options: &options, ..Tcp::of([5, 6], 100 * number) };
                        craft::segment(&head, &said, &craft::bytes(u64::from(number), 100))
                    })
                    .collect();
                frames[1][at] ^= change;
                // A length of 0 is left by senders with offload; the gateway fills it in.
                if wire::word(&frames[1], if is_v6 { 4 } else { 2 }) == 0 {
                    continue;
                }
                reseal(&mut frames[1]);
                let before = owed(&testbed);
                let mut left = testbed.push_all(now.0, TICK / 16, Toward::Wide, &frames)?;
                let due = owed(&testbed) - before;
                now.0 += Duration::from_secs(70);
                let mut readable: Vec<_> = frames.into_iter().filter(|frame| left.contains(frame)).collect();
                // A segment of another flow may leave earlier.
                left.sort();
                readable.sort();
                // The rig's output does not contain frames that are no longer IP packets.
                let is_same = left == readable && left.len() >= 2 && left.len() as u64 == due;
                holds(is_same, || {
                    format!("header byte {at}, changed by {change:#04x}: {} of {due} packets leave", left.len())
                })?;
            }
        }
    }
    field.end(&mut testbed)?;
    moving_on(field)?;
    shifted(field)
}

/// Part of rel:A45: segments whose acknowledgement and timestamps advance, stay or go back. In resize mode, no byte
/// may get a later timestamp than it had. Otherwise a receiver would reject later data as old (RFC 7323 section 5).
/// Nor may a byte get an older acknowledgement or echo.
fn moving_on(field: &mut Field) -> Verdict {
    for is_v6 in [false, true] {
        let gateway = Gateway { coalesce: Some(Mode::Resize), ..Gateway::new(GatewayRole::Border, 0) };
        let mut testbed = field.rig(&gateway, [9_000, 1_500]);
        let mut now = Clock::default();
        // Timestamp, echo and acknowledgement of each segment.
        let mut said = vec![[u32::MAX - 50; 3]];
        for number in 0..field.times(200_000, 2_000) as u32 {
            let mut next = said[number as usize];
            for word in &mut next {
                *word = word.wrapping_add_signed(field.rng.one_of(&[0, 0, 0, 0, 0, 0, 1, 1, 9, -1, -9]));
            }
            let [value, echo, ack] = next;
            said.push(next);
            let options = [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
            let tcp = Tcp { options: &options, ack, ..Tcp::of([5, 6], MOVING_LEN as u32 * number) };
            let head = head(is_v6, 1, 2, TCP, 1 + number % 60_000);
            let frame = craft::segment(&head, &tcp, &craft::bytes(u64::from(number), MOVING_LEN));
            now.0 += Duration::from_nanos(100);
            testbed.push(now.0, Toward::Wide, &frame)?;
            judge_moving_on(&testbed, &said)?;
            if number % 16 == 15 {
                now.tick();
                testbed.rest()?;
                judge_moving_on(&testbed, &said)?;
            }
        }
        end_joined(field, &mut testbed)?;
    }
    Ok(())
}

/// Checks the output of [`moving_on`]. `said` lists timestamp, echo and acknowledgement of the input segments.
fn judge_moving_on(testbed: &Rig, said: &[[u32; 3]]) -> Verdict {
    let is_before = |one: u32, other: u32| (one.wrapping_sub(other) as i32) < 0;
    testbed.left().try_for_each(|out| {
        let seen = wire::read(out.frame).ok_or("a segment cannot be parsed")?;
        let upper = craft::upper(out.frame, &seen);
        let [value, echo, ack] = [24, 28, 8].map(|at| wire::long(upper, at));
        let first = wire::long(upper, 4) as usize / MOVING_LEN;
        let count = (upper.len() - usize::from(upper[12] >> 4) * 4) / MOVING_LEN;
        let wrong = said[first + 1..=first + count].iter().find(|[its_value, its_echo, its_ack]| {
            is_before(*its_value, value) || is_before(echo, *its_echo) || is_before(ack, *its_ack)
        });
        wrong.map_or(Ok(()), |wrong| {
            Err(format!("value, echo and acknowledgement {wrong:?} leave as {:?}", [value, echo, ack]))
        })
    })
}

/// Part of rel:A45: streams with different initial sequence numbers (RFC 9293 section 3.4). The same segments, in
/// and out of order, must give the same output for every initial number, even if numbers wrap within the stream.
fn shifted(field: &mut Field) -> Verdict {
    for round in 0..field.times(2_000, 20) {
        let mode = field.rng.one_of(&[Mode::Resize, Mode::Reversible]);
        let mut parts = Vec::new();
        let mut at = 0u32;
        for _ in 0..120 {
            let len = field.rng.one_of(&[1, 99, 100, 100, 100, 1_400]);
            parts.push((at, len, if field.rng.one_in(20) { ACK | PSH } else { ACK }));
            at += len as u32;
        }
        // The position at which sequence numbers wrap. If segments were exchanged, the position is within a late
        // one.
        let mut come_round = field.rng.below(u64::from(at)) as u32;
        for _ in 0..field.rng.below(6) {
            let at = field.rng.below(parts.len() as u64 - 1) as usize;
            parts.swap(at, at + 1);
            let (start, len, _) = parts[at + 1];
            come_round = start + 1 + field.rng.below(len as u64) as u32;
        }
        let mut outcomes = Vec::new();
        for begin in [1 << 30, come_round.wrapping_neg()] {
            let mut testbed = waiting(field, mode);
            let mut left = Vec::new();
            for (number, (at, len, flags)) in parts.iter().enumerate() {
                let said = Tcp { flags: *flags, ..Tcp::of([5, 6], begin.wrapping_add(*at)) };
                let head = head(round % 2 == 1, 1, 2, TCP, number as u32 + 1);
                testbed.push(
                    TICK * number as u32 / 100,
                    Toward::Wide,
                    &craft::segment(&head, &said, &vec![7; *len]),
                )?;
                left.extend(starts(&testbed).into_iter().map(|(seq, len)| (number, seq.wrapping_sub(begin), len)));
            }
            testbed.rest()?;
            left.extend(starts(&testbed).into_iter().map(|(seq, len)| (parts.len(), seq.wrapping_sub(begin), len)));
            end_joined(field, &mut testbed)?;
            outcomes.push(left);
        }
        holds(outcomes[0] == outcomes[1], || {
            format!(
                "sequence numbers that wrap after {come_round}: {:?} leave, expected {:?}",
                outcomes[1], outcomes[0]
            )
        })?;
    }
    Ok(())
}

/// Number of packets received and not dropped, which must be transmitted.
fn owed(testbed: &Rig) -> u64 {
    let ended: u64 = Reason::ALL.iter().map(|reason| testbed.retired(*reason)).sum();
    testbed.ledger(Toward::Wide).received.packets - ended
}

/// rel:A46: segments that would make a coalesced packet of just below, exactly or just above 65,535 bytes. All data
/// must be delivered.
pub fn longest_runs(field: &mut Field) -> Verdict {
    for (role, mode) in BOTH_MODES {
        let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [65_535, 65_535]);
        let mut now = Clock::default();
        for round in 0..field.times(8_000, 150) {
            let mut stream = Stream::new(round, round % 2 == 1);
            stream.ports = [round as u16, 9];
            let first = field.rng.one_of(&[1, 536, 1_460, 32_740, 32_747, 32_748, 32_749, 60_000, 65_000]);
            let rest = 65_535 - 40 - first + field.rng.below(60) as usize - 45;
            for len in [first, rest.min(65_000), 1, first] {
                let frame = stream.segment_at(0, len, ACK);
                stream.sent += len as u64;
                testbed.push(now.0, Toward::Wide, &frame)?;
                stream.take_all(&testbed)?;
            }
            now.tick();
            testbed.rest()?;
            stream.take_all(&testbed)?;
            stream.is_whole()?;
        }
        end_joined(field, &mut testbed)?;
    }
    Ok(())
}

/// rel:A48: odd and even lengths in any order, and payloads with a checksum of zero. All output must have correct
/// checksums, which the rig verifies with independent code. Split segments and UDP checksums of zero are included.
pub fn odd_sums(field: &mut Field) -> Verdict {
    for round in 0..field.times(3_000, 40) {
        let (role, mode) = BOTH_MODES[round as usize % 2];
        let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [9_000, 1_500]);
        let is_v6 = round % 3 == 0;
        run_stream(field, &mut testbed, mode, is_v6)?;
        // Toward the narrow side: long segments of odd lengths. Two bytes of payload bring their checksum to zero.
        let head = head(is_v6, 2, 1, TCP, 5);
        let mut long = craft::tcp(
            &head,
            &Tcp::of([80, 1], 1),
            &craft::bytes(round, 1_001 + 2 * field.rng.below(3_500) as usize),
        );
        let sum = wire::word(&long, 16);
        let old = wire::word(&long, TCP_LEN);
        let both = u32::from(sum) + u32::from(old);
        long[TCP_LEN..TCP_LEN + 2].copy_from_slice(&((both & 0xFFFF) as u16 + (both >> 16) as u16).to_be_bytes());
        craft::seal(&head, &mut long, 16);
        testbed.push(Duration::from_secs(1), Toward::Narrow, &craft::packet(&head, &long))?;
        let lens: usize = testbed.left().map(|out| out.frame.len() - head.header_len() - TCP_LEN).sum();
        holds(lens == long.len() - TCP_LEN, || format!("of {} payload bytes, {lens} leave", long.len() - TCP_LEN))?;
        let datagram = udp(&Head { protocol: UDP, ..head }, 9, &craft::bytes(round, 700));
        testbed.push(
            Duration::from_secs(1),
            Toward::Narrow,
            &craft::packet(&Head { protocol: UDP, ..head }, &datagram),
        )?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A49: flipped bits in payload, headers and checksums. No transmitted packet may have wrong bytes and a
/// correct checksum.
pub fn laundering(field: &mut Field) -> Verdict {
    for (role, mode) in BOTH_MODES {
        for toward in [Toward::Wide, Toward::Narrow] {
            let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
            let mut testbed = field.rig(&gateway, [9_000, 1_500]);
            testbed.has_right_sums = false;
            let mut now = Clock::default();
            let mut stream = Stream::new(field.seed, false);
            stream.may_be_damaged = true;
            for round in 0..field.times(400_000, 6_000) {
                let len = field.rng.one_of(&[64, 99, 1_001, 1_400]) * if toward == Toward::Narrow { 4 } else { 1 };
                let mut frame = stream.segment_at(0, len, ACK);
                stream.sent += len as u64;
                if field.rng.one_in(4) {
                    // One bit after the ports and the sequence number, which determine the place of the bytes.
                    let at = field.rng.from(32, frame.len() as u64 - 1) as usize;
                    frame[at] ^= 1 << field.rng.below(8);
                }
                testbed.push(now.0, toward, &frame)?;
                stream.take_all(&testbed)?;
                if round % 8 == 7 {
                    now.tick();
                    testbed.rest()?;
                    stream.take_all(&testbed)?;
                }
            }
            holds(stream.wrong > 0, || "no damaged packet left".to_owned())?;
            if toward == Toward::Wide {
                end_joined(field, &mut testbed)?;
            } else {
                let made = testbed.ledger(toward).event(Event::Segments).packets;
                holds(made > 0, || "no packet was segmented".to_owned())?;
                field.end(&mut testbed)?;
            }
        }
    }
    Ok(())
}

/// A stream of segments, and a record of its delivered bytes.
struct Stream {
    pattern: Pattern,
    is_v6: bool,
    ports: [u16; 2],
    id: u32,
    /// Number of bytes sent.
    sent: u64,
    /// Number of bytes delivered.
    arrived: u64,
    /// The delivered ranges of the stream: start of each -> end. No byte is sent twice, so none may be delivered
    /// twice.
    places: BTreeMap<u64, u64>,
    may_be_damaged: bool,
    /// Number of packets delivered with a wrong checksum.
    wrong: u64,
}

impl Stream {
    fn new(key: u64, is_v6: bool) -> Stream {
        let pattern = Pattern::new(key);
        Stream {
            pattern,
            is_v6,
            ports: [7, 8],
            id: 0,
            sent: 0,
            arrived: 0,
            places: BTreeMap::new(),
            may_be_damaged: false,
            wrong: 0,
        }
    }

    /// A segment of `len` bytes. Its payload starts `ahead` bytes after the end of the data sent so far.
    fn segment_at(&mut self, ahead: u64, len: usize, flags: u8) -> Vec<u8> {
        self.id += 1;
        let mut payload = vec![0; len];
        let start = self.sent + ahead;
        self.pattern.fill(start, &mut payload);
        let head = head(self.is_v6, 1, 2, TCP, self.id & 0xFFFF);
        craft::segment(&head, &Tcp { flags, ..Tcp::of(self.ports, start as u32) }, &payload)
    }

    /// Checks the transmitted packets of the stream.
    fn take_all(&mut self, testbed: &Rig) -> Verdict {
        testbed.left().try_for_each(|out| match wire::read(out.frame) {
            Some(seen) => self.take(out.frame, &seen),
            None => Err("a segment cannot be parsed".to_owned()),
        })
    }

    fn take(&mut self, frame: &[u8], seen: &WireFacts) -> Verdict {
        let upper = craft::upper(frame, seen);
        // A packet too damaged to be a segment is fragmented like any other.
        if self.may_be_damaged && (seen.fragment.is_some() || !craft::is_sum_right(frame, seen)) {
            self.wrong += 1;
            return Ok(());
        }
        let header_len = usize::from(upper[12] >> 4) * 4;
        let payload = upper.get(header_len..).unwrap_or_default();
        // The stream offset with this sequence number that is nearest to the end of the data sent.
        let start =
            self.sent.wrapping_add_signed(i64::from(wire::long(upper, 4).wrapping_sub(self.sent as u32) as i32));
        if let Some(at) = self.pattern.first_wrong(start, payload) {
            return Err(format!(
                "byte {at} of a segment at {start} differs from the stream, although its checksum is right"
            ));
        }
        self.arrive(start, payload.len() as u64)
    }

    fn arrive(&mut self, start: u64, len: u64) -> Verdict {
        if len == 0 {
            return Ok(());
        }
        let (mut from, mut end) = (start, start + len);
        if let Some((before, known)) = self.places.range(..end).next_back().map(|(start, end)| (*start, *end)) {
            holds(known <= start, || format!("some of {len} bytes at offset {start} of a stream arrive twice"))?;
            from = if known == start { before } else { from };
        }
        end = self.places.remove(&end).unwrap_or(end);
        self.places.insert(from, end);
        self.arrived += len;
        Ok(())
    }

    fn is_whole(&self) -> Verdict {
        holds(self.arrived == self.sent, || format!("of {} bytes of a stream, {} arrived", self.sent, self.arrived))
    }
}

/// Sends a stream of a few hundred segments through a gateway, some out of order. Reversible mode must restore each
/// segment unchanged.
fn run_stream(field: &mut Field, testbed: &mut Rig, mode: Mode, is_v6: bool) -> Verdict {
    let mut stream = Stream::new(field.rng.number(), is_v6);
    let mut now = Clock::default();
    let (mut came, mut went) = (Vec::new(), Vec::new());
    for _ in 0..12 {
        let usual = field.rng.one_of(&[1, 3, 100, 535, 536, 1_001, 1_440]);
        let mut burst = Vec::new();
        for _ in 0..field.rng.from(1, 24) {
            let len = if field.rng.one_in(6) { field.rng.from(1, usual) } else { usual } as usize;
            let flags = ACK | if field.rng.one_in(8) { PSH } else { 0 };
            burst.push(stream.segment_at(0, len, flags));
            stream.sent += len as u64;
        }
        if field.rng.one_in(3) {
            shuffle(field, &mut burst);
        }
        for frame in burst {
            testbed.push(now.tick(), Toward::Wide, &frame)?;
            stream.take_all(testbed)?;
            went.extend(testbed.left().map(|out| out.frame.to_vec()));
            came.push(frame);
        }
        testbed.rest()?;
        stream.take_all(testbed)?;
        went.extend(testbed.left().map(|out| out.frame.to_vec()));
    }
    if mode == Mode::Reversible {
        came.sort();
        went.sort();
        holds(came == went, || {
            format!("{} segments arrived, {} left; counts or contents differ", came.len(), went.len())
        })?;
    }
    let gathered = testbed.event(Event::Coalesced);
    holds(gathered > 0, || "no segment was coalesced".to_owned())?;
    stream.is_whole()
}

/// A border that holds segments for 5 ms.
fn waiting(field: &Field, mode: Mode) -> Rig {
    let hold = Some(Hold::Fixed(Duration::from_millis(5)));
    field.rig(&Gateway { coalesce: Some(mode), hold, ..Gateway::new(GatewayRole::Border, 0) }, [9_000, 1_500])
}

/// Finishes an attack on a coalescing gateway, and checks that segments were coalesced.
fn end_joined(field: &mut Field, testbed: &mut Rig) -> Verdict {
    testbed.end()?;
    let gathered = testbed.event(Event::Coalesced);
    let runs: u64 = Event::RUN_ENDS.iter().map(|event| testbed.event(*event)).sum();
    holds(gathered > runs, || format!("{gathered} segments left in {runs} coalesced packets: none was merged"))?;
    field.end(testbed)
}

/// Sequence number and payload length of each transmitted segment.
fn starts(testbed: &Rig) -> Vec<(u32, usize)> {
    let start = |frame: &[u8]| {
        let upper = craft::upper(frame, &wire::read(frame)?);
        Some((wire::long(upper, 4), upper.len() - usize::from(upper[12] >> 4) * 4))
    };
    testbed.left().filter_map(|out| start(out.frame)).collect()
}

/// Recomputes the checksums of a changed frame, if its headers permit.
fn reseal(frame: &mut [u8]) {
    if frame[0] >> 4 == 4 && frame[0] & 15 == 5 {
        wire::seal_v4(&mut frame[..20]);
    }
}

/// Both coalescing modes, each with a gateway role that uses it.
pub const BOTH_MODES: [(GatewayRole, Mode); 2] =
    [(GatewayRole::Border, Mode::Resize), (GatewayRole::ReceiveOffload, Mode::Reversible)];
/// Payload of the segments in [`moving_on`], in bytes.
const MOVING_LEN: usize = 100;
