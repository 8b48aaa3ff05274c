//! Segments, timers and application writes -> segments of a host's connections.
//!
//! Every received byte is verified here. The TCP state machine is left to the `tcp` module.

use super::{Host, put_segment};
use crate::flow::{Reply, Sizes};
use crate::laws::Law;
use crate::net::Net;
use crate::tcp::segment::SYN;
use crate::tcp::{Connection, Emit, Outgoing, wire as tcp_wire};
use crate::wire::{Head, TCP, WireFacts};
use core::time::Duration;
use packet::{Ecn, Time, Version};

/// A host's end of one connection.
#[derive(Debug)]
pub struct TcpApp {
    flow: usize,
    /// Number of the end. End 0 opens the connection.
    end: usize,
    connection: Connection,
    due: Time,
}

/// The results of one step of a connection.
#[derive(Default)]
struct News {
    /// If a segment exceeded the MTU of the host's link: this MTU in bytes, and the segment's sequence number.
    too_long: Option<(u32, u32)>,
    has_opened: bool,
    is_peer_closed: bool,
}

impl Host {
    /// Adds end `end` of connection `number` to the host.
    pub fn join(&mut self, net: &Net, number: usize, end: usize) {
        let flow = &net.flows[number];
        let mut settings = flow.plan.talk.ends[end].clone();
        settings.version = if flow.plan.is_v6 { Version::V6 } else { Version::V4 };
        settings.mtu = net.wires[self.wire].mtu as u32;
        settings.initial_seq = flow.first_seq(end);
        let connection = if end == 0 { Connection::new(settings) } else { Connection::listening(settings) };
        self.tcp_apps.push(TcpApp { flow: number, end, connection, due: Time::NEVER });
    }

    /// The earliest deadline of the host's connections; `None` if no timer is running.
    pub fn next_deadline(&self) -> Option<Time> {
        self.tcp_apps.iter().map(|talker| talker.due).min().filter(|due| *due < Time::NEVER)
    }

    /// Handles all expired timers.
    pub fn expire(&mut self, net: &mut Net) {
        for at in 0..self.tcp_apps.len() {
            if self.tcp_apps[at].due <= net.now {
                self.act(net, at, |connection, now, mut out| connection.expire(now, &mut out));
            }
        }
    }

    /// Writes the next data of the application. After the last data, closes the stream. Returns the time until the
    /// next write; `None` after the last.
    pub(super) fn send_talk(&mut self, net: &mut Net, number: usize) -> Option<Duration> {
        let at = self.tcp_app(number, 0)?;
        let flow = &mut net.flows[number];
        let is_first = flow.left == flow.plan.count;
        // A fixed size may exceed the limit of random writes.
        let most = if let Sizes::Fixed(len) = flow.plan.sizes { len } else { WRITE_MAX };
        let mut len = 0;
        for _ in 0..u64::from(flow.plan.burst).min(flow.left) {
            flow.left -= 1;
            len += u64::from(flow.plan.sizes.draw(&mut flow.dice, most));
        }
        flow.sent += len;
        let (is_last, gap) = (flow.left == 0, flow.plan.gap);
        self.act(net, at, |connection, now, mut out| {
            if is_first {
                connection.open(now, &mut out);
            }
            connection.write(now, len, &mut out);
            if is_last {
                connection.close(now, &mut out);
            }
        });
        (!is_last).then_some(gap)
    }

    /// Processes a segment from end `from` of connection `number`. Its checksum must be correct.
    pub(super) fn take_talk(&mut self, net: &mut Net, number: usize, from: usize, seen: &WireFacts, upper: &[u8]) {
        let flow = &net.flows[number];
        let hosts = flow.hosts_of(from);
        let at = self.tcp_app(number, 1 - from).filter(|_| hosts == [seen.from.unwrap_or(u16::MAX), self.number]);
        let read = tcp_wire::read(upper, ecn(seen.ecn));
        let (Some(at), Some((segment, payload))) = (at, read) else {
            self.stray_count += 1;
            return;
        };
        let start = flow.place_of(from, segment.seq);
        if !payload.is_empty() && !segment.has(SYN) {
            let sent = if from == 0 { flow.sent } else { flow.reply[0] };
            let wrong = flow.stream_of(from).first_wrong(start, payload);
            if let Some(wrong) = wrong.or((start + payload.len() as u64 > sent).then_some(payload.len())) {
                let len = payload.len();
                // The segment counts as lost, so its sender retransmits the data.
                return self.blame(net, number, format!("{len} bytes at {start} are wrong from byte {wrong} on"));
            }
        }
        self.act(net, at, |connection, now, out| {
            let mut misplaced = None;
            connection.push(now, &segment, &mut |emit| {
                if let Emit::Fresh { offset, at, .. } = emit
                    && offset != start + u64::from(at)
                {
                    misplaced = Some(offset);
                }
                out(emit);
            });
            assert_eq!(misplaced, None, "law 3: a byte arrives where it was sent, from {start} on");
        });
    }

