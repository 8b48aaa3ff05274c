//! Snapshots of workers in, one picture that can be shown, stored and sent out.
//!
//! [`Stats`] is what the metrics, the control socket and `wideload top` tell: every counter by its name, each
//! worker's and their sum, and what the laws leave unexplained. The engine names its counters in its ledger; those
//! of ports are named here, once for all who show them.

use crate::commands::WorkerHandle;
use crate::path::Path;
use crate::snapshot::{DirectionSnapshot, EndpointSnapshot, HandoffStats, Losses, Snapshot, StageSnapshot};
use config::{Config, Role};
use engine::{Event, PlacementStats, Reason, Tally, Toggle};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::ops::AddAssign;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Asks the workers of a running gateway how things are; may be asked from any thread, and holds no worker up.
#[derive(Clone, Debug)]
pub struct Watch {
    name: String,
    role: Role,
    began: Began,
    crew: Vec<WorkerHandle>,
    losses: Losses,
}

#[derive(Clone, Copy, Debug)]
struct Began {
    at: Instant,
    by_the_calendar: Duration,
}

/// How things are with a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Its name.
    pub name: String,
    /// Its role, as a configuration names it.
    pub role: String,
    /// Its version.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// When it began, in seconds since 1970.
    pub began: f64,
    /// How long it had run when this was so, in seconds.
    pub seconds: f64,
    /// All workers together.
    pub all: MetricGroup,
    /// Each worker.
    pub workers: Vec<MetricGroup>,
    /// What was lost where one worker ended and another took its place, since the gateway began: in worker
    /// processes before this one too.
    #[serde(default)]
    pub losses: Losses,
}

/// How things are with one worker, or with all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricGroup {
    /// What leaves by the narrow end.
    pub to_narrow: DirectionFigures,
    /// What leaves by the wide end.
    pub to_wide: DirectionFigures,
    /// The wide end.
    pub wide: EndpointFigures,
    /// The narrow end.
    pub narrow: EndpointFigures,
    /// Processor time, in seconds.
    pub processor_seconds: f64,
    /// Times that workers slept and were woken.
    pub wakes: u64,
    /// What went between workers.
    pub siblings: HandoffFigures,
}

/// What went between workers: TCP that one rebuilt from fragments of a connection that is another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffFigures {
    /// Packets that went to the worker of their flow.
    pub given: u64,
    /// Packets that came from the worker that rebuilt them.
    pub taken: u64,
    /// Packets that left where they stood, for their flow's worker had no room or had ended.
    pub refused: u64,
}

/// How guesses of where payloads belong went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuessFigures {
    /// Frames that were received with their payload apart.
    pub made: u64,
    /// Fragments among them whose payload lay where it belonged.
    pub right: u64,
    /// Bytes of payload that were not copied.
    pub landed_bytes: u64,
    /// Bytes that were copied out of places where they did not belong.
    pub copied_out_bytes: u64,
}

/// How things are with one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionFigures {
    /// IP packets that came.
    pub received: Count,
    /// Packets that went on, as they stand on the wire.
    pub forwarded: Count,
    /// Frames that passed as they came, by their reason.
    pub passed: BTreeMap<String, Count>,
    /// Packets that ended, by their reason.
    pub retired: BTreeMap<String, Count>,
    /// What was done, by its name.
    pub events: BTreeMap<String, Count>,
    /// What is held.
    pub held: Count,
    /// The stages, in the order in which packets meet them.
    pub stages: Vec<StageFigures>,
    /// How guesses of where payloads belong went.
    pub guesses: GuessFigures,
    /// Heap memory of its pool, lent and free, in bytes.
    pub pool_bytes: u64,
    /// Buffers on loan.
    pub lent_buffers: u64,
    /// What came or was made, less what left, was used or is held: nothing, unless there is a mistake in the
    /// program.
    pub unexplained: Gap,
    /// The laws that are broken, in words.
    pub broken: Vec<String>,
}

/// How things are with one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageFigures {
    /// Its name, as a configuration writes it.
    pub stage: String,
    /// Does it work?
    pub is_on: bool,
    /// What it holds.
    pub held: Count,
}

/// How things are with one port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointFigures {
    /// Its address.
    pub address: String,
    /// Does it work?
    pub is_up: bool,
    /// What came, by its name.
    pub came: BTreeMap<String, u64>,
    /// What went, by its name.
    pub went: BTreeMap<String, u64>,
    /// Packets that were to leave, less those that left, were dropped or wait: nothing, unless there is a mistake
    /// in the program.
    pub unexplained: i64,
    /// The last error of the port.
    pub last_error: Option<String>,
}

