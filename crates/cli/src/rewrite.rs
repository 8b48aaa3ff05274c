//! A capture in, the same traffic at other packet sizes out.
//!
//! Packets pass the engine in the order of the file, in constant memory. Its clock is the capture's: before a packet is
//! taken, what became late until then is given up, at the time it became late. The engine's clock never goes back and
//! never leaps; where the capture's does, the two part, and what leaves is stamped by the capture's.

use capture::{Item, Reader, Record};
use core::net::IpAddr;
use core::time::Duration;
use engine::{
    Batch, Egress, Exempt, FragmentPolicy, Gateway, GatewaySettings, Holding, JOIN_TIMEOUT, Ledger, Limits, Mode,
    PlacementMode, Position, Prefix, Prefixes, Reason, Secret, Secrets, SegmentSize, SideSettings, TRANSIT_TIMEOUT,
    Tally, Toggle,
};
use packet::{CopyError, Frame, Ingress, Packet, ParseError, Pool, Split, Time};
use std::collections::VecDeque;
use std::io::Read;

/// How to rewrite.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest packet to leave, IP header counted, in bytes.
    pub mtu: u16,
    /// Who we are to the packets.
    pub role: As,
    /// What works.
    pub stages: Stages,
    /// Whose fragments are joined; none named: all.
    pub join_for: Vec<Prefix>,
    /// Flows that are never coalesced.
    pub exempt: Vec<Exempt>,
    /// How long segments wait.
    pub hold: Holding,
    /// How a cut shares a payload out.
    pub fill: Split,
    /// What may be held, and how long.
    pub limits: Limits,
    /// How long a datagram may be on its way: no identifier is used again sooner.
    pub lifetime: Duration,
    /// What all choices that show in the output are drawn from.
    pub seed: Secret,
    /// What places in tables are drawn from; it never shows.
    pub table_key: Secret,
}

/// The stages that work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Fragments become whole datagrams.
    pub reassemble: Toggle,
    /// Fragments are joined on the way.
    pub join: Option<FragmentPolicy>,
    /// TCP segments are joined.
    pub coalesce: Option<Mode>,
    /// TCP is cut into segments.
    pub segment: Toggle,
    /// Anything is cut into fragments.
    pub fragment: Toggle,
}

/// Who stands where the packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// The host's own wide interface.
    Host,
    /// A box on the way, with the addresses that it answers from: one of each version.
    Transit {
        /// Where answers come from.
        answer_from: [IpAddr; 2],
    },
}

/// Where a rewritten capture goes.
pub trait Sink {
    /// What can go wrong there.
    type Error;

    /// A part of the file that is no packet, to be written as it is.
    fn structure(&mut self, item: &Item<'_>) -> Result<(), Self::Error>;

    /// A packet to be written as it came.
    fn copy(&mut self, record: &Record<'_>) -> Result<(), Self::Error>;

    /// A packet as it came, but later, with the options of its record.
    fn delayed(&mut self, interface: u32, time: Time, packet: &Packet, options: &[u8]) -> Result<(), Self::Error>;

    /// A packet that the engine made, with the interface it came from (in its section) and its time.
    fn packet(&mut self, interface: u32, time: Time, packet: &Packet) -> Result<(), Self::Error>;
}

/// Why a rewrite ended before the end of its input.
#[derive(Debug)]
pub enum Stop<E> {
    /// The input: what could be read was written.
    Input(capture::Error),
    /// The sink.
    Sink(E),
    /// The caller.
    Interrupted,
}

/// What a rewrite did.
#[derive(Debug)]
pub struct Outcome {
    /// Every fate.
    pub ledger: Ledger,
    /// What was read.
    pub input: Traffic,
    /// What was written.
    pub output: Traffic,
    /// The first packet of which the capture holds only the front.
    pub snap_cut: Option<Spot>,
}

/// Where a packet stands in its capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Spot {
    /// Its number, from 1.
    pub packet: u64,
    /// Its byte in the file, decompressed.
    pub offset: u64,
}

/// Frames of a capture, and how long the packets in them are.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Frames and their bytes, as captured.
    pub frames: Tally,
    /// Packets by length: as many as fit below each bound of [`Traffic::BOUNDS`], and above the one before.
    pub histogram: [u64; Traffic::BOUNDS.len()],
}

