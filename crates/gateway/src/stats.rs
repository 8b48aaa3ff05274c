//! Snapshots of workers -> statistics that can be displayed, stored and sent.
//!
//! [`Stats`] contains every counter by its name: for each worker, and as sums. It also contains the imbalances of
//! the conservation laws. The metrics, the control socket and `wideload top` all show these statistics. The engine
//! names its counters in its ledger; the counters of ports are named here.

use crate::commands::WorkerHandle;
use crate::path::Path;
use crate::snapshot::{DirectionSnapshot, EndpointSnapshot, HandoffStats, Losses, Snapshot, StageSnapshot};
use config::{Config, Role, Stage};
use engine::{Event, PlacementStats, Reason, Tally, Toggle};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::ops::AddAssign;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Asks the workers of a running gateway for their snapshots. Any thread may ask. A worker answers between two
/// batches.
#[derive(Clone, Debug)]
pub struct Watch {
    name: String,
    role: Role,
    began: Began,
    workers: Vec<WorkerHandle>,
    losses: Losses,
}

#[derive(Clone, Copy, Debug)]
struct Began {
    at: Instant,
    by_the_calendar: Duration,
}

/// The statistics of a gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The gateway's name.
    pub name: String,
    /// The role's name in a configuration.
    pub role: String,
    /// The version of the `wideload` program that runs the gateway.
    pub version: String,
    /// The ID of the process that contains the workers.
    pub process: u32,
    /// The time at which the process started, in seconds since 1970.
    pub began: f64,
    /// The running time of the process so far, in seconds.
    pub seconds: f64,
    /// The sums of all workers.
    pub all: MetricGroup,
    /// The statistics of each worker.
    pub workers: Vec<MetricGroup>,
    /// Losses at hand-overs since the gateway first started, including those of earlier worker processes.
    #[serde(default)]
    pub losses: Losses,
}

/// The statistics of one worker, or the sums of all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricGroup {
    /// The direction to the narrow endpoint.
    pub to_narrow: DirectionFigures,
    /// The direction to the wide endpoint.
    pub to_wide: DirectionFigures,
    /// The statistics of the wide endpoint's port.
    pub wide: EndpointFigures,
    /// The statistics of the narrow endpoint's port.
    pub narrow: EndpointFigures,
    /// CPU time, in seconds.
    pub processor_seconds: f64,
    /// Number of times that the worker woke up from sleep.
    pub wakes: u64,
    /// Packets handed between workers.
    #[serde(alias = "siblings")]
    pub peers: HandoffFigures,
}

/// Counters of packets handed between workers: TCP packets that one worker reassembled and whose connection belongs
/// to another worker, and ICMP errors about such connections at a border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoffFigures {
    /// Packets sent to the worker of their flow.
    #[serde(alias = "given")]
    pub sent: u64,
    /// Packets received from the worker that reassembled them.
    #[serde(alias = "taken")]
    pub received: u64,
    /// Packets that the reassembling worker sent itself because the queue of the flow's worker was full or closed.
    pub refused: u64,
}

/// The results of payload placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacementFigures {
    /// Frames received with a header split: their payload lies in its predicted place.
    #[serde(alias = "made")]
    pub predicted: u64,
    /// Frames among the predicted ones whose payload was received in its right place.
    #[serde(alias = "right")]
    pub hits: u64,
    /// Payload bytes that needed no copy.
    #[serde(alias = "landed_bytes")]
    pub in_place_bytes: u64,
    /// Payload bytes that were copied out of a wrongly predicted place.
    pub copied_out_bytes: u64,
}

/// The statistics of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectionFigures {
    /// Received IP packets, counted as on the wire.
    pub received: Count,
    /// Forwarded packets, counted as on the wire.
    pub forwarded: Count,
    /// Frames that were forwarded unchanged, by reason.
    pub passed: BTreeMap<String, Count>,
    /// Packets that were dropped or rejected, by reason.
    pub retired: BTreeMap<String, Count>,
    /// Number of each event, by name.
    pub events: BTreeMap<String, Count>,
    /// Held packets and their payload bytes.
    pub held: Count,
    /// The stages, in the order in which packets pass through them.
    pub stages: Vec<StageFigures>,
    /// The results of payload placement.
    #[serde(alias = "guesses")]
    pub placement: PlacementFigures,
    /// Heap memory of the direction's buffer pool, in use and free, in bytes.
    pub pool_bytes: u64,
    /// Number of the pool's buffers in use.
    pub lent_buffers: u64,
    /// Packets received or made, less packets sent, used or held. A value other than 0 is a bug of Wideload.
    pub unexplained: Gap,
    /// Descriptions of the conservation laws that do not hold; empty if all hold.
    pub broken: Vec<String>,
}