/// A number of packets and the bytes of payload in them; of frames that are no packets, all of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets on the wire.
    pub packets: u64,
    /// Bytes behind the IP headers.
    pub bytes: u64,
}

/// What a law leaves unexplained: above 0 where something is lost, below where something is from nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Packets on the wire.
    pub packets: i64,
    /// Bytes behind the IP headers.
    pub bytes: i64,
}

/// Names counters once: the variants, their names, what they count, where they stand, and a sentence for each.
macro_rules! counters {
    ($(#[$doc:meta])* $list:ident of $from:ty { $($variant:ident $name:literal $unit:literal $($at:ident).+ $what:literal)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $list { $(#[doc = $what] $variant),* }

        impl $list {
            /// All of them, in the order in which tables show them.
            pub const ALL: &[$list] = &[$($list::$variant),*];

            /// The counter's name.
            pub fn name(self) -> &'static str {
                match self { $($list::$variant => $name),* }
            }

            /// What each of what it counts is.
            pub fn unit(self) -> &'static str {
                match self { $($list::$variant => $unit),* }
            }

            /// What it counts, in one sentence.
            pub fn what(self) -> &'static str {
                match self { $($list::$variant => $what),* }
            }

            /// The counter's value.
            pub fn of(self, from: &$from) -> u64 {
                match self { $($list::$variant => from.$($at).+),* }
            }
        }
    };
}

counters! {
    /// What came in by a port.
    Came of EndpointSnapshot {
        Frames "frames" "frames" seen.frames "Frames that the port gave."
        Bytes "bytes" "bytes" seen.bytes "Bytes of the frames that the port gave, link headers once for each train."
        Packets "packets" "packets" seen.packets "Packets on the wire in the frames that the port gave."
        WidePackets "wide_packets" "packets" seen.wide_packets "Packets on the wire that came and are longer than 8,000 bytes."
        Lost "lost" "frames" seen.lost "Frames that came and found no buffer, or came cut: dropped."
        Passed "passed" "frames" seen.passed "Frames that carry no packet for us, and passed."
        Oversize "oversize" "frames" seen.oversize "Frames that carry no packet and are longer than the other side takes: dropped."
        Errors "errors" "times" seen.errors "Times that the port could not be read."
        Missed "missed" "frames" missed "Frames that the kernel dropped because nobody took them in time."
        LentFrames "lent_frames" "frames" lent.frames "Packets and trains that the kernel passed on by itself, of flows that were lent to it; the counters above and those of what went do not have them."
        LentPackets "lent_packets" "packets" lent.packets_in "Packets on the wire that came in those."
        LentPacketsOut "lent_packets_out" "packets" lent.packets_out "Packets on the wire that those went as."
        LentBytes "lent_bytes" "bytes" lent.bytes "Bytes of payload in those."
        LentLost "lent_lost" "frames" lent.lost "Frames among those that the kernel dropped: it had no memory to change them, or the interface takes less by now."
    }
}

counters! {
    /// What went out by a port.
    Went of EndpointSnapshot {
        Packets "packets" "packets" sent.packets "Packets on the wire that the port took."
        Bytes "bytes" "bytes" sent.bytes "Bytes that the port took, link headers once for each train."
        Wires "wires" "wires" sent.wires "Packets, trains and frames that the port took, each in one piece."
        Full "full" "packets" sent.full "Packets that were dropped because the port stayed full."
        Torn "torn" "packets" sent.torn "Fragments that were dropped because the port stayed full when another one of their datagram was to leave."
        Refused "refused" "packets" sent.refused "Packets that the port does not take, too long or malformed to it: dropped."
        Down "down" "packets" sent.down "Packets that were dropped because the port's interface is down or gone."
        OffloadsRefused "offloads_refused" "times" sent.offloads_refused "Trains and half-filled checksums that the port said it takes, and did not; they left all the same."
    }
}

counters! {
    /// How guesses of where payloads belong went.
    Guessed of GuessFigures {
        Made "made" "frames" made "Frames that were received with their payload where it was expected to belong."
        Right "right" "frames" right "Fragments among them whose payload belonged there."
        LandedBytes "landed_bytes" "bytes" landed_bytes "Bytes of payload that nobody copied from there."
        CopiedOutBytes "copied_out_bytes" "bytes" copied_out_bytes "Bytes that were copied out of places where they did not belong."
    }
}