/// A rewrite on its way.
#[derive(Debug)]
struct Rewriter {
    gateway: Gateway,
    batch: Batch,
    clock: Clock,
    /// Interfaces of the sections before this one, so that each has a port of its own.
    interfaces_before: u32,
    interfaces_here: u32,
    input: Traffic,
    output: Traffic,
    snap_cut: Option<Spot>,
    /// The options of records whose packets are held, by the number of the record; the oldest are forgotten first.
    options: VecDeque<(u64, Box<[u8]>)>,
    options_len: usize,
}

/// The engine's time, and how far the capture's is from it.
#[derive(Debug, Default)]
struct Clock {
    now: Time,
    /// The engine's time less the capture's, in nanoseconds.
    shift: i128,
    /// Since which time of the capture all of its times have been behind the engine's.
    behind_since: Option<Time>,
}

/// Rewrites all that `reader` gives into `sink`, as long as `goes_on`, which is told the bytes read, says so.
///
/// The outcome is that of what was read, however it ended.
pub fn rewrite<R: Read, S: Sink>(
    reader: &mut Reader<R>,
    settings: &Settings,
    sink: &mut S,
    mut goes_on: impl FnMut(u64) -> bool,
) -> (Outcome, Result<(), Stop<S::Error>>) {
    let mut rewriter = Rewriter::new(settings);
    let ended = rewriter.run(reader, sink, &mut goes_on);
    let flushed = match &ended {
        Err(Stop::Sink(_)) => Ok(()),
        _ => rewriter.release(sink).map_err(Stop::Sink),
    };
    if !matches!(ended, Err(Stop::Sink(_))) && flushed.is_ok() {
        let law = rewriter.gateway.check(ONLY);
        assert!(law.is_ok(), "every packet and every byte has its fate: {law:?}");
    }
    let Rewriter { gateway, input, output, snap_cut, .. } = rewriter;
    // That the output is short matters more than why the input was.
    (Outcome { ledger: gateway.ledger(ONLY).clone(), input, output, snap_cut }, flushed.and(ended))
}

impl Rewriter {
    fn new(settings: &Settings) -> Rewriter {
        let secrets = Secrets { seed: settings.seed, table_key: settings.table_key };
        // What is given up keeps its buffer until it is written, and a packet that comes needs one beside what is held.
        let pool = || Pool::new(2 * settings.limits.bytes + POOL_EXTRA);
        Rewriter {
            gateway: Gateway::new(&GatewaySettings::one(side(settings)), secrets, pool),
            batch: Batch::default(),
            clock: Clock::default(),
            interfaces_before: 0,
            interfaces_here: 0,
            input: Traffic::default(),
            output: Traffic::default(),
            snap_cut: None,
            options: VecDeque::new(),
            options_len: 0,
        }
    }

    fn run<R: Read, S: Sink>(
        &mut self,
        reader: &mut Reader<R>,
        sink: &mut S,
        goes_on: &mut impl FnMut(u64) -> bool,
    ) -> Result<(), Stop<S::Error>> {
        loop {
            let bytes_read = reader.bytes_read();
            let item = reader.next().map_err(Stop::Input);
            if !goes_on(bytes_read) {
                return Err(Stop::Interrupted);
            }
            match item? {
                Some(Item::Packet(record)) => self.take(&record, sink).map_err(Stop::Sink)?,
                Some(item) => self.structure(&item, sink).map_err(Stop::Sink)?,
                None => return Ok(()),
            }
        }
    }

    fn structure<S: Sink>(&mut self, item: &Item<'_>, sink: &mut S) -> Result<(), S::Error> {
        match item {
            // Interfaces of one section mean nothing in the next: what is held leaves first.
            Item::Header(_) => {
                self.release(sink)?;
                self.interfaces_before += self.interfaces_here;
                self.interfaces_here = 0;
            }
            Item::Interface(_) => self.interfaces_here += 1,
            _ => {}
        }
        sink.structure(item)
    }