/// The statistics of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageFigures {
    /// The stage's name in a configuration.
    pub stage: String,
    /// Whether the stage is on.
    pub is_on: bool,
    /// The packets that the stage holds, and their payload bytes.
    pub held: Count,
}

/// The statistics of one port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointFigures {
    /// The port's address, such as `packet:lan0`.
    pub address: String,
    /// Whether the port is up.
    pub is_up: bool,
    /// Counters of received frames, by name.
    pub came: BTreeMap<String, u64>,
    /// Counters of sent frames, by name.
    pub went: BTreeMap<String, u64>,
    /// Packets to be sent by this port, less packets that were sent, dropped or handed to another worker. A value
    /// other than 0 is a bug of Wideload.
    pub unexplained: i64,
    /// The port's last error; `None` if there was none.
    pub last_error: Option<String>,
}

/// A number of packets and their payload bytes. For a frame without an IP packet, all bytes are payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of packets, counted as on the wire.
    pub packets: u64,
    /// Bytes after the IP headers.
    pub bytes: u64,
}

/// The imbalance of a conservation law. A value above 0 means that packets are missing. A value below 0 means that
/// there are packets without an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Number of packets, counted as on the wire.
    pub packets: i64,
    /// Bytes after the IP headers.
    pub bytes: i64,
}

/// Defines a list of counters: for each its variant, name, unit, field and explanation.
macro_rules! counters {
    (@former) => { None };
    (@former $old:literal) => { Some($old) };
    ($(#[$doc:meta])* $list:ident of $from:ty {
        $($variant:ident $name:literal $(was $old:literal)? $unit:literal $($at:ident).+ $what:literal)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $list { $(#[doc = $what] $variant),* }

        impl $list {
            /// All counters, in the order of tables.
            pub const ALL: &[$list] = &[$($list::$variant),*];

            /// Returns the counter's name.
            pub fn name(self) -> &'static str {
                match self { $($list::$variant => $name),* }
            }

            /// Returns the counter's name in version 0.1; `None` if the name has not changed.
            pub fn former_name(self) -> Option<&'static str> {
                match self { $($list::$variant => counters!(@former $($old)?)),* }
            }

            /// Returns the counter's unit.
            pub fn unit(self) -> &'static str {
                match self { $($list::$variant => $unit),* }
            }

            /// Returns an explanation of the counter in one sentence.
            pub fn what(self) -> &'static str {
                match self { $($list::$variant => $what),* }
            }

            /// Returns the counter's value.
            pub fn of(self, from: &$from) -> u64 {
                match self { $($list::$variant => from.$($at).+),* }
            }
        }
    };
}

counters! {
    /// Counters of the frames received by a port.
    PortIn of EndpointSnapshot {
        Frames "frames" "frames" rx.frames "Frames that the port delivered."
        Bytes "bytes" "bytes" rx.bytes "Bytes of those frames; a GSO packet's link header counts once."
        Packets "packets" "packets" rx.packets "Packets on the wire in those frames."
        WidePackets "wide_packets" "packets" rx.wide_packets "Packets on the wire longer than 8,000 bytes."
        RxDropped "rx_dropped" was "lost" "frames" rx.dropped "Frames that were dropped because no buffer was free or the frame was truncated."
        Passed "passed" "frames" rx.passed "Frames without an IP packet for the engine, forwarded unchanged."
        Oversize "oversize" "frames" rx.oversize "Frames without an IP packet that exceed the other side's MTU: dropped."
        ReadErrors "read_errors" was "errors" "times" rx.errors "Failed reads of the port."
        Missed "missed" "frames" missed "Frames that the kernel dropped because the worker was too slow."
        OffloadFrames "offload_frames" was "lent_frames" "frames" offloaded.frames "Packets and GSO packets of offloaded flows that the kernel forwarded itself. The counters above and below do not include them."
        OffloadPackets "offload_packets" was "lent_packets" "packets" offloaded.packets_in "Packets on the wire that arrived in those."
        OffloadPacketsOut "offload_packets_out" was "lent_packets_out" "packets" offloaded.packets_out "Packets on the wire that left in those."
        OffloadBytes "offload_bytes" was "lent_bytes" "bytes" offloaded.bytes "TCP payload bytes in those."
        OffloadDropped "offload_dropped" was "lent_lost" "frames" offloaded.dropped "Frames of offloaded flows that the kernel dropped: no memory, or a smaller MTU."
    }
}

