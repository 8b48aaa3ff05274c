//! A worker -> a snapshot of its counters and held packets.
//!
//! The snapshots of all workers become the `Stats` of a gateway.

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

/// The state of one worker.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The direction to the narrow endpoint, then the one to the wide endpoint.
    pub directions: [DirectionSnapshot; 2],
    /// The wide endpoint, then the narrow one.
    pub ends: [EndpointSnapshot; 2],
    /// The endpoint by which packets leave.
    pub path: Path,
    /// Its processor time so far.
    pub processor_time: Duration,
    /// Packets handed between it and its peer workers.
    pub peers: HandoffStats,
    /// Packets that it handed over to its successor, including those that were not received: to the narrow
    /// endpoint, and to the wide one.
    pub handed_over: [u64; 2],
    /// Losses at its end.
    pub losses: Losses,
    /// Number of wake-ups from sleep so far.
    pub wake_count: u64,
}

/// The state of one direction.
#[derive(Clone, Debug)]
pub struct DirectionSnapshot {
    /// All counters of the engine.
    pub ledger: Ledger,
    /// Held packets.
    pub held: Tally,
    /// The stages, in the order in which packets pass them.
    pub stages: Vec<StageSnapshot>,
    /// The results of payload placement.
    pub guesses: PlacementStats,
    /// Heap memory of the buffer pool, in use and free, in bytes.
    pub pool_len: u64,
    /// Buffers in use.
    pub in_use_count: u64,
    /// The conservation law that does not hold, if there is one.
    pub broken: Option<String>,
}

/// The state of one stage. Reassembly counts as `reassemble`, for a host or for the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSnapshot {
    /// The stage.
    pub stage: Stage,
    /// Whether it is on.
    pub switch: Toggle,
    /// The packets that it holds.
    pub held: Tally,
}

/// The state of one port.
#[derive(Clone, Debug)]
pub struct EndpointSnapshot {
    /// The port's address, such as `packet:lan0`.
    pub address: String,
    /// Whether the port works.
    pub is_up: bool,
    /// Counters of received frames.
    pub rx: RxStats,
    /// Counters of sent frames.
    pub tx: TxStats,
    /// Frames that the kernel dropped because the worker was too slow.
    pub missed: u64,
    /// Frames of offloaded flows that the kernel forwarded by itself.
    pub offloaded: OffloadStats,
}

/// Losses where one worker ends and a successor takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Packets that a worker handed over and its successor did not receive.
    #[serde(alias = "untaken")]
    pub not_received: u64,
    /// Frames that were truncated in the hand-over.
    #[serde(alias = "cut")]
    pub truncated: u64,
    /// Packets, counted as on the wire, that a worker was processing when it panicked.
    pub panicked: u64,
}

/// Counters of the frames received by one port. The engine counts them afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RxStats {
    /// Frames that the port delivered.
    pub frames: u64,
    /// Their bytes; a GSO packet's link header counts once.
    pub bytes: u64,
    /// Packets in them, counted as on the wire.
    pub packets: u64,
    /// Packets longer than 8,000 bytes among these.
    pub wide_packets: u64,
    /// Frames that were dropped because no buffer was free or the frame was truncated.
    pub dropped: u64,
    /// Frames without an IP packet for the engine, forwarded unchanged.
    pub passed: u64,
    /// Frames without an IP packet that exceed the other side's MTU: dropped.
    pub oversize: u64,
    /// Failed reads of the port.
    pub errors: u64,
    /// The MTU that a router or DHCP server on the narrow side last announced to the wide hosts, in bytes; 0: none.
    pub advised_mtu: u32,
    /// Frames that the kernel dropped before the port was last reopened.
    pub missed_before: u64,
    /// The port's last error.
    pub last_error: Option<String>,
}

/// Packets handed between a worker and its peer workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HandoffStats {
    /// Packets sent to the worker of their flow.
    pub sent: u64,
    /// The sent packets, counted as on the wire: to the narrow endpoint, and to the wide one.
    pub sent_directions: [u64; 2],
    /// Packets received from the worker that reassembled them.
    pub received: u64,
    /// Packets that left at this worker because the flow's worker had no room.
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
    /// The state of a gateway's direction. The port keeps `kept_count` buffers of its pool, or a panic ended with
    /// them.
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
    /// Counts a received packet.
    pub(crate) fn packet(&mut self, packet: &Packet) {
        let count = packet.wire_count() as u64;
        self.frames += 1;
        self.bytes += packet.frame().len() as u64;
        self.packets += count;
        if packet.wire_len() > WIDE_LEN {
            self.wide_packets += count;
        }
    }

    /// Counts a received fragment with a header split.
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

/// Longest packet that does not count as wide, in bytes.
pub const WIDE_LEN: usize = 8_000;
