//! A worker in, its figures out.

use crate::config::Stage;
use crate::send::Sent;
use crate::siblings::Moved;
use crate::worker::Path;
use engine::{Coalescer, Guesses, Joiner, Ledger, Reassembler, Side, Switch, Tally, Widening};
use offload::leases::Passed;
use packet::Packet;
use std::io;
use std::time::Duration;

/// How things are with one worker.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// To the narrow end, to the wide end.
    pub ways: [WaySnapshot; 2],
    /// The wide end, the narrow end.
    pub ends: [EndSnapshot; 2],
    /// By which end packets leave.
    pub path: Path,
    /// Processor time that it took so far.
    pub processor_time: Duration,
    /// What went between it and its siblings.
    pub siblings: Moved,
    /// Times that it slept and was woken so far.
    pub wake_count: u64,
}

/// How things are with one direction.
#[derive(Clone, Debug)]
pub struct WaySnapshot {
    /// Every fate.
    pub ledger: Ledger,
    /// What is held.
    pub held: Tally,
    /// Its stages, in the order in which packets meet them.
    pub stages: Vec<StageSnapshot>,
    /// How guesses of where payloads belong went.
    pub guesses: Guesses,
    /// Heap memory of its pool, lent and free, in bytes.
    pub pool_len: u64,
    /// Buffers on loan.
    pub lent_count: u64,
    /// The law that is broken, if one is.
    pub broken: Option<String>,
}

/// How things are with one stage. Who rejoins whole datagrams counts as `reassemble`, for a host or for the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSnapshot {
    /// Which one.
    pub stage: Stage,
    /// Does it work?
    pub switch: Switch,
    /// What it holds.
    pub held: Tally,
}

/// How things are with one port.
#[derive(Clone, Debug)]
pub struct EndSnapshot {
    /// Its address.
    pub address: String,
    /// Does it work?
    pub is_up: bool,
    /// What came.
    pub seen: Seen,
    /// What went.
    pub sent: Sent,
    /// Frames that the kernel dropped because nobody took them in time.
    pub missed: u64,
    /// What the kernel passed on by itself, of the flows that were lent to it.
    pub lent: Passed,
}

/// What came in by one port, before the engine counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Frames that it gave.
    pub frames: u64,
    /// Their bytes, as they were given: link headers once for each train.
    pub bytes: u64,
    /// Packets on the wire among them.
    pub packets: u64,
    /// Packets on the wire longer than 8,000 bytes among them.
    pub wide_packets: u64,
    /// Frames that came and found no buffer, or came cut.
    pub lost: u64,
    /// Frames that carry no packet for us, and passed.
    pub passed: u64,
    /// Frames that carry no packet and are longer than the other side takes: dropped.
    pub oversize: u64,
    /// Times that the port could not be read.
    pub errors: u64,
    /// The MTU that a router or DHCP server on the narrow side last told the wide hosts, in bytes; 0 where none did.
    pub advised_mtu: u32,
    /// Frames that the kernel dropped before the port was opened anew.
    pub missed_before: u64,
    /// The last error of the port.
    pub last_error: Option<String>,
}

impl StageSnapshot {
    /// The stages of a side.
    pub(crate) fn all(side: &Side) -> Vec<StageSnapshot> {
        let Widening { reassembler, joiner, coalescer, .. } = &side.widening;
        let holding = |stage, held: Option<(Tally, usize)>| {
            let switch = if held.is_some() { Switch::On } else { Switch::Off };
            StageSnapshot { stage, switch, held: held.map_or(Tally::NONE, |(held, _)| held) }
        };
        let cutting = |stage, switch| StageSnapshot { stage, switch, held: Tally::NONE };
        vec![
            holding(Stage::Reassemble, reassembler.as_ref().map(Reassembler::held)),
            holding(Stage::Join, joiner.as_ref().map(Joiner::held)),
            holding(Stage::Coalesce, coalescer.as_ref().map(Coalescer::held)),
            cutting(Stage::Segment, side.narrowing.segment),
            cutting(Stage::Fragment, side.narrowing.fragment),
        ]
    }
}

/// Guesses of two stages that followed each other.
pub(crate) fn sum(one: Guesses, other: Guesses) -> Guesses {
    Guesses {
        made: one.made + other.made,
        right: one.right + other.right,
        landed_bytes: one.landed_bytes + other.landed_bytes,
        copied_out_bytes: one.copied_out_bytes + other.copied_out_bytes,
    }
}

impl Seen {
    /// Counts a packet that came.
    pub(crate) fn packet(&mut self, packet: &Packet) {
        self.packets(packet, 1);
    }

    /// Counts so many packets that came and are like this one.
    pub(crate) fn packets(&mut self, packet: &Packet, frames: usize) {
        let frames = frames as u64;
        let count = frames * packet.wire_count() as u64;
        self.frames += frames;
        self.bytes += frames * packet.frame().len() as u64;
        self.packets += count;
        if packet.wire_len() > WIDE_LEN {
            self.wide_packets += count;
        }
    }

    /// Counts an error.
    pub(crate) fn note(&mut self, error: &io::Error) {
        self.errors += 1;
        self.last_error = Some(error.to_string());
    }
}

/// Packets above this are wide, in bytes.
pub const WIDE_LEN: usize = 8_000;
