//! Packets of one flow -> groups of packets, each of which is sent as one GSO packet.
//!
//! The model follows the engine's behaviour or the kernel's, with a switch for each known difference. To be an
//! independent check, the model shares no code with the engine.

use super::Known;
use super::merging::{Drawn, FlowOutput, unlike};
use crate::experiments::wire::{ACK, CWR, ECE, FIN, Filled, Options, PSH, RST, SYN, URG, set_id};
use packet::Version;

/// Returns the known differences that explain how the kernel's GSO packets of a flow differ from the engine's.
pub(super) fn explain(
    packets: &[&Drawn],
    sent: &FlowOutput,
    kernel: &FlowOutput,
    engine: &FlowOutput,
) -> Result<Vec<Known>, String> {
    let left = |directions: &[Known]| {
        leaves(&joined(packets, directions, &[], FlushOrder::AsOpened), sent, packets, directions)
    };
    if left(&[]) != *engine {
        return Err(differs("the engine", engine, "our rulings", &left(&[]), kernel));
    }
    let mut directions = Known::MERGING.to_vec();
    if left(&directions) != *kernel {
        if lets_go_early(packets, sent, kernel) {
            return Ok(vec![Known::Early]);
        }
        return Err(differs("the kernel", kernel, "the known differences", &left(&directions), engine));
    }
    for known in Known::MERGING {
        let fewer: Vec<Known> = directions.iter().copied().filter(|direction| *direction != known).collect();
        if left(&fewer) == *kernel {
            directions = fewer;
        }
    }
    Ok(directions)
}

/// Order in which a flush of all flows emits GSO packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushOrder {
    AsOpened,
    Backward,
}

/// Whether additional flushes between packets explain the kernel's output.
fn lets_go_early(packets: &[&Drawn], sent: &FlowOutput, kernel: &FlowOutput) -> bool {
    // In the kernel, a hash determines the flush order of two flows. So both orders are tried.
    [FlushOrder::AsOpened, FlushOrder::Backward].into_iter().any(|order| lets_go_in(order, packets, sent, kernel))
}

fn lets_go_in(order: FlushOrder, packets: &[&Drawn], sent: &FlowOutput, kernel: &FlowOutput) -> bool {
    let mut cuts = Vec::new();
    while cuts.len() < CUTS_MAX {
        let gso_packets = joined(packets, &Known::MERGING, &cuts, order);
        let left = leaves(&gso_packets, sent, packets, &Known::MERGING);
        if left == *kernel {
            return true;
        }
        let Some(next) = unexpected(&gso_packets, &left, kernel).filter(|next| !cuts.contains(next)) else {
            return false;
        };
        cuts.push(next);
    }
    false
}

/// Returns the packet before which the kernel flushed: the first packet at which the kernel's output differs from
/// the model's.
fn unexpected(gso_packets: &[Vec<usize>], left: &FlowOutput, kernel: &FlowOutput) -> Option<usize> {
    let starts = |left: &FlowOutput| -> Vec<bool> {
        left.gso_packets.iter().flat_map(|count| (0..*count).map(|place| place == 0)).collect()
    };
    let (expected, seen) = (starts(left), starts(kernel));
    let at = (0..expected.len())
        .find(|at| left.packets.get(*at) != kernel.packets.get(*at) || expected.get(*at) != seen.get(*at))?;
    gso_packets.iter().flatten().nth(at).copied()
}

fn differs(who: &str, is: &FlowOutput, by: &str, expected: &FlowOutput, other: &FlowOutput) -> String {
    if is.gso_packets == expected.gso_packets {
        return unlike(&format!("{who} sends other packets than expected by {by}"), is, expected);
    }
    format!(
        "{who} coalesces {:?}, expected by {by}: {:?}; the other coalesces {:?}",
        is.gso_packets, expected.gso_packets, other.gso_packets
    )
}

fn leaves(gso_packets: &[Vec<usize>], sent: &FlowOutput, packets: &[&Drawn], directions: &[Known]) -> FlowOutput {
    let mut left = FlowOutput { packets: Vec::new(), gso_packets: gso_packets.iter().map(Vec::len).collect() };
    for gso in gso_packets {
        for (place, at) in gso.iter().enumerate() {
            let mut packet = sent.packets[*at].clone();
            if gso.len() > 1 && directions.contains(&Known::DatagramIds) && !packets[*at].upper.is_tcp {
                set_id(&mut packet, packets[gso[0]].ip.id.wrapping_add(place as u16));
            }
            left.packets.push(packet);
        }
    }
    left
}

