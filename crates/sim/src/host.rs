//! Flow plans -> packets, and received packets -> verified payload.
//!
//! Hosts are the source and the final check of all data: every delivered byte is verified. Connections are left to
//! `tcp_app.rs`, reassembly to `oracle.rs`.

mod tcp_app;

use crate::event::What;
use crate::flow::{self, Arrival, Flow, Kind, PORT};
use crate::laws::Law;
use crate::malformed::Malformed;
use crate::net::Net;
use crate::oracle::Datagrams;
use crate::pattern::Pattern;
use crate::tcp::Segment;
use crate::tcp::segment::{ACK, PSH, STAMPS_LEN, SYN, Timestamps};
use crate::tcp::wire as tcp_wire;
use crate::wire::{
    self, FRAGMENT_LEN, Head, ICMP, ICMPV6, TCP, TCP_LEN, UDP, UDP_LEN, V4_LEN, V6_LEN, WireFacts, word,
};
use tcp_app::TcpApp;

use arrayvec::ArrayVec;
use core::time::Duration;
use packet::{Ecn, Time};

/// A simulated host with a single link.
#[derive(Debug)]
pub struct Host {
    number: u16,
    wire: usize,
    dont_fragment: bool,
    open: Datagrams,
    /// IP identification of the next packet.
    next_id: u32,
    /// Buffer for datagrams that are transmitted in fragments.
    scratch: Vec<u8>,
    malformed: Malformed,
    /// The host's ends of TCP connections.
    tcp_apps: Vec<TcpApp>,
    /// Time of the next planned wake-up event.
    pub planned: Time,
    /// Number of packets dropped for a wrong checksum.
    pub bad_sum_count: u64,
    /// Number of packets that belong to none of the host's flows.
    pub stray_count: u64,
    /// Number of wrong messages and segments with correct checksums, tolerated because a wire damages frames.
    pub excused_count: u64,
    /// Number of received ICMP errors that lowered a path MTU.
    pub told_count: u64,
}

impl Host {
    /// A host that has sent nothing yet.
    pub fn new(number: u16, wire: usize, dont_fragment: bool, seed: u64) -> Host {
        Host {
            number,
            wire,
            dont_fragment,
            open: Datagrams::default(),
            next_id: seed as u32,
            scratch: Vec::new(),
            malformed: Malformed::new(seed ^ u64::from(number)),
            tcp_apps: Vec::new(),
            planned: Time::NEVER,
            bad_sum_count: 0,
            stray_count: 0,
            excused_count: 0,
            told_count: 0,
        }
    }

    /// Number of packets that were dropped at this host, or still wait for missing fragments.
    pub fn ended_count(&self) -> u64 {
        self.bad_sum_count + self.stray_count + self.excused_count + self.open.given_up + self.open.waiting()
    }
}

/// Transmission.
impl Host {
    /// Transmits the next burst of flow `number`.
    pub fn send(&mut self, net: &mut Net, number: usize) {
        if net.flows[number].next_send != net.now {
            return;
        }
        let kind = net.flows[number].plan.kind;
        let goes_on = match kind {
            Kind::Datagrams => self.send_messages(net, number),
            Kind::Stream => self.send_stream(net, number),
            Kind::Tcp => self.send_talk(net, number),
            Kind::Malformed => self.send_malformed(net, number),
        };
        if let Some(gap) = goes_on {
            let next_send = net.now + gap;
            net.flows[number].next_send = next_send;
            net.events.plan(next_send, What::Send(number as u32));
        }
    }

    fn send_messages(&mut self, net: &mut Net, number: usize) -> Option<Duration> {
        let mtu = net.wires[self.wire].mtu;
        for _ in 0..net.flows[number].plan.burst {
            let flow = &mut net.flows[number];
            if flow.left == 0 {
                return None;
            }
            flow.left -= 1;
            let message = flow.sent;
            flow.sent += 1;
            let is_v6 = flow.plan.is_v6;
            let path_len = mtu.min(flow.told_len);
            let head_len = if is_v6 { V6_LEN } else { V4_LEN };
            let most = if self.dont_fragment { path_len } else { LEN_MAX } - head_len - UDP_LEN;
            let len = flow.plan.sizes.draw(&mut flow.dice, most as u32) as usize + UDP_LEN;
            // After an ICMP error with a small MTU, some hosts send atomic fragments instead of unfragmented
            // packets (RFC 6946 section 1).
            let may_be_atomic = is_v6 && flow.dice.one_in(ATOMIC_ONE_IN);
            let head = self.head(flow, UDP);
            // On an IPv4 path a router fragments for the host. On an IPv6 path the host fragments to the MTU it was
            // told.
            let fragment_len = if is_v6 { path_len } else { mtu };
            let is_atomic = may_be_atomic && head_len + FRAGMENT_LEN + len <= fragment_len;
            if !is_atomic && (head_len + len <= fragment_len || self.dont_fragment) {
                self.send_whole(net, number, message, head, len);
            } else {
                self.send_in_fragments(net, number, message, head, len, fragment_len);
            }
        }
        let flow = &net.flows[number];
        (flow.left > 0).then_some(flow.plan.gap)
    }

