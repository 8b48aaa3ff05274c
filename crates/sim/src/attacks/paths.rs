//! A seed -> attacks on the path MTU of a border, and a verdict.
//!
//! Each attack is one function, which also checks the result.

use super::conversation::{Conversation, WIDE};
use super::craft::{self, head};
use super::fragments::Clock;
use super::rig::{Rig, Verdict};
use super::{Field, holds};
use crate::flow::{Kind as FlowKind, Plan, Sizes, Talk};
use crate::link::LinkShape;
use crate::scene::Scene;
use crate::simulation::Simulation;
use crate::tcp::Settings;
use crate::tcp::settings::{PathChoice, Probing};
use crate::topology::{Gateway, GatewayRole, Kind, Router, Topology};
use crate::wire::{self, ICMP, ICMPV6};
use core::time::Duration;
use engine::{Event, Reason, Toward};
use packet::Sum;

/// rel:A29: blind ICMP errors, and errors of a sender who knows a connection and its data in flight but states
/// something impossible. None may change the size of a packet. A correct error then must, and a later one with a
/// larger MTU may not raise it again. The errors are about packets that the border cut, and about those it made longer.
pub fn blind_errors(field: &mut Field) -> Verdict {
    for (is_v6, about) in [false, true].into_iter().flat_map(|is_v6| BOTH.map(|about| (is_v6, about))) {
        let mut testbed = field.border();
        let mut now = Clock::default();
        let mut conversation = Conversation::open(&mut testbed, &mut now, is_v6, 1, field.rng.number())?;
        let before = conversation.send(&mut testbed, &mut now, about)?;
        for turn in 0..field.times(2_500_000, 1_000) {
            let forged = conversation.forged(field, &before, about);
            testbed.push(now.tick(), about.other(), &forged)?;
            holds(!testbed.left().any(|out| out.is_answer), || "a forged ICMP error is answered".to_owned())?;
            if turn % 1_000 == 0 {
                conversation.check_lens(&mut testbed, &mut now, about, &lens(&before))?;
            }
        }
        let used = testbed.ledger(about.other()).retired(Reason::IcmpUsed).packets;
        holds(used == 0, || format!("{used} forged ICMP errors were used"))?;
        let sent = conversation.send(&mut testbed, &mut now, about)?;
        // Segments of a narrow host fill no more than two thirds of such a packet, or all of it.
        let (least, mtu) = if about == Toward::Narrow { (1_400, 1_400) } else { (2_500, 4_000) };
        testbed.push(now.tick(), about.other(), &conversation.error(ROUTER, &sent[0], mtu, about))?;
        let after = lens(&conversation.send(&mut testbed, &mut now, about)?);
        let is_obeyed = after.iter().max().is_some_and(|len| (least..=usize::from(mtu)).contains(len));
        holds(is_obeyed, || format!("a correct ICMP error has no effect: {after:?}"))?;
        testbed.push(now.tick(), about.other(), &conversation.error(ROUTER, &sent[0], mtu + 50, about))?;
        let later = lens(&conversation.send(&mut testbed, &mut now, about)?);
        holds(later == after, || format!("an ICMP error raises a size: {later:?}"))?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A32: the table of paths as a side channel. An attacker knows the address of a host that another host talks to,
/// but not the port. He guesses ports, and lowers the paths of his own hosts to fill the table. The packets
/// that he sees must be the same for right and wrong guesses.
pub fn table_oracle(field: &mut Field) -> Verdict {
    for is_v6 in [false, true] {
        let (seq, secret, guess_count) = (field.rng.number(), field.rng.number(), field.times(60_000, 300) as u16);
        let guesses: Vec<u32> = (0..guess_count).map(|_| field.rng.number() as u32).collect();
        let seen = [1_000, 1_000 + guess_count].map(|port| {
            let gateway = Gateway { limit: 40_000, ..Gateway::new(GatewayRole::Border, 0) };
            let mut testbed = Rig::new(&gateway, [9_000, 1_500], secret);
            let seen = transcript(&mut testbed, is_v6, port, seq, &guesses)?;
            field.end(&mut testbed)?;
            Ok::<_, String>(seen)
        });
        let [right, wrong] = seen;
        holds(right? == wrong?, || "an attacker sees whether a guessed port is right".to_owned())?;
    }
    Ok(())
}

/// All packets toward the narrow side, as an attacker sees them. He guesses the port of host 1's connection, from
/// 1,000 up. Ten hosts of his own have lowered paths.
fn transcript(
    testbed: &mut Rig,
    is_v6: bool,
    port: u16,
    seq: u64,
    guesses: &[u32],
) -> Result<Vec<Vec<u8>>, String> {
    let mut now = Clock::default();
    let victim = Conversation::open(testbed, &mut now, is_v6, 1, seq)?;
    let mut victim = Conversation { port, ..victim };
    victim.shake_hands(testbed, &mut now)?;
    let cuts = victim.send(testbed, &mut now, Toward::Narrow)?;
    let mut own = Vec::new();
    for host in 2..12 {
        let mut conversation = Conversation::open(testbed, &mut now, is_v6, host, seq)?;
        let cuts = conversation.send(testbed, &mut now, Toward::Narrow)?;
        testbed.push(now.tick(), Toward::Wide, &conversation.error(ROUTER, &cuts[1], 1_400, Toward::Narrow))?;
        own.push(conversation);
    }
    let mut seen = Vec::new();
    for (port, seq) in (1_000..).zip(guesses) {
        let upper_at = if is_v6 { 40 } else { 20 };
        let mut quoted = cuts[1].clone();
        quoted[upper_at + 2..upper_at + 4].copy_from_slice(&u16::to_be_bytes(port));
        quoted[upper_at + 4..upper_at + 8].copy_from_slice(&seq.to_be_bytes());
        testbed.push(now.tick(), Toward::Wide, &victim.error(ROUTER, &quoted, 1_300, Toward::Narrow))?;
        seen.extend(testbed.left().filter(|out| out.is_answer).map(|out| out.frame.to_vec()));
    }
    for conversation in &mut own {
        seen.extend(conversation.send(testbed, &mut now, Toward::Narrow)?);
    }
    Ok(seen)
}

/// rel:A33: errors about destinations that do not exist, and then a flood of correct errors about an attacker's own
/// hosts. The first may take no memory. The second stay within the limit, displace no path before the table is full,
/// and then cost another path one more error.
pub fn filled_table(field: &mut Field) -> Verdict {
    for is_v6 in [false, true] {
        let mut testbed = field.border();
        let mut now = Clock::default();
        let mut victim = Conversation::open(&mut testbed, &mut now, is_v6, VICTIM, 7)?;
        let cuts = victim.send(&mut testbed, &mut now, Toward::Narrow)?;
        testbed.push(now.tick(), Toward::Wide, &victim.error(ROUTER, &cuts[1], 1_400, Toward::Narrow))?;
        let charged = testbed.charged_for_connections();
        let stranger = Conversation { is_v6, host: 0, port: 80, seqs: [0; 2], id: 0 };
        for number in 0..field.times(5_000_000, 2_000) {
            let mut quoted = cuts[1].clone();
            let last = if is_v6 { 40 } else { 20 };
            quoted[last - 4..last].copy_from_slice(&(number as u32).to_be_bytes());
            testbed.push(now.tick(), Toward::Wide, &stranger.error(ROUTER, &quoted, 1_300, Toward::Narrow))?;
        }
        let after = testbed.charged_for_connections();
        holds(after == charged, || format!("errors about no connection are charged: {charged} B, then {after} B"))?;
        let mut growth = 0;
        for host in 1..field.times(20_000, 400) as u16 {
            let before = testbed.charged_for_connections();
            let mut own = Conversation::open(&mut testbed, &mut now, is_v6, host, 9)?;
            let cuts = own.send(&mut testbed, &mut now, Toward::Narrow)?;
            testbed.push(now.tick(), Toward::Wide, &own.error(ROUTER, &cuts[1], 1_300, Toward::Narrow))?;
            growth = testbed.charged_for_connections().saturating_sub(before);
        }
        // Each further host takes the memory of an older one.
        let is_full = growth == 0;
        // So many connections may displace the victim's own. Its path serves the next one.
        let mut again = Conversation::open(&mut testbed, &mut now, is_v6, VICTIM, 8)?;
        let mut cuts = again.send(&mut testbed, &mut now, Toward::Narrow)?;
        if is_full {
            testbed.push(now.tick(), Toward::Wide, &again.error(ROUTER, &cuts[1], 1_400, Toward::Narrow))?;
            cuts = again.send(&mut testbed, &mut now, Toward::Narrow)?;
        }
        let lens = lens(&cuts);
        holds(lens.iter().max() == Some(&1_400), || format!("a flood of errors displaces another path: {lens:?}"))?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A36: ICMP errors that reach another host, as behind an anycast address. Connections through a border must
/// finish without any error, although routers behind it drop all packets above 1,400 bytes silently.
pub fn misdelivered_errors(field: &mut Field) -> Verdict {
    for number in 0..field.times(200, 4) {
        let is_v6 = number % 2 == 1;
        let mut topology = Topology::default();
        let wide = topology.node("wide".to_owned(), Kind::Host { dont_fragment: true });
        let gateway = Gateway::new(GatewayRole::Border, wide);
        let border = topology.node("border".to_owned(), Kind::Gateway(gateway));
        let silent = ["near", "far"].map(|name| topology.node(name.to_owned(), Kind::Router(Router::Silent)));
        let narrow = topology.node("narrow".to_owned(), Kind::Host { dont_fragment: true });
        let delay = Duration::from_millis(field.rng.from(1, 20));
        let shape = LinkShape { delay, seed: field.rng.number(), ..LinkShape::default() };
        topology.link([wide, border], 9_000, LinkShape::default());
        topology.link([border, silent[0]], 1_500, shape);
        topology.link(silent, 1_400, LinkShape::default());
        // The narrow host's own link is not the narrow one, so its MSS does not tell.
        topology.link([silent[1], narrow], 1_500, LinkShape::default());
        let end =
            Settings { path: PathChoice { probing: Probing::Off, ..Settings::linux().path }, ..Settings::linux() };
        let flow = Plan {
            kind: FlowKind::Tcp,
            from: wide,
            to: narrow,
            is_v6,
            sizes: Sizes::Fixed(20_000),
            count: 50,
            burst: 8,
            gap: Duration::from_millis(1),
            start: Duration::ZERO,
            disorder: 0,
            has_timestamps: true,
            acks_every: 0,
            talk: Talk { ends: [end.clone(), end], ..Talk::default() },
        };
        let seed = field.rng.number();
        let scene = Scene { topology, flows: vec![flow], changes: Vec::new(), bug: None, seed, is_thorough: false };
        let outcome = Simulation::new(&scene).run();
        field.packets += outcome.packets;
        holds(outcome.broken.is_none(), || format!("seed {seed}: {:?}", outcome.broken))?;
        let lowered = outcome.hits.events[Event::PathLoweredLoss as usize];
        holds(lowered > 0, || "the path's size was not found".to_owned())?;
    }
    Ok(())
}

/// Forged and correct ICMP errors about a connection's packets.
impl Conversation {
    /// Checks that data toward this side leaves in packets of these lengths.
    fn check_lens(&mut self, testbed: &mut Rig, now: &mut Clock, toward: Toward, expected: &[usize]) -> Verdict {
        let lens = lens(&self.send(testbed, now, toward)?);
        holds(lens == expected, || format!("forged ICMP errors change the packet lengths to {lens:?}"))
    }

    /// The ICMP error "too big" of host `from` about a packet that was sent toward this side.
    fn error(&self, from: u16, quoted: &[u8], mtu: u16, about: Toward) -> Vec<u8> {
        let protocol = if self.is_v6 { ICMPV6 } else { ICMP };
        let to = if about == Toward::Narrow { WIDE } else { self.host };
        let head = head(self.is_v6, from, to, protocol, 9);
        let [kind, code] = if self.is_v6 { [2, 0] } else { [3, 4] };
        let mut upper = vec![kind, code, 0, 0, 0, 0];
        upper.extend(mtu.to_be_bytes());
        upper.extend(&quoted[..quoted.len().min(QUOTE_LEN)]);
        if self.is_v6 {
            craft::seal(&head, &mut upper, 2);
        } else {
            let sum = Sum::of(&upper).checksum();
            upper[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        craft::packet(&head, &upper)
    }

    /// An error that is not to be believed, about one of the packets in flight.
    fn forged(&self, field: &mut Field, cuts: &[Vec<u8>], about: Toward) -> Vec<u8> {
        let dice = &mut field.rng;
        let upper_at = if self.is_v6 { 40 } else { 20 };
        let (least, floor) = if self.is_v6 { (1_280, 1_280) } else { (68, 552) };
        let mut quoted = cuts[dice.below(cuts.len() as u64) as usize].clone();
        let len = quoted.len() as u64;
        let mtu = dice.one_of(&[floor, 1_300, 1_400, 1_492]).min(len - 1) as u16;
        let mut put =
            |at: usize, bytes: &[u8]| quoted[upper_at + at..upper_at + at + bytes.len()].copy_from_slice(bytes);
        match dice.below(6) {
            // Neither port nor sequence number are known.
            0 => {
                let guess = dice.number().to_be_bytes();
                put(2, &guess[..6]);
            }
            // The sequence number is outside of the data in flight.
            1 => {
                let (first, last) = (wire::long(&cuts[0], upper_at + 4), self.next_seq(about));
                let in_flight = u64::from(last.wrapping_sub(first));
                let ahead = dice.below((1 << 32) - in_flight) as u32;
                put(4, &last.wrapping_add(ahead).to_be_bytes());
            }
            // The packet was not too long for the stated MTU.
            2 => return self.error(ROUTER, &quoted, dice.from(len, 65_535) as u16, about),
            // No path has such an MTU. In ICMPv4, zero is the MTU of old routers.
            3 => return self.error(ROUTER, &quoted, dice.from(1, least - 1) as u16, about),
            // The receiver itself has no reason to refuse a packet.
            4 => {
                let receiver = if about == Toward::Narrow { self.host } else { WIDE };
                return self.error(receiver, &quoted, mtu, about);
            }
            // The checksum is wrong.
            _ => {
                let mut error = self.error(ROUTER, &quoted, mtu, about);
                error[upper_at + 2] ^= 1 << dice.below(8);
                return error;
            }
        }
        self.error(ROUTER, &quoted, mtu, about)
    }
}

fn lens(frames: &[Vec<u8>]) -> Vec<usize> {
    frames.iter().map(Vec::len).collect()
}

/// A router behind the border.
const ROUTER: u16 = 20_501;
/// A narrow host far from those of an attacker.
const VICTIM: u16 = 30_000;
/// Both sides of a border.
const BOTH: [Toward; 2] = [Toward::Narrow, Toward::Wide];
/// Quoted bytes in an ICMP error.
const QUOTE_LEN: usize = 128;