/// An open GSO packet of the model.
struct Run {
    label: u32,
    members: Vec<usize>,
    len: usize,
    /// Difference between the IP IDs of consecutive packets; `None` if not yet known.
    step: Option<u16>,
}

struct Model<'a> {
    packets: &'a [&'a Drawn],
    directions: &'a [Known],
    runs: Vec<Run>,
    next_seq: Option<u32>,
    gso_packets: Vec<Vec<usize>>,
}

/// Returns the packets that are sent together, in the order of departure.
///
/// All open GSO packets are flushed before each packet of `cuts`.
fn joined(packets: &[&Drawn], directions: &[Known], cuts: &[usize], order: FlushOrder) -> Vec<Vec<usize>> {
    let mut model = Model { packets, directions, runs: Vec::new(), next_seq: None, gso_packets: Vec::new() };
    for at in 0..packets.len() {
        if cuts.contains(&at) {
            model.close_all(order);
        }
        model.push(at);
    }
    model.close_all(order);
    model.gso_packets
}

impl Model<'_> {
    fn is_kernels(&self, known: Known) -> bool {
        self.directions.contains(&known)
    }

    fn push(&mut self, at: usize) {
        let packet = self.packets[at];
        let is_unseen = packet.option_words > 0 || packet.filled == Filled::Wrong && packet.padding == 0;
        if is_unseen && self.is_kernels(Known::Overtakes)
            || packet.filled == Filled::Zero && self.is_kernels(Known::ZeroSum)
            || packet.padding > 0 && !packet.upper.is_tcp && self.is_kernels(Known::Padded)
        {
            return self.gso_packets.push(vec![at]);
        }
        let is_padded = packet.padding > 0 && self.is_kernels(Known::Padded);
        let label = if self.is_kernels(Known::Label) { packet.label() } else { 0 };
        let run = self.runs.iter().position(|run| run.label == label);
        if !self.may_join(packet) || is_padded {
            run.into_iter().for_each(|run| self.close(run));
            self.on_segment(packet);
            return self.gso_packets.push(vec![at]);
        }
        let end = packet.upper.seq.wrapping_add(packet.len.into());
        let ahead = packet.upper.seq.wrapping_sub(*self.next_seq.get_or_insert(packet.upper.seq)) as i32;
        if packet.upper.is_tcp && ahead < 0 && !self.is_kernels(Known::GoesBack) {
            run.into_iter().for_each(|run| self.close(run));
            if self.next_seq.is_some_and(|next| end.wrapping_sub(next) as i32 > 0) {
                self.next_seq = Some(end);
            }
            return self.gso_packets.push(vec![at]);
        }
        self.next_seq = Some(end);
        let goes_on = run.filter(|run| self.goes_on(*run, packet));
        let run = match (run, goes_on) {
            (_, Some(run)) => run,
            (other, None) => {
                other.into_iter().for_each(|run| self.close(run));
                self.runs.push(Run { label, members: Vec::new(), len: 0, step: None });
                self.runs.len() - 1
            }
        };
        self.append(run, at);
        if self.is_done(run) {
            self.close(run);
        }
        if packet.upper.is_tcp && packet.upper.flags & FIN != 0 {
            self.next_seq = None;
        }
    }

    /// Whether the packet may be held for later packets at all.
    fn may_join(&self, packet: &Drawn) -> bool {
        let upper = &packet.upper;
        let is_plain = upper.flags & !(PSH | FIN | ECE) == ACK
            || self.is_kernels(Known::OddFlags) && upper.flags & (URG | RST | SYN) == 0;
        let has_known_options = matches!(upper.options, Options::None | Options::Stamps(..));
        let tcp = is_plain && (has_known_options || self.is_kernels(Known::Options));
        packet.option_words == 0 && packet.filled != Filled::Wrong && packet.len > 0 && (!upper.is_tcp || tcp)
    }

    /// Updates the stream's state from a packet that is not coalesced.
    fn on_segment(&mut self, packet: &Drawn) {
        let upper = &packet.upper;
        if !upper.is_tcp || packet.filled == Filled::Wrong {
            return;
        }
        let opens = upper.flags & SYN != 0;
        if upper.flags & (RST | FIN) != 0 {
            self.next_seq = None;
            return;
        }
        let end = upper.seq.wrapping_add(u32::from(packet.len) + u32::from(opens));
        let says_something = opens || packet.len > 0;
        match self.next_seq {
            Some(next) if says_something && (opens || end.wrapping_sub(next) as i32 > 0) => {
                self.next_seq = Some(end)
            }
            None if opens => self.next_seq = Some(end),
            _ => {}
        }
    }

    fn goes_on(&self, run: usize, packet: &Drawn) -> bool {
        let run = &self.runs[run];
        let (first, last) = (self.packets[run.members[0]], self.packets[run.members[run.members.len() - 1]]);
        let is_v4 = packet.ip.version == Version::V4;
        let same_ip = (packet.ip.class, packet.ip.hops) == (first.ip.class, first.ip.hops)
            && packet.label() == first.label()
            && (!is_v4 || packet.ip.flags_offset == first.ip.flags_offset);
        let step = packet.ip.id.wrapping_sub(last.ip.id);
        let ids = !is_v4 || run.step.is_none_or(|known| known == step) && step <= 1;
        let (upper, other) = (&packet.upper, &first.upper);
        let tcp = upper.seq == last.upper.seq.wrapping_add(last.len.into())
            && (upper.flags ^ other.flags) & !(PSH | FIN) == 0
            && upper.flags & CWR == 0
            && (upper.ack, upper.window, upper.options, upper.urgent)
                == (other.ack, other.window, other.options, other.urgent);
        let udp = (packet.filled == Filled::Zero) == (first.filled == Filled::Zero);
        same_ip
            && ids
            && packet.len <= first.len
            && run.len + usize::from(packet.len) <= usize::from(u16::MAX)
            && (if upper.is_tcp { tcp } else { udp })
    }

    fn append(&mut self, run: usize, at: usize) {
        let packet = self.packets[at];
        let run = &mut self.runs[run];
        match run.members.last() {
            Some(last) => run.step = Some(packet.ip.id.wrapping_sub(self.packets[*last].ip.id)),
            None => {
                let ip_len = if packet.ip.version == Version::V4 { 20 } else { 40 };
                run.len = ip_len + packet.upper.header_len();
            }
        }
        run.members.push(at);
        run.len += usize::from(packet.len);
    }

    /// Whether the run must be flushed, whatever packet follows.
    fn is_done(&self, run: usize) -> bool {
        let run = &self.runs[run];
        let (first, last) = (self.packets[run.members[0]], self.packets[run.members[run.members.len() - 1]]);
        let count_max = match (last.upper.is_tcp, self.is_kernels(Known::Longer)) {
            (true, true) => usize::MAX,
            (true, false) => 128,
            (false, _) => 64,
        };
        last.upper.is_tcp && last.upper.flags & (PSH | FIN) != 0
            || last.len < first.len
            || run.members.len() >= count_max
    }

    fn close_all(&mut self, order: FlushOrder) {
        while !self.runs.is_empty() {
            self.close(if order == FlushOrder::AsOpened { 0 } else { self.runs.len() - 1 });
        }
    }

    fn close(&mut self, run: usize) {
        let Run { members, step, .. } = self.runs.remove(run);
        let is_v4 = self.packets[members[0]].ip.version == Version::V4;
        if is_v4 && self.packets[members[0]].upper.is_tcp && step == Some(0) && self.is_kernels(Known::SplitAgain) {
            return self.gso_packets.extend(members.into_iter().map(|at| vec![at]));
        }
        self.gso_packets.push(members);
    }
}

impl Drawn {
    /// Returns the flow label of an IPv6 packet; 0 for IPv4.
    fn label(&self) -> u32 {
        if self.ip.version == Version::V6 { self.ip.flow & 0xF_FFFF } else { 0 }
    }
}

/// Largest number of additional kernel flushes that explain one burst.
const CUTS_MAX: usize = 12;