    /// Takes one record: to the engine if it is an IP packet, past it if it is anything else.
    fn take<S: Sink>(&mut self, record: &Record<'_>, sink: &mut S) -> Result<(), S::Error> {
        if let Some(time) = record.time {
            self.advance(time, sink)?;
        }
        match self.read(record) {
            Ok(mut packet) => {
                self.input.count(record.data.len(), packet.len());
                packet.detect_checksum();
                packet.tag = record.number;
                self.batch.frames.push(Frame::Ip(packet));
                self.gateway.push(self.clock.now, ONLY, &mut self.batch);
                self.keep_options(record);
                self.drain(Some(record), sink)
            }
            Err(reason) => {
                if reason == Reason::SnapCut {
                    self.snap_cut.get_or_insert(Spot { packet: record.number, offset: record.offset });
                }
                self.input.count(record.data.len(), record.data.len());
                self.gateway.output_mut(ONLY).ledger.pass(reason, record.data.len());
                if !matches!(reason, Reason::NotIp | Reason::OtherLink) {
                    // It may be of any flow, and must not overtake what that flow holds.
                    self.gateway.release(self.clock.now, ONLY);
                    self.drain(None, sink)?;
                }
                self.output.count(record.data.len(), record.data.len());
                sink.copy(record)
            }
        }
    }

    fn keep_options(&mut self, record: &Record<'_>) {
        if !record.options.is_empty() {
            self.options_len += record.options.len() + OPTIONS_CHARGE;
            self.options.push_back((record.number, record.options.into()));
            while self.options_len > OPTIONS_LEN_MAX
                && let Some((_, oldest)) = self.options.pop_front()
            {
                self.options_len -= oldest.len() + OPTIONS_CHARGE;
            }
        }
    }

    /// Its packet has left as it came: nothing needs its options.
    fn forget_options(&mut self, number: u64) {
        if let Some((_, options)) = self.options.pop_back_if(|(last, _)| *last == number) {
            self.options_len -= options.len() + OPTIONS_CHARGE;
        }
    }

    fn options_of(&self, number: u64) -> &[u8] {
        let found = self.options.binary_search_by_key(&number, |(number, _)| *number);
        found.ok().and_then(|at| self.options.get(at)).map_or(&[], |(_, options)| options)
    }

    fn read(&mut self, record: &Record<'_>) -> Result<Packet, Reason> {
        let medium = record.medium.ok_or(Reason::OtherLink)?;
        let ingress = Ingress(self.interfaces_before + record.interface);
        let is_cut = record.data.len() < record.original_len as usize;
        match Frame::copy(record.data, medium, ingress, &mut self.gateway.output_mut(ONLY).pool) {
            // A length that the sender left out cannot be told from a frame that is not all here.
            Ok(packet) if packet.ip().length_missing && is_cut => {
                self.gateway.done(ONLY, packet);
                Err(Reason::SnapCut)
            }
            Ok(packet) => Ok(packet),
            Err(CopyError::Unparsed(ParseError::Truncated)) if is_cut => Err(Reason::SnapCut),
            Err(no_packet) => Err(no_packet.into()),
        }
    }

    /// Moves the clock; whatever became late until then leaves at the time it became late.
    fn advance<S: Sink>(&mut self, time: Time, sink: &mut S) -> Result<(), S::Error> {
        let until = self.clock.reading(time);
        while let Some(deadline) = self.gateway.next_deadline().filter(|deadline| *deadline <= until) {
            self.clock.now = self.clock.now.max(deadline);
            self.gateway.expire(self.clock.now);
            self.drain(None, sink)?;
        }
        self.clock.set(time);
        Ok(())
    }

    /// Lets go of everything that is held.
    fn release<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.gateway.flush(self.clock.now);
        self.drain(None, sink)
    }

    /// Writes what the engine lets go.
    fn drain<S: Sink>(&mut self, current: Option<&Record<'_>>, sink: &mut S) -> Result<(), S::Error> {
        while let Some(direction) = self.gateway.next(ONLY) {
            let packet = match direction {
                Egress::Forward(packet) | Egress::IcmpReply(packet) => packet,
                Egress::PassThrough(_, unfit) => panic!("what carries no packet went past the engine: {unfit:?}"),
            };
            match current {
                Some(record) if packet.is_as_received() && packet.tag == record.number => {
                    self.output.count(record.data.len(), packet.len());
                    sink.copy(record)?;
                    self.forget_options(record.number);
                }
                _ => {
                    let interface = packet.ingress().0 - self.interfaces_before;
                    // What a packet set free has its time; what time set free, the clock's.
                    let time = current.and_then(|record| record.time).unwrap_or_else(|| self.clock.stamp());
                    if packet.is_as_received() {
                        self.output.count(packet.frame().len(), packet.len());
                        sink.delayed(interface, time, &packet, self.options_of(packet.tag))?;
                    } else {
                        self.output.count_fragments(&packet);
                        sink.packet(interface, time, &packet)?;
                    }
                }
            }
            self.gateway.done(ONLY, packet);
        }
        Ok(())
    }
}