    fn send_whole(&mut self, net: &mut Net, number: usize, message: u64, head: Head, len: usize) {
        // The flows are taken out of `net` while they are read, so that `net` can be changed.
        let flows = std::mem::take(&mut net.flows);
        let flow = &flows[number];
        net.put(self.wire, head.header_len() + len, |room| {
            head.write(room);
            let upper = &mut room[head.header_len()..];
            flow.write_message(message, &mut upper[UDP_LEN..]);
            wire::write_udp(&head, flow.port(), upper);
        });
        net.flows = flows;
    }

    fn send_in_fragments(
        &mut self,
        net: &mut Net,
        number: usize,
        message: u64,
        head: Head,
        len: usize,
        fragment_len: usize,
    ) {
        self.scratch.resize(LEN_MAX, 0);
        let upper = &mut self.scratch[..len];
        let flow = &net.flows[number];
        flow.write_message(message, &mut upper[UDP_LEN..]);
        wire::write_udp(&head, flow.port(), upper);
        let mut offset = 0;
        while offset < len {
            let fragment = Head { fragment: Some((offset, false)), ..head };
            let room = fragment_len - fragment.header_len();
            // Only the last fragment may have any length (RFC 8200 section 4.5).
            let end = if len - offset <= room { len } else { offset + (room & !7) };
            let fragment = Head { fragment: Some((offset, end < len)), ..head };
            let payload = &self.scratch[offset..end];
            net.put(self.wire, fragment.header_len() + payload.len(), |room| {
                fragment.write(room);
                room[fragment.header_len()..].copy_from_slice(payload);
            });
            offset = end;
        }
    }

    fn send_stream(&mut self, net: &mut Net, number: usize) -> Option<Duration> {
        let mtu = net.wires[self.wire].mtu;
        let flow = &mut net.flows[number];
        let Some(peer_mss) = flow.peer_mss else {
            flow.syn_count += 1;
            if flow.syn_count > SYN_COUNT_MAX {
                return None;
            }
            let head = self.head(flow, TCP);
            let (isn, mss) = (flow.isn(), mss_of(mtu, head.is_v6));
            let segment = Segment { seq: isn, flags: SYN, mss: Some(mss), window: WINDOW, ..Segment::default() };
            self.send_segment(net, number, head, &segment, 0);
            return Some(SYN_AGAIN);
        };
        let head_len = if flow.plan.is_v6 { V6_LEN } else { V4_LEN } + TCP_LEN;
        let options_len = if flow.plan.has_timestamps { STAMPS_LEN } else { 0 };
        let room = (mtu.min(flow.told_len) - head_len).min(usize::from(peer_mss)).saturating_sub(options_len);
        let mut burst = ArrayVec::<(u64, u32), BURST_MAX>::new();
        while flow.left > 0 && burst.len() < (flow.plan.burst as usize).min(BURST_MAX - 1) {
            flow.left -= 1;
            let len = flow.plan.sizes.draw(&mut flow.dice, room as u32);
            burst.push((flow.sent, len));
            flow.sent += u64::from(len);
            if flow.plan.disorder > 0 && burst.len() > 1 && flow.dice.one_in(flow.plan.disorder) {
                let other = flow.dice.below(burst.len() as u64) as usize;
                let last = burst.len() - 1;
                match flow.dice.one_in(4) && !burst.is_full() {
                    true => burst.push(burst[other]),
                    false => burst.swap(other, last),
                }
            }
        }
        let (goes_on, gap) = (flow.left > 0, flow.plan.gap);
        for (offset, len) in burst {
            let flow = &mut net.flows[number];
            let head = self.head(flow, TCP);
            let flags = ACK | if flow.dice.one_in(16) { PSH } else { 0 };
            let seq = flow.isn().wrapping_add(1).wrapping_add(offset as u32);
            let stamp = Timestamps { value: (net.now.nanos() / 1_000_000) as u32 + 1, echo: 0 };
            let timestamps = flow.plan.has_timestamps.then_some(stamp);
            let segment = Segment { seq, flags, timestamps, len, window: WINDOW, ..Segment::default() };
            self.send_segment(net, number, head, &segment, offset);
        }
        goes_on.then_some(gap)
    }