counters! {
    /// Counters of the frames sent by a port.
    PortOut of EndpointSnapshot {
        Packets "packets" "packets" tx.packets "Packets on the wire that the port accepted."
        Bytes "bytes" "bytes" tx.bytes "Bytes that the port accepted; a GSO packet's link header counts once."
        Frames "frames" was "wires" "frames" tx.frames "Packets, GSO packets and other frames that the port accepted, each counted once."
        QueueFull "queue_full" was "full" "packets" tx.queue_full "Packets that were dropped because the transmit queue stayed full."
        DatagramDropped "datagram_dropped" was "torn" "packets" tx.datagram_dropped "Fragments that were dropped because another fragment of their datagram found the queue full."
        Rejected "rejected" was "refused" "packets" tx.rejected "Packets that the port does not accept: too long or malformed. Dropped."
        LinkDown "link_down" was "down" "packets" tx.link_down "Packets that were dropped because the interface is down or gone."
        OffloadsRejected "offloads_rejected" was "offloads_refused" "times" tx.offloads_rejected "GSO packets and partial checksums that the port announced and then rejected. They were sent as plain packets."
    }
}

counters! {
    /// Counters of payload placement.
    PlacementCounter of PlacementFigures {
        Predicted "predicted" was "made" "frames" predicted "Frames received with their payload in its predicted place."
        Hits "hits" was "right" "frames" hits "Fragments among them whose prediction was right."
        InPlaceBytes "in_place_bytes" was "landed_bytes" "bytes" in_place_bytes "Payload bytes that needed no copy."
        CopiedOutBytes "copied_out_bytes" "bytes" copied_out_bytes "Payload bytes that were copied out of a wrongly predicted place."
    }
}

counters! {
    /// Counters of packets handed between workers.
    PeerCounter of HandoffFigures {
        Sent "sent" was "given" "packets" sent "Reassembled TCP packets, and ICMP errors, that were sent to the worker of their flow."
        Received "received" was "taken" "packets" received "Reassembled TCP packets, and ICMP errors, that were received from other workers."
        Refused "refused" "packets" refused "Reassembled TCP packets, and ICMP errors, of another worker's flow that were sent here: its queue was full, or it had ended."
    }
}

counters! {
    /// Counters of losses at the hand-over from one worker to its successor.
    HandoverCounter of Losses {
        NotReceived "not_received" was "untaken" "packets" not_received "Packets that a worker handed over and its successor did not receive: dropped."
        Truncated "truncated" was "cut" "frames" truncated "Frames that arrived truncated because the sending worker had ended: dropped."
        Panicked "panicked" "packets" panicked "Packets that a worker was processing when it panicked: dropped."
    }
}

impl PortIn {
    /// The counters of dropped frames.
    pub const DROPS: [PortIn; 4] = [PortIn::RxDropped, PortIn::Oversize, PortIn::Missed, PortIn::OffloadDropped];
}

impl PortOut {
    /// The counters of dropped packets.
    pub const DROPS: [PortOut; 4] =
        [PortOut::QueueFull, PortOut::DatagramDropped, PortOut::Rejected, PortOut::LinkDown];
}

impl Watch {
    /// Watches the workers of a gateway that starts now with this configuration. `losses` are the losses of earlier
    /// workers.
    pub fn new(config: &Config, crew: Vec<WorkerHandle>, losses: Losses) -> Watch {
        let by_the_calendar = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Began { at: Instant::now(), by_the_calendar };
        Watch { name: config.name.clone(), role: config.role, began, workers: crew, losses }
    }

