//! A worker -> a snapshot of its counters and held packets.
//!
//! Other threads read a worker's state only in this form. The module `stats` sums the snapshots of all workers.

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

/// The state of one worker at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The direction to the narrow endpoint, then the direction to the wide endpoint.
    pub directions: [DirectionSnapshot; 2],
    /// The wide endpoint, then the narrow endpoint.
    pub ends: [EndpointSnapshot; 2],
    /// The choice of the endpoint by which packets are sent.
    pub path: Path,
    /// The worker's CPU time since its start.
    pub processor_time: Duration,
    /// Packets handed between this worker and its peer workers.
    pub peers: HandoffStats,
    /// Packets that the worker handed over to its successor, including packets that the successor did not receive:
    /// to the narrow endpoint, then to the wide endpoint.
    pub handed_over: [u64; 2],
    /// Packets and frames lost at the worker's end.
    pub losses: Losses,
    /// Number of times that the worker woke up from sleep since its start.
    pub wake_count: u64,
}

/// The state of one direction of a worker.
#[derive(Clone, Debug)]
pub struct DirectionSnapshot {
    /// All counters of the engine in this direction.
    pub ledger: Ledger,
    /// Held packets, and their payload bytes.
    pub held: Tally,
    /// The stages, in the order in which packets pass through them.
    pub stages: Vec<StageSnapshot>,
    /// The results of payload placement: right and wrong predictions.
    pub placement: PlacementStats,
    /// Heap memory of the direction's buffer pool, in use and free, in bytes.
    pub pool_len: u64,
    /// Number of the pool's buffers in use.
    pub in_use_count: u64,
    /// Description of a conservation law that does not hold; `None` if all hold.
    pub broken: Option<String>,
}

/// The state of one stage. Both kinds of reassembly (for a host, for the next hop) have the name `reassemble`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSnapshot {
    /// The stage.
    pub stage: Stage,
    /// Whether the stage is on.
    pub switch: Toggle,
    /// The packets that the stage holds, and their payload bytes.
    pub held: Tally,
}

/// The state of one port of a worker.
#[derive(Clone, Debug)]
pub struct EndpointSnapshot {
    /// The port's address, such as `packet:lan0`.
    pub address: String,
    /// Whether the port is up.
    pub is_up: bool,
    /// Counters of received frames.
    pub rx: RxStats,
    /// Counters of sent frames.
    pub tx: TxStats,
    /// Frames that the kernel dropped because the worker was too slow.
    pub missed: u64,
    /// Counters of offloaded flows, whose packets the kernel forwarded by itself.
    pub offloaded: OffloadStats,
}

/// Losses when a successor replaces a worker.
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

/// Counters of the frames received by one port, before the engine counts their packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RxStats {
    /// Frames that the port delivered.
    pub frames: u64,
    /// Bytes of the received frames. The link header of a GSO packet counts once.
    pub bytes: u64,
    /// Packets in the received frames, counted as on the wire.
    pub packets: u64,
    /// Received packets longer than 8,000 bytes, counted as on the wire.
    pub wide_packets: u64,
    /// Frames dropped because no buffer was free or the frame was truncated.
    pub dropped: u64,
    /// Frames without an IP packet for the engine, forwarded unchanged.
    pub passed: u64,
    /// Frames without an IP packet that were dropped, as they exceed the other side's MTU.
    pub oversize: u64,
    /// Number of failed reads of the port.
    pub errors: u64,
    /// The MTU that a router or DHCP server of the narrow side last announced to the wide hosts, in bytes; 0 if
    /// none.
    pub advised_mtu: u32,
    /// Frames that the kernel dropped before the port was last reopened.
    pub missed_before: u64,
    /// The port's last error; `None` if there was none.
    pub last_error: Option<String>,
}

/// Packets handed between a worker and its peer workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HandoffStats {
    /// Packets sent to the worker of their flow.
    pub sent: u64,
    /// The packets sent to peer workers, by direction: to the narrow endpoint, then to the wide endpoint.
    pub sent_directions: [u64; 2],
    /// Packets received from peer workers.
    pub received: u64,
    /// Packets that this worker sent itself because the queue of the flow's worker was full or closed.
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
    /// Returns the state of a side's stages.
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
    /// Returns the state of a gateway's direction. `kept_count` is the number of the pool's buffers that the port
    /// keeps or that were lost in a panic.
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
            placement: gateway.placement_stats(direction),
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

    /// Counts a frame that was received with header split.
    pub(crate) fn split(&mut self, split: &SplitFrame) {
        let len = split.frame_len();
        self.frames += 1;
        self.bytes += len as u64;
        self.packets += 1;
        if len - split.link().len() > WIDE_LEN {
            self.wide_packets += 1;
        }
    }

    /// Counts an error of the port, and keeps its text.
    pub(crate) fn note(&mut self, error: &io::Error) {
        self.errors += 1;
        self.last_error = Some(error.to_string());
    }
}

/// Longest packet that does not count as a wide packet, in bytes.
pub const WIDE_LEN: usize = 8_000;