    fn send_segment(&mut self, net: &mut Net, number: usize, head: Head, segment: &Segment, offset: u64) {
        let flow = &net.flows[number];
        let (ports, stream) = ([flow.port(); 2], flow.stream());
        put_segment(net, self.wire, &head, segment, ports, (stream, offset));
    }

    fn send_malformed(&mut self, net: &mut Net, number: usize) -> Option<Duration> {
        for _ in 0..net.flows[number].plan.burst {
            let flow = &mut net.flows[number];
            if flow.left == 0 {
                return None;
            }
            flow.left -= 1;
            let (to, is_v6) = (flow.plan.to as u16, flow.plan.is_v6);
            self.malformed.send(net, self.wire, self.number, to, is_v6);
        }
        let flow = &net.flows[number];
        (flow.left > 0).then_some(flow.plan.gap)
    }

    fn head(&mut self, flow: &Flow, protocol: u8) -> Head {
        self.next_id = self.next_id.wrapping_add(1);
        let to = if flow.plan.from == usize::from(self.number) { flow.plan.to } else { flow.plan.from };
        Head {
            is_v6: flow.plan.is_v6,
            from: self.number,
            to: to as u16,
            protocol,
            // A host with path MTU discovery sets DF on all its segments (RFC 1191 section 3).
            dont_fragment: self.dont_fragment || protocol == TCP,
            id: self.next_id,
            ecn: if flow.plan.talk.ends[0].ecn { Ecn::Ect0.bits() } else { 0 },
            fragment: None,
        }
    }
}

/// Reception.
impl Host {
    /// Receives and verifies a packet.
    pub fn take(&mut self, net: &mut Net, frame: &[u8]) {
        let Some(seen) = wire::read(frame).filter(|seen| seen.to == Some(self.number)) else {
            self.stray_count += 1;
            return;
        };
        let payload = &frame[seen.at..seen.end];
        if seen.fragment.is_none() {
            return self.take_upper(net, &seen, payload);
        }
        // The open datagrams are taken out of the host while they are read, so that the rest of the host can be
        // changed.
        let mut open = std::mem::take(&mut self.open);
        open.push(net.now, &seen, payload, |upper| self.take_upper(net, &seen, upper));
        self.open = open;
    }

    fn take_upper(&mut self, net: &mut Net, seen: &WireFacts, upper: &[u8]) {
        if matches!(seen.protocol, ICMP | ICMPV6) {
            return self.take_error(net, seen, upper);
        }
        let connection = flow::connection_of([word(upper, 0), word(upper, 2)]).filter(|_| seen.protocol == TCP);
        let number = match connection {
            Some((number, _)) => Some(number),
            None => word(upper, 2).checked_sub(PORT).map(usize::from),
        };
        let known = number.filter(|number| *number < net.flows.len());
        let (Some(number), Some(from)) = (known, seen.from) else {
            self.stray_count += 1;
            return;
        };
        let is_short = seen.protocol == UDP && usize::from(word(upper, 4)) != upper.len();
        if is_short || !wire::is_sum_right(seen, from, self.number, upper) {
            self.bad_sum_count += 1;
            return;
        }
        net.looked(Law::Integrity);
        if let Some((_, end)) = connection {
            return self.take_talk(net, number, end, seen, upper);
        }
        let plan = &net.flows[number].plan;
        let is_there = (plan.from, plan.to) == (usize::from(from), usize::from(self.number));
        let is_back = (plan.to, plan.from) == (usize::from(from), usize::from(self.number));
        match seen.protocol {
            UDP if is_there && plan.kind == Kind::Datagrams => self.take_message(net, number, &upper[UDP_LEN..]),
            TCP if is_there && plan.kind == Kind::Stream => self.take_segment(net, number, upper),
            TCP if is_back && plan.kind == Kind::Stream => self.take_reply(net, number, upper),
            _ => self.stray_count += 1,
        }
    }

    fn take_message(&mut self, net: &mut Net, number: usize, message: &[u8]) {
        match net.flows[number].receive_message(message) {
            Ok(Arrival::First | Arrival::Short) => {
                let flow = &mut net.flows[number];
                flow.last_arrival = net.now;
                flow.arrived_len += message.len() as u64;
            }
            Ok(Arrival::Again) if net.duplicated_count() > 0 => {}
            Ok(Arrival::Again) => {
                net.breaks(Law::Integrity, || format!("a message of flow {number} arrived twice"))
            }
            Err(what) => self.blame(net, number, what),
        }
    }