counters! {
    /// What went between workers.
    Shared of HandoffFigures {
        Given "given" "packets" given "TCP packets rebuilt from fragments that went to the worker of their flow."
        Taken "taken" "packets" taken "TCP packets rebuilt from fragments that came from the worker that rebuilt them."
        Refused "refused" "packets" refused "TCP packets rebuilt from fragments that left where they stood: their flow's worker had no room, or had ended."
    }
}

counters! {
    /// What is lost where one worker ends and another takes its place.
    Lost of Losses {
        Untaken "untaken" "packets" untaken "Packets that a worker was to hand over and its successor did not take: dropped."
        Cut "cut" "frames" cut "Frames that a worker handed over and that came cut, for its process had ended: dropped."
        Panicked "panicked" "packets" panicked "Packets that a worker had in hand when it panicked: dropped."
    }
}

impl Came {
    /// What of it is a loss.
    pub const DROPS: [Came; 4] = [Came::Lost, Came::Oversize, Came::Missed, Came::LentLost];
}

impl Went {
    /// What of it is a loss.
    pub const DROPS: [Went; 4] = [Went::Full, Went::Torn, Went::Refused, Went::Down];
}

impl Watch {
    /// Asks the workers of a gateway that goes by this configuration and began just now, after these losses.
    pub fn new(config: &Config, crew: Vec<WorkerHandle>, losses: Losses) -> Watch {
        let by_the_calendar = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Began { at: Instant::now(), by_the_calendar };
        Watch { name: config.name.clone(), role: config.role, began, crew, losses }
    }