    /// Returns the gateway's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the statistics at this moment.
    ///
    /// # Errors
    /// A worker has ended, or does not answer in time.
    pub fn reading(&self) -> io::Result<Stats> {
        let snapshots = self.workers.iter().map(WorkerHandle::ask).collect::<io::Result<Vec<_>>>()?;
        Ok(Stats {
            name: self.name.clone(),
            role: self.role.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            began: self.began.by_the_calendar.as_secs_f64(),
            seconds: self.began.at.elapsed().as_secs_f64(),
            losses: self.losses,
            ..Stats::of(&snapshots)
        })
    }
}

impl Stats {
    /// Sums the snapshots of workers. The gateway's name and times stay empty.
    pub fn of(snapshots: &[Snapshot]) -> Stats {
        let workers: Vec<MetricGroup> = snapshots.iter().map(MetricGroup::of).collect();
        let mut all = MetricGroup::default();
        workers.iter().for_each(|worker| all += worker);
        Stats { all, workers, ..Stats::default() }
    }

    /// Returns these statistics with two keys for each renamed counter: its current name, and its name in version
    /// 0.1.
    pub fn with_former_names(mut self) -> Stats {
        self.groups_mut().for_each(|group| group.change_names(FormerNames::Added));
        self
    }

    /// Returns these statistics with current names only. If an older gateway sent a counter under its former name
    /// alone, the value moves to the current name.
    pub fn without_former_names(mut self) -> Stats {
        self.groups_mut().for_each(|group| group.change_names(FormerNames::Removed));
        self
    }

    fn groups_mut(&mut self) -> impl Iterator<Item = &mut MetricGroup> {
        self.workers.iter_mut().chain([&mut self.all])
    }

    /// Returns the number of packets that are missing according to the conservation laws, counted as on the wire.
    pub(crate) fn missed_count(&self) -> u64 {
        let directions = self.all.directions().map(|(_, direction)| direction.unexplained.packets);
        let ends = self.all.ends().map(|(_, end)| end.unexplained);
        directions.into_iter().chain(ends).filter_map(|count| u64::try_from(count).ok()).sum()
    }
}