    fn take_segment(&mut self, net: &mut Net, number: usize, upper: &[u8]) {
        let Some((segment, payload)) = tcp_wire::read(upper, Ecn::NotEct) else { return };
        let flow = &mut net.flows[number];
        if segment.has(SYN) {
            let (isn, peer_isn) = (flow.isn() ^ 0x5555, flow.isn());
            let mss = mss_of(net.wires[self.wire].mtu, flow.plan.is_v6);
            let head = self.head(&net.flows[number], TCP);
            let reply = Segment {
                seq: isn,
                ack: peer_isn.wrapping_add(1),
                flags: SYN | ACK,
                mss: Some(mss),
                window: WINDOW,
                ..Segment::default()
            };
            return self.send_segment(net, number, head, &reply, 0);
        }
        let seq = segment.seq;
        if let Err(what) = flow.receive_bytes(flow.offset_of(seq), payload) {
            return self.blame(net, number, what);
        }
        if flow.plan.acks_every > 0 && flow.segment_count.is_multiple_of(flow.plan.acks_every) {
            let ack = seq.wrapping_add(payload.len() as u32);
            let seq = (flow.isn() ^ 0x5555).wrapping_add(1);
            let answer = Segment { seq, ack, flags: ACK, window: WINDOW, ..Segment::default() };
            let head = self.head(&net.flows[number], TCP);
            self.send_segment(net, number, head, &answer, 0);
        }
    }

    fn take_reply(&mut self, net: &mut Net, number: usize, upper: &[u8]) {
        let flow = &mut net.flows[number];
        let Some((segment, _)) = tcp_wire::read(upper, Ecn::NotEct).filter(|(segment, _)| segment.has(SYN)) else {
            return;
        };
        if flow.peer_mss.is_some() {
            return;
        }
        flow.peer_mss = Some(segment.mss.unwrap_or(MSS_DEFAULT).max(1));
        flow.next_send = net.now;
        net.events.plan(net.now, What::Send(number as u32));
    }

    /// Reports wrong payload despite a correct checksum. The report is suppressed if a wire may have damaged the
    /// packet.
    fn blame(&mut self, net: &mut Net, number: usize, what: String) {
        self.excused_count += 1;
        if self.excused_count > net.damaged_count() {
            net.breaks(Law::Integrity, || format!("flow {number}: {what}"));
        }
    }

    fn take_error(&mut self, net: &mut Net, seen: &WireFacts, upper: &[u8]) {
        let Some((told, quote)) = wire::too_big(seen, upper) else { return };
        let least = if seen.is_v6 { 1_280 } else { 68 };
        if !matches!(told.protocol, TCP | UDP) || told.mtu < least {
            return;
        }
        if let Some((ports, seq)) = tcp_wire::quoted(quote).filter(|_| told.protocol == TCP)
            && let Some((number, end)) = flow::connection_of(ports)
        {
            return self.receive_too_big(net, number, end, told.mtu, seq);
        }
        let number = word(quote, 2).checked_sub(PORT).map(usize::from);
        let Some(flow) = number.and_then(|number| net.flows.get_mut(number)) else { return };
        if flow.plan.from == usize::from(self.number) {
            self.told_count += 1;
            flow.told_len = flow.told_len.min(told.mtu);
        }
    }
}

/// Transmits a TCP segment in one packet on a wire.
fn put_segment(
    net: &mut Net,
    wire: usize,
    head: &Head,
    segment: &Segment,
    ports: [u16; 2],
    content: (Pattern, u64),
) {
    let upper_len = segment.header_len() + segment.len as usize;
    net.put(wire, head.header_len() + upper_len, |room| {
        head.write(room);
        tcp_wire::write(segment, ports, content, head.pseudo_sum(upper_len), &mut room[head.header_len()..]);
    });
}

/// The MSS for a link MTU in bytes.
fn mss_of(mtu: usize, is_v6: bool) -> u16 {
    (mtu - TCP_LEN - if is_v6 { V6_LEN } else { V4_LEN }) as u16
}

/// Maximum length of a packet that a host builds, in bytes.
const LEN_MAX: usize = 65_535;
/// The default MSS, in bytes, if a host announces none (RFC 9293 section 3.7.1).
const MSS_DEFAULT: u16 = 536;
/// The announced receive window of a stream, in bytes. The stream's sender ignores windows.
const WINDOW: u16 = u16::MAX;
/// Maximum number of segments in a burst.
const BURST_MAX: usize = 65;
/// Time before an unanswered SYN is repeated.
const SYN_AGAIN: Duration = Duration::from_millis(200);
const SYN_COUNT_MAX: u32 = 6;
/// One in this many IPv6 datagrams that need no fragmentation is transmitted as an atomic fragment.
const ATOMIC_ONE_IN: u64 = 16;