    /// Processes an ICMP error: a segment of end `end` exceeded the MTU of a router's link.
    pub(super) fn receive_too_big(&mut self, net: &mut Net, number: usize, end: usize, mtu: usize, seq: u32) {
        if let Some(at) = self.tcp_app(number, end) {
            self.told_count += 1;
            self.act(net, at, |connection, now, mut out| _ = connection.too_big(now, mtu as u32, seq, &mut out));
        }
    }

    fn tcp_app(&self, number: usize, end: usize) -> Option<usize> {
        self.tcp_apps.iter().position(|talker| (talker.flow, talker.end) == (number, end))
    }

    /// Executes one step of a connection and applies the results.
    fn act(&mut self, net: &mut Net, at: usize, act: impl FnOnce(&mut Connection, Time, &mut dyn FnMut(Emit))) {
        let mut news = News::default();
        self.step(net, at, &mut news, act);
        let TcpApp { flow, end, .. } = self.tcp_apps[at];
        let talk = &net.flows[flow].plan.talk;
        let replies = match talk.reply {
            Reply::AtOnce => news.has_opened,
            Reply::AtLast => news.is_peer_closed,
        };
        if end == 1 && replies {
            let len = talk.reply_len;
            net.flows[flow].reply[0] = len;
            self.step(net, at, &mut news, |connection, now, mut out| {
                connection.write(now, len, &mut out);
                connection.close(now, &mut out);
            });
        }
        while let Some((mtu, seq)) = news.too_long.take() {
            // The host's own kernel rejects segments too long for its link.
            let mut counted = false;
            self.step(net, at, &mut news, |connection, now, mut out| {
                counted = connection.too_big(now, mtu, seq, &mut out);
            });
            if !counted {
                break;
            }
        }
        let talker = &mut self.tcp_apps[at];
        talker.due = talker.connection.next_deadline().unwrap_or(Time::NEVER);
    }

    fn step(
        &mut self,
        net: &mut Net,
        at: usize,
        news: &mut News,
        act: impl FnOnce(&mut Connection, Time, &mut dyn FnMut(Emit)),
    ) {
        let Host { tcp_apps: talkers, next_id, number, wire, .. } = self;
        let TcpApp { flow, end, connection, .. } = &mut talkers[at];
        let now = net.now;
        act(connection, now, &mut |emit| match emit {
            Emit::Segment(outgoing) => {
                *next_id = next_id.wrapping_add(1);
                let too_long = put(net, *wire, (*number, *next_id), (*flow, *end), &outgoing);
                news.too_long = news.too_long.or(too_long);
            }
            Emit::Arrived(len) => {
                let flow = &mut net.flows[*flow];
                if *end == 1 {
                    flow.last_arrival = now;
                }
                let arrived = if *end == 0 { &mut flow.reply[1] } else { &mut flow.arrived };
                let before = core::mem::replace(arrived, len);
                net.looked(Law::Integrity);
                if len < before {
                    net.breaks(Law::Integrity, || {
                        format!("the received length of a stream fell from {before} to {len}")
                    });
                }
            }
            Emit::Opened => news.has_opened = true,
            Emit::PeerClosed => news.is_peer_closed = true,
            Emit::Ended(how) => net.flows[*flow].endings[*end] = Some(how),
            Emit::Fresh { .. } => {}
        });
        let acked = &mut net.flows[*flow].acked[*end];
        *acked = connection.acked_len().max(*acked);
    }
}

/// Transmits a segment on the host's wire. If the packet is too long, returns the wire's MTU instead.
fn put(
    net: &mut Net,
    wire: usize,
    (host, id): (u16, u32),
    (number, end): (usize, usize),
    outgoing: &Outgoing,
) -> Option<(u32, u32)> {
    let flow = &net.flows[number];
    let segment = &outgoing.segment;
    let head = Head {
        is_v6: flow.plan.is_v6,
        from: host,
        to: flow.hosts_of(end)[1],
        protocol: TCP,
        dont_fragment: outgoing.dont_fragment,
        id,
        ecn: segment.ecn.bits(),
        fragment: None,
    };
    let (ports, stream) = (flow.ports_of(end), flow.stream_of(end));
    let mtu = net.wires[wire].mtu;
    if head.header_len() + segment.header_len() + segment.len as usize > mtu {
        net.ended += 1;
        return Some((mtu as u32, segment.seq));
    }
    put_segment(net, wire, &head, segment, ports, (stream, outgoing.offset));
    None
}

fn ecn(bits: u8) -> Ecn {
    [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(bits & 3)]
}

/// Maximum length of a random write, in bytes.
const WRITE_MAX: u32 = 65_535;