impl MetricGroup {
    /// Returns both directions with their names in configurations and labels: to the narrow endpoint, then to the
    /// wide endpoint.
    pub fn directions(&self) -> [(&'static str, &DirectionFigures); 2] {
        [("to-narrow", &self.to_narrow), ("to-wide", &self.to_wide)]
    }

    /// Returns both endpoints with their names in configurations and labels.
    pub fn ends(&self) -> [(&'static str, &EndpointFigures); 2] {
        [("wide", &self.wide), ("narrow", &self.narrow)]
    }

    /// Returns the received and the forwarded packets of each direction. Packets of offloaded flows are included,
    /// with only their TCP payload as bytes.
    pub fn totals(&self) -> [(&'static str, [Count; 2]); 2] {
        let [to_narrow, to_wide] = self.directions();
        [(to_narrow, &self.wide), (to_wide, &self.narrow)]
            .map(|((label, direction), from)| (label, direction.totals(from)))
    }

    fn change_names(&mut self, former: FormerNames) {
        for direction in [&mut self.to_narrow, &mut self.to_wide] {
            former.apply(&mut direction.events, Event::ALL, Event::name, Event::former_name);
            if former == FormerNames::Removed {
                direction.stages.iter_mut().for_each(StageFigures::rename);
            }
        }
        for end in [&mut self.wide, &mut self.narrow] {
            former.apply(&mut end.came, PortIn::ALL, PortIn::name, PortIn::former_name);
            former.apply(&mut end.went, PortOut::ALL, PortOut::name, PortOut::former_name);
        }
    }

    fn of(snapshot: &Snapshot) -> MetricGroup {
        let [to_narrow, to_wide] = &snapshot.directions;
        let [wide, narrow] = &snapshot.ends;
        let HandoffStats { sent, sent_directions, received, refused } = snapshot.peers;
        let [narrow_handed, wide_handed] = snapshot.handed_over;
        let [narrow_given, wide_given] = [sent_directions[0] + narrow_handed, sent_directions[1] + wide_handed];
        let [at_wide, at_narrow] = match snapshot.path {
            Path::Across => [
                unexplained([to_wide, to_narrow], [wide, narrow], wide_given),
                unexplained([to_narrow, to_wide], [narrow, wide], narrow_given),
            ],
            // Packets leave by the endpoint of their ingress.
            Path::Back => [
                unexplained([to_narrow; 2], [wide; 2], narrow_given),
                unexplained([to_wide; 2], [narrow; 2], wide_given),
            ],
        };
        MetricGroup {
            to_narrow: DirectionFigures::of(to_narrow),
            to_wide: DirectionFigures::of(to_wide),
            wide: EndpointFigures::of(wide, at_wide),
            narrow: EndpointFigures::of(narrow, at_narrow),
            processor_seconds: snapshot.processor_time.as_secs_f64(),
            wakes: snapshot.wake_count,
            peers: HandoffFigures { sent, received, refused },
        }
    }
}

/// Returns the packets that the endpoint `end` should send, less the packets that it sent or dropped and the
/// packets handed to another worker (`given`). The endpoint should send:
///
/// - the packets that its direction forwards,
/// - the ICMP errors about packets that it received,
/// - the frames without an IP packet that the other endpoint received.
///
/// Packets that were handed to peer workers or to a successor are sent by those workers.
fn unexplained([toward, away]: [&DirectionSnapshot; 2], [end, other]: [&EndpointSnapshot; 2], given: u64) -> i64 {
    let due = toward.ledger.forwarded.packets + away.ledger.event(Event::IcmpSent).packets + other.rx.passed;
    let sent = &end.tx;
    let known = sent.packets + sent.queue_full + sent.datagram_dropped + sent.rejected + sent.link_down + given;
    due.wrapping_sub(known) as i64
}

impl DirectionFigures {
    /// Returns the packets that were dropped or rejected for this reason.
    pub fn retired(&self, reason: Reason) -> Count {
        self.retired.get(reason.name()).copied().unwrap_or_default()
    }

    /// Returns the frames that were forwarded unchanged for this reason.
    pub fn passed(&self, reason: Reason) -> Count {
        self.passed.get(reason.name()).copied().unwrap_or_default()
    }

    /// Returns the count of an event.
    pub fn event(&self, event: Event) -> Count {
        self.events.get(event.name()).copied().unwrap_or_default()
    }

    /// Returns the packets received by the endpoint `from`, and the packets of this direction that were forwarded.
    /// Both include offloaded flows.
    pub fn totals(&self, from: &EndpointFigures) -> [Count; 2] {
        let bytes = from.rx(PortIn::OffloadBytes);
        [(self.received, PortIn::OffloadPackets), (self.forwarded, PortIn::OffloadPacketsOut)].map(
            |(mut all, offloaded)| {
                all += Count { packets: from.rx(offloaded), bytes };
                all
            },
        )
    }

    fn of(direction: &DirectionSnapshot) -> DirectionFigures {
        let reasons = |count: &dyn Fn(Reason) -> Tally| {
            Reason::ALL.iter().map(|it| (it.name().to_owned(), count(*it).into())).collect()
        };
        let [came, left] = direction.ledger.balance(direction.held);
        DirectionFigures {
            received: direction.ledger.received.into(),
            forwarded: direction.ledger.forwarded.into(),
            passed: reasons(&|reason| direction.ledger.passed(reason)),
            retired: reasons(&|reason| direction.ledger.retired(reason)),
            events: Event::ALL
                .iter()
                .map(|it| (it.name().to_owned(), direction.ledger.event(*it).into()))
                .collect(),
            held: direction.held.into(),
            stages: direction.stages.iter().map(StageFigures::of).collect(),
            placement: direction.placement.into(),
            pool_bytes: direction.pool_len,
            lent_buffers: direction.in_use_count,
            unexplained: Gap {
                packets: came.packets.wrapping_sub(left.packets) as i64,
                bytes: came.bytes.wrapping_sub(left.bytes) as i64,
            },
            broken: direction.broken.iter().cloned().collect(),
        }
    }
}

/// A change to the keys of a map of counters: former names are added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormerNames {
    Added,
    Removed,
}

impl FormerNames {
    fn apply<K: Copy, C: Copy>(
        self,
        counts: &mut BTreeMap<String, C>,
        counters: &[K],
        name: fn(K) -> &'static str,
        former_name: fn(K) -> Option<&'static str>,
    ) {
        for counter in counters {
            let (name, Some(former)) = (name(*counter), former_name(*counter)) else { continue };
            match self {
                FormerNames::Added => {
                    if let Some(count) = counts.get(name).copied() {
                        counts.insert(former.to_owned(), count);
                    }
                }
                FormerNames::Removed => {
                    if let Some(count) = counts.remove(former) {
                        counts.entry(name.to_owned()).or_insert(count);
                    }
                }
            }
        }
    }
}

impl StageFigures {
    /// Replaces a stage's name of version 0.1 by the current name.
    fn rename(&mut self) {
        if let Some(stage) = Stage::named(&self.stage) {
            self.stage = stage.name().to_owned();
        }
    }

    fn of(stage: &StageSnapshot) -> StageFigures {
        StageFigures {
            stage: stage.stage.name().to_owned(),
            is_on: stage.switch == Toggle::On,
            held: stage.held.into(),
        }
    }
}

impl EndpointFigures {
    /// Returns a counter of received frames.
    pub fn rx(&self, counter: PortIn) -> u64 {
        self.came.get(counter.name()).copied().unwrap_or_default()
    }

    /// Returns a counter of sent frames.
    pub fn tx(&self, counter: PortOut) -> u64 {
        self.went.get(counter.name()).copied().unwrap_or_default()
    }

    fn of(end: &EndpointSnapshot, unexplained: i64) -> EndpointFigures {
        EndpointFigures {
            address: end.address.clone(),
            is_up: end.is_up,
            came: PortIn::ALL.iter().map(|it| (it.name().to_owned(), it.of(end))).collect(),
            went: PortOut::ALL.iter().map(|it| (it.name().to_owned(), it.of(end))).collect(),
            unexplained,
            last_error: end.rx.last_error.clone(),
        }
    }
}

impl From<Tally> for Count {
    fn from(Tally { packets, bytes }: Tally) -> Count {
        Count { packets, bytes }
    }
}

impl From<PlacementStats> for PlacementFigures {
    fn from(
        PlacementStats { predicted, hits, in_place_bytes, copied_out_bytes }: PlacementStats,
    ) -> PlacementFigures {
        PlacementFigures { predicted, hits, in_place_bytes, copied_out_bytes }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl AddAssign<&MetricGroup> for MetricGroup {
    fn add_assign(&mut self, other: &MetricGroup) {
        self.to_narrow += &other.to_narrow;
        self.to_wide += &other.to_wide;
        self.wide += &other.wide;
        self.narrow += &other.narrow;
        self.processor_seconds += other.processor_seconds;
        self.wakes += other.wakes;
        self.peers.sent += other.peers.sent;
        self.peers.received += other.peers.received;
        self.peers.refused += other.peers.refused;
    }
}

impl AddAssign<&DirectionFigures> for DirectionFigures {
    fn add_assign(&mut self, other: &DirectionFigures) {
        self.received += other.received;
        self.forwarded += other.forwarded;
        add(&mut self.passed, &other.passed);
        add(&mut self.retired, &other.retired);
        add(&mut self.events, &other.events);
        self.held += other.held;
        if self.stages.is_empty() {
            self.stages = other.stages.clone();
        } else {
            for (stage, other) in self.stages.iter_mut().zip(&other.stages) {
                stage.is_on |= other.is_on;
                stage.held += other.held;
            }
        }
        self.placement.predicted += other.placement.predicted;
        self.placement.hits += other.placement.hits;
        self.placement.in_place_bytes += other.placement.in_place_bytes;
        self.placement.copied_out_bytes += other.placement.copied_out_bytes;
        self.pool_bytes += other.pool_bytes;
        self.lent_buffers += other.lent_buffers;
        self.unexplained.packets += other.unexplained.packets;
        self.unexplained.bytes += other.unexplained.bytes;
        self.broken.extend(other.broken.iter().cloned());
    }
}

impl AddAssign<&EndpointFigures> for EndpointFigures {
    fn add_assign(&mut self, other: &EndpointFigures) {
        // An empty sum takes over the first port's state.
        self.is_up = other.is_up && (self.is_up || self.address.is_empty());
        self.address.clone_from(&other.address);
        add(&mut self.came, &other.came);
        add(&mut self.went, &other.went);
        self.unexplained += other.unexplained;
        self.last_error = self.last_error.take().or_else(|| other.last_error.clone());
    }
}

fn add<C: AddAssign + Copy + Default>(counts: &mut BTreeMap<String, C>, more: &BTreeMap<String, C>) {
    for (name, count) in more {
        match counts.get_mut(name) {
            Some(sum) => *sum += *count,
            None => {
                counts.insert(name.clone(), *count);
            }
        }
    }
}
