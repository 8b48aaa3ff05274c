//! A worker in, its figures out.

use crate::path::Path;
use crate::send::TxStats;
use config::Stage;
use engine::{
    Aggregation, Coalescer, FragmentMerger, Gateway, Ledger, PlacementStats, Reassembler, Side, Tally, Toggle,
};
use offload::flow_offload::OffloadStats;
use packet::{Packet, SplitFrame};
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::AddAssign;
use std::time::Duration;

/// How things are with one worker.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// To the narrow end, to the wide end.
    pub directions: [DirectionSnapshot; 2],
    /// The wide end, the narrow end.
    pub ends: [EndpointSnapshot; 2],
    /// By which end packets leave.
    pub path: Path,
    /// Processor time that it took so far.
    pub processor_time: Duration,
    /// What went between it and its siblings.
    pub peers: HandoffStats,
    /// Packets that it left to its successor, those that were not taken too: those that were to leave by the narrow
    /// end, and by the wide end.
    pub handed_over: [u64; 2],
    /// What is lost with it.
    pub losses: Losses,
    /// Times that it slept and was woken so far.
    pub wake_count: u64,
}

/// How things are with one direction.
#[derive(Clone, Debug)]
pub struct DirectionSnapshot {
    /// Every fate.
    pub ledger: Ledger,
    /// What is held.
    pub held: Tally,
    /// Its stages, in the order in which packets meet them.
    pub stages: Vec<StageSnapshot>,
    /// How guesses of where payloads belong went.
    pub guesses: PlacementStats,
    /// Heap memory of its pool, lent and free, in bytes.
    pub pool_len: u64,
    /// Buffers on loan.
    pub in_use_count: u64,
    /// The law that is broken, if one is.
    pub broken: Option<String>,
}

/// How things are with one stage. Who rejoins whole datagrams counts as `reassemble`, for a host or for the next
/// hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSnapshot {
    /// Which one.
    pub stage: Stage,
    /// Does it work?
    pub switch: Toggle,
    /// What it holds.
    pub held: Tally,
}

/// How things are with one port.
#[derive(Clone, Debug)]
pub struct EndpointSnapshot {
    /// Its address.
    pub address: String,
    /// Does it work?
    pub is_up: bool,
    /// What came.
    pub rx: RxStats,
    /// What went.
    pub tx: TxStats,
    /// Frames that the kernel dropped because nobody took them in time.
    pub missed: u64,
    /// What the kernel passed on by itself, of the flows that were lent to it.
    pub offloaded: OffloadStats,
}

/// What is lost where one worker ends and another takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Packets that a worker was to hand over, and that its successor did not take.
    pub not_received: u64,
    /// Frames that were handed over and came cut.
    pub truncated: u64,
    /// Packets on the wire that a worker had in hand when it panicked.
    pub panicked: u64,
}

/// What came in by one port, before the engine counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RxStats {
    /// Frames that it gave.
    pub frames: u64,
    /// Their bytes, as they were given: link headers once for each train.
    pub bytes: u64,
    /// Packets on the wire among them.
    pub packets: u64,
    /// Packets on the wire longer than 8,000 bytes among them.
    pub wide_packets: u64,
    /// Frames that came and found no buffer, or came cut.
    pub dropped: u64,
    /// Frames that carry no packet for us, and passed.
    pub passed: u64,
    /// Frames that carry no packet and are longer than the other side takes: dropped.
    pub oversize: u64,
    /// Times that the port could not be read.
    pub errors: u64,
    /// The MTU that a router or DHCP server on the narrow side last told the wide hosts, in bytes; 0 where none
    /// did.
    pub advised_mtu: u32,
    /// Frames that the kernel dropped before the port was opened anew.
    pub missed_before: u64,
    /// The last error of the port.
    pub last_error: Option<String>,
}

/// What went between a worker and its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HandoffStats {
    /// Packets that went to the worker of their flow.
    pub sent: u64,
    /// Those of them that were to leave by the narrow end, and by the wide end, as they stand on the wire.
    pub sent_directions: [u64; 2],
    /// Packets that came from the worker that rebuilt them.
    pub received: u64,
    /// Packets that left where they stood, for their flow's worker had no room.
    pub refused: u64,
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Losses) {
        self.not_received += other.not_received;
        self.truncated += other.truncated;
        self.panicked += other.panicked;
    }
}

impl StageSnapshot {
    /// The stages of a side.
    pub(crate) fn all(side: &Side) -> Vec<StageSnapshot> {
        let Aggregation { reassembler, merger, coalescer, .. } = &side.aggregation;
        let holding = |stage, held: Option<(Tally, usize)>| {
            let switch = if held.is_some() { Toggle::On } else { Toggle::Off };
            StageSnapshot { stage, switch, held: held.map_or(Tally::NONE, |(held, _)| held) }
        };
        let cutting = |stage, switch| StageSnapshot { stage, switch, held: Tally::NONE };
        vec![
            holding(Stage::Reassemble, reassembler.as_ref().map(Reassembler::held)),
            holding(Stage::Merge, merger.as_ref().map(FragmentMerger::held)),
            holding(Stage::Coalesce, coalescer.as_ref().map(Coalescer::held)),
            cutting(Stage::Segment, side.sizing.segment),
            cutting(Stage::Fragment, side.sizing.fragment),
        ]
    }
}

impl DirectionSnapshot {
    /// How things are with a direction of a gateway. Of its pool, so many buffers are kept by its port, or ended in
    /// a panic.
    pub(crate) fn of(gateway: &Gateway, direction: usize, kept_count: usize) -> DirectionSnapshot {
        let (held, buffers) = gateway.held(direction);
        let out = gateway.output(direction);
        let in_use_count = out.pool.in_use_count();
        let accounted = buffers + out.queued_count() + kept_count;
        let broken = if in_use_count != accounted {
            Some(format!("{in_use_count} buffers are in use, but {accounted} are accounted for"))
        } else {
            out.ledger.check(held).err()
        };
        DirectionSnapshot {
            ledger: out.ledger.clone(),
            held,
            stages: StageSnapshot::all(gateway.side(direction)),
            guesses: gateway.placement_stats(direction),
            pool_len: out.pool.heap_len() as u64,
            in_use_count: in_use_count as u64,
            broken,
        }
    }
}

impl RxStats {
    /// Counts a packet that came.
    pub(crate) fn packet(&mut self, packet: &Packet) {
        let count = packet.wire_count() as u64;
        self.frames += 1;
        self.bytes += packet.frame().len() as u64;
        self.packets += count;
        if packet.wire_len() > WIDE_LEN {
            self.wide_packets += count;
        }
    }

    /// Counts a fragment whose payload lies apart.
    pub(crate) fn split(&mut self, split: &SplitFrame) {
        let len = split.frame_len();
        self.frames += 1;
        self.bytes += len as u64;
        self.packets += 1;
        if len - split.link().len() > WIDE_LEN {
            self.wide_packets += 1;
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