    /// The gateway's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How things are.
    ///
    /// # Errors
    /// A worker is gone, or does not answer.
    pub fn reading(&self) -> io::Result<Stats> {
        let snapshots = self.crew.iter().map(WorkerHandle::ask).collect::<io::Result<Vec<_>>>()?;
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
    /// The counters of workers, without a word of whose they are.
    pub fn of(snapshots: &[Snapshot]) -> Stats {
        let workers: Vec<MetricGroup> = snapshots.iter().map(MetricGroup::of).collect();
        let mut all = MetricGroup::default();
        workers.iter().for_each(|worker| all += worker);
        Stats { all, workers, ..Stats::default() }
    }

    /// Packets on the wire that came or were to leave and whose end the laws do not know.
    pub(crate) fn missed_count(&self) -> u64 {
        let directions = self.all.directions().map(|(_, direction)| direction.unexplained.packets);
        let ends = self.all.ends().map(|(_, end)| end.unexplained);
        directions.into_iter().chain(ends).filter_map(|count| u64::try_from(count).ok()).sum()
    }
}

impl MetricGroup {
    /// Both ways, as configurations and labels name them: what leaves by the narrow end, what leaves by the wide
    /// end.
    pub fn directions(&self) -> [(&'static str, &DirectionFigures); 2] {
        [("to-narrow", &self.to_narrow), ("to-wide", &self.to_wide)]
    }

    /// Both ends, as configurations and labels name them.
    pub fn ends(&self) -> [(&'static str, &EndpointFigures); 2] {
        [("wide", &self.wide), ("narrow", &self.narrow)]
    }

    /// All packets that came and that went on, those of offloaded flows too, by both ways in their order; of those
    /// the bytes are TCP's payload alone.
    pub fn totals(&self) -> [(&'static str, [Count; 2]); 2] {
        let [to_narrow, to_wide] = self.directions();
        [(to_narrow, &self.wide), (to_wide, &self.narrow)]
            .map(|((label, direction), from)| (label, direction.totals(from)))
    }

    fn of(snapshot: &Snapshot) -> MetricGroup {
        let [to_narrow, to_wide] = &snapshot.directions;
        let [wide, narrow] = &snapshot.ends;
        let HandoffStats { given, given_directions, taken, refused } = snapshot.siblings;
        let [narrow_handed, wide_handed] = snapshot.handed_over;
        let [narrow_given, wide_given] = [given_directions[0] + narrow_handed, given_directions[1] + wide_handed];
        let [at_wide, at_narrow] = match snapshot.path {
            Path::Across => [
                unexplained([to_wide, to_narrow], [wide, narrow], wide_given),
                unexplained([to_narrow, to_wide], [narrow, wide], narrow_given),
            ],
            // What came in by an end leaves by it.
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
            siblings: HandoffFigures { given, taken, refused },
        }
    }
}

/// Packets that `end` was to send, less those whose end is known. Toward it leaves what goes on by one way, the
/// answers about what came by it, and what the end that feeds it gave that is no packet; what was given to siblings
/// or to a successor leaves by theirs.
fn unexplained([toward, away]: [&DirectionSnapshot; 2], [end, other]: [&EndpointSnapshot; 2], given: u64) -> i64 {
    let due = toward.ledger.forwarded.packets + away.ledger.event(Event::Answered).packets + other.seen.passed;
    let sent = &end.sent;
    let known = sent.packets + sent.full + sent.torn + sent.refused + sent.down + given;
    due.wrapping_sub(known) as i64
}

impl DirectionFigures {
    /// Packets that ended, for this reason.
    pub fn retired(&self, reason: Reason) -> Count {
        self.retired.get(reason.name()).copied().unwrap_or_default()
    }

    /// Frames that passed as they came, for this reason.
    pub fn passed(&self, reason: Reason) -> Count {
        self.passed.get(reason.name()).copied().unwrap_or_default()
    }

    /// How often something was done.
    pub fn event(&self, event: Event) -> Count {
        self.events.get(event.name()).copied().unwrap_or_default()
    }

    /// All packets that came by this end and that went on, those of offloaded flows too.
    pub fn totals(&self, from: &EndpointFigures) -> [Count; 2] {
        let bytes = from.came(Came::LentBytes);
        [(self.received, Came::LentPackets), (self.forwarded, Came::LentPacketsOut)].map(|(mut all, offloaded)| {
            all += Count { packets: from.came(offloaded), bytes };
            all
        })
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
            guesses: direction.guesses.into(),
            pool_bytes: direction.pool_len,
            lent_buffers: direction.lent_count,
            unexplained: Gap {
                packets: came.packets.wrapping_sub(left.packets) as i64,
                bytes: came.bytes.wrapping_sub(left.bytes) as i64,
            },
            broken: direction.broken.iter().cloned().collect(),
        }
    }
}

impl StageFigures {
    fn of(stage: &StageSnapshot) -> StageFigures {
        StageFigures {
            stage: stage.stage.name().to_owned(),
            is_on: stage.switch == Toggle::On,
            held: stage.held.into(),
        }
    }
}

impl EndpointFigures {
    /// What came.
    pub fn came(&self, counter: Came) -> u64 {
        self.came.get(counter.name()).copied().unwrap_or_default()
    }

    /// What went.
    pub fn went(&self, counter: Went) -> u64 {
        self.went.get(counter.name()).copied().unwrap_or_default()
    }

    fn of(end: &EndpointSnapshot, unexplained: i64) -> EndpointFigures {
        EndpointFigures {
            address: end.address.clone(),
            is_up: end.is_up,
            came: Came::ALL.iter().map(|it| (it.name().to_owned(), it.of(end))).collect(),
            went: Went::ALL.iter().map(|it| (it.name().to_owned(), it.of(end))).collect(),
            unexplained,
            last_error: end.seen.last_error.clone(),
        }
    }
}

impl From<Tally> for Count {
    fn from(Tally { packets, bytes }: Tally) -> Count {
        Count { packets, bytes }
    }
}

impl From<PlacementStats> for GuessFigures {
    fn from(PlacementStats { made, right, landed_bytes, copied_out_bytes }: PlacementStats) -> GuessFigures {
        GuessFigures { made, right, landed_bytes, copied_out_bytes }
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
        self.siblings.given += other.siblings.given;
        self.siblings.taken += other.siblings.taken;
        self.siblings.refused += other.siblings.refused;
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
        self.guesses.made += other.guesses.made;
        self.guesses.right += other.guesses.right;
        self.guesses.landed_bytes += other.guesses.landed_bytes;
        self.guesses.copied_out_bytes += other.guesses.copied_out_bytes;
        self.pool_bytes += other.pool_bytes;
        self.lent_buffers += other.lent_buffers;
        self.unexplained.packets += other.unexplained.packets;
        self.unexplained.bytes += other.unexplained.bytes;
        self.broken.extend(other.broken.iter().cloned());
    }
}

impl AddAssign<&EndpointFigures> for EndpointFigures {
    fn add_assign(&mut self, other: &EndpointFigures) {
        // One that was never added to is up as the first is.
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