/// The one side that all leaves by, for a port that takes single packets.
fn side(settings: &Settings) -> SideSettings {
    let Stages { reassemble, join, coalesce, segment, fragment } = settings.stages;
    let how = match (join, reassemble) {
        (Some(join), _) => join,
        (None, Toggle::On) => FragmentPolicy::Reassemble,
        (None, Toggle::Off) => FragmentPolicy::Off,
    };
    let joins = match settings.join_for.as_slice() {
        [] => Prefixes::new(how),
        named => named.iter().fold(Prefixes::new(FragmentPolicy::Off), |joins, prefix| joins.with(*prefix, how)),
    };
    let (position, answer_from) = match settings.role {
        As::Host => (Position::Source, None),
        As::Transit { answer_from } => (Position::Transit, Some(answer_from)),
    };
    let timeout = settings.limits.timeout;
    SideSettings {
        memory: settings.limits.bytes,
        joins,
        fragment_timeout: timeout.or((position == Position::Transit).then_some(TRANSIT_TIMEOUT)),
        join_timeout: timeout.unwrap_or(JOIN_TIMEOUT),
        // Nothing is received anywhere but in the order of the file.
        placement: PlacementMode::Never,
        coalesce,
        hold: settings.hold,
        exempt: settings.exempt.clone(),
        segment,
        fragment,
        fill: settings.fill,
        segment_size: [SegmentSize::Maximise; 2],
        id_lifetime: settings.lifetime,
        answer_from,
        ..SideSettings::new(settings.mtu, position)
    }
}

impl Clock {
    /// What the engine's clock says at a time of the capture, if the capture's neither leapt nor went back.
    fn reading(&self, time: Time) -> Time {
        let nanos = i128::from(time.nanos()) + self.shift;
        Time::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }

    /// Moves to a time of the capture. Times behind the clock do not move it, as they stand where captures were merged;
    /// where they go on, the capture's clock went back, and the two part. So they do at a leap over any patience.
    fn set(&mut self, time: Time) {
        let reading = self.reading(time);
        if reading >= self.now {
            self.behind_since = None;
            self.now = reading.min(self.now + LEAP);
        } else {
            let first = self.behind_since.filter(|first| *first <= time).unwrap_or(time);
            self.behind_since = (time.since(first) < LASTING).then_some(first);
        }
        if reading > self.now || reading < self.now && self.behind_since.is_none() {
            self.shift = i128::from(self.now.nanos()) - i128::from(time.nanos());
        }
    }

    /// The capture's time.
    fn stamp(&self) -> Time {
        let nanos = i128::from(self.now.nanos()) - self.shift;
        Time::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

impl Traffic {
    /// Upper bounds of the histogram's bars, in bytes: sizes that networks have made usual.
    pub const BOUNDS: [usize; 12] =
        [68, 128, 256, 576, 1_280, 1_500, 4_352, 9_000, 16_384, 32_768, 65_535, usize::MAX];

    fn count(&mut self, frame_len: usize, packet_len: usize) {
        self.frames += Tally::new(1, frame_len);
        let bar = Traffic::BOUNDS.iter().position(|bound| packet_len <= *bound);
        if let Some(count) = bar.and_then(|bar| self.histogram.get_mut(bar)) {
            *count += 1;
        }
    }

    fn count_fragments(&mut self, packet: &Packet) {
        packet.each_wire_len(|len| self.count(packet.link().len() + len, len));
    }
}

/// Pool beyond the limit of what is held, in bytes: packets that came and packets that leave.
const POOL_EXTRA: usize = 16 << 20;
/// What the options of a record are charged beside their bytes: their places in memory.
const OPTIONS_CHARGE: usize = 64;
/// Options that are kept for when their packets leave, in bytes: more than belong to what is held within the usual waits.
const OPTIONS_LEN_MAX: usize = 16 << 20;
/// Longer than any patience that can be asked for: after it, nothing is held from before.
const LEAP: Duration = Duration::from_secs(7_200);
/// Longer than merged captures and several queues give times of one source in a row, while another's are ahead.
const LASTING: Duration = Duration::from_millis(200);
/// The direction in which all of a capture goes.
const ONLY: usize = 0;
