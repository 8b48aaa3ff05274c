//! A capture -> the same traffic with other packet sizes.
//!
//! Packets are processed in the order of the file, with limited memory. The engine's clock follows the capture's
//! clock. Before a packet is pushed, overdue entries time out at their own deadlines. The engine's clock never goes
//! back and never jumps. If the capture's clock goes back or jumps, an offset between both clocks compensates.
//! Output packets have times of the capture's clock.

use capture::{Item, Reader, Record};
use core::net::IpAddr;
use core::time::Duration;
use engine::{
    Batch, Egress, Exempt, FragmentPolicy, Gateway, GatewaySettings, Holding, Ledger, Limits, MERGE_TIMEOUT, Mode,
    PlacementMode, Position, Prefix, Prefixes, Reason, Secret, Secrets, SegmentPolicy, SegmentSize, SideSettings,
    TRANSIT_TIMEOUT, Tally, Toggle,
};
use packet::{CopyError, Frame, Ingress, Packet, ParseError, Pool, Split, Time};
use std::collections::VecDeque;
use std::io::Read;

/// The settings of a rewrite.
#[derive(Clone, Debug)]
pub struct Settings {
    /// MTU of the output: length of the longest output packet, in bytes.
    pub mtu: u16,
    /// Role of the rewrite in the packets' path.
    pub role: As,
    /// The enabled stages.
    pub stages: Stages,
    /// Destinations whose fragments are reassembled or merged; empty for all destinations.
    pub fragment_policy_for: Vec<Prefix>,
    /// Treatment of TCP segments that exceed the MTU.
    pub segment_policy: SegmentPolicy,
    /// Flows whose segments are never held, never coalesced and never longer than the MTU.
    pub exempt: Vec<Exempt>,
    /// Maximum wait of a segment for the next segment of its flow.
    pub hold: Holding,
    /// Division of the payload among fragments.
    pub split: Split,
    /// Limits of memory and time for held packets.
    pub limits: Limits,
    /// Longest lifetime of a datagram. No IPv4 ID is reused sooner.
    pub lifetime: Duration,
    /// Seed of all random choices that are visible in the output.
    pub seed: Secret,
    /// Key of the hash tables. The key does not affect the output.
    pub table_key: Secret,
}

/// The stages of a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Reassembly of datagrams.
    pub reassemble: Toggle,
    /// Policy for fragments in transit; `None` if fragments stay as they are.
    pub fragment_policy: Option<FragmentPolicy>,
    /// Mode of coalescing TCP segments; `None` if segments are not coalesced.
    pub coalesce: Option<Mode>,
    /// Segmentation of TCP packets.
    pub segment: Toggle,
    /// Fragmentation of packets that exceed the MTU.
    pub fragment: Toggle,
}

/// The role of the rewrite in the packets' path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// A host with a wide interface, which receives the packets itself.
    Host,
    /// A router or a border, which forwards the packets.
    Transit {
        /// Source addresses of ICMP errors: IPv4, then IPv6.
        icmp_source: [IpAddr; 2],
    },
}

/// The destination of a rewritten capture.
pub trait Sink {
    /// Error of writing to the destination.
    type Error;

    /// Writes an item without a packet, such as the description of an interface. Its bytes do not change.
    fn structure(&mut self, item: &Item<'_>) -> Result<(), Self::Error>;

    /// Writes a packet unchanged.
    fn copy(&mut self, record: &Record<'_>) -> Result<(), Self::Error>;

    /// Writes a packet that was held and not changed. The packet gets a later time, and keeps the options of its
    /// record.
    fn delayed(&mut self, interface: u32, time: Time, packet: &Packet, options: &[u8]) -> Result<(), Self::Error>;

    /// Writes a packet that the engine made, with its time and its ingress interface (by number in the section).
    fn packet(&mut self, interface: u32, time: Time, packet: &Packet) -> Result<(), Self::Error>;
}

/// The reason why a rewrite ended before the end of its input.
#[derive(Debug)]
pub enum Stop<E> {
    /// The input is damaged. Its readable part was written.
    Input(capture::Error),
    /// The sink cannot write.
    Sink(E),
    /// The caller stopped the rewrite.
    Interrupted,
}

/// The results of a rewrite.
#[derive(Debug)]
pub struct Outcome {
    /// The counters of all packets and events.
    pub ledger: Ledger,
    /// Frames of the input.
    pub input: Traffic,
    /// Frames of the output.
    pub output: Traffic,
    /// The first packet that the capture contains only in part; `None` if there is none.
    pub snap_cut: Option<CapturePosition>,
}

/// Position of a packet in its capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CapturePosition {
    /// Number of the packet, from 1.
    pub packet: u64,
    /// Offset of the packet in the decompressed file, in bytes.
    pub offset: u64,
}

/// Counters of a capture's frames, and of the lengths of their packets.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Number of frames, and their bytes as captured.
    pub frames: Tally,
    /// Number of packets by length. Each entry counts the packets up to a bound of [`Traffic::BOUNDS`] and above
    /// the previous bound.
    pub histogram: [u64; Traffic::BOUNDS.len()],
}

/// The state of a running rewrite.
#[derive(Debug)]
struct Rewriter {
    gateway: Gateway,
    batch: Batch,
    clock: Clock,
    /// Number of interfaces in earlier sections. It is added to interface numbers, so that each interface has an
    /// ingress of its own.
    interfaces_before: u32,
    interfaces_here: u32,
    input: Traffic,
    output: Traffic,
    snap_cut: Option<CapturePosition>,
    /// Options of records whose packets are held, by record number. If the options exceed their memory limit, the
    /// oldest are dropped.
    options: VecDeque<(u64, Box<[u8]>)>,
    options_len: usize,
}

/// The engine's clock, and the clock's offset from the capture's clock.
#[derive(Debug, Default)]
struct Clock {
    now: Time,
    /// The engine's time minus the capture's time, in nanoseconds.
    shift: i128,
    /// Start of the current sequence of capture times that are before the engine's time; `None` if the last capture
    /// time was not before it.
    behind_since: Option<Time>,
}

/// Rewrites all packets from `reader` to `sink`, as long as `goes_on` returns true. The function `goes_on` receives
/// the number of bytes read so far.
///
/// The outcome includes all packets that were read, even if the rewrite ended early.
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
    // An incomplete output matters more than an input error.
    (Outcome { ledger: gateway.ledger(ONLY).clone(), input, output, snap_cut }, flushed.and(ended))
}

impl Rewriter {
    fn new(settings: &Settings) -> Rewriter {
        let secrets = Secrets { seed: settings.seed, table_key: settings.table_key };
        // An evicted packet keeps its buffer until it is written. So an arriving packet needs a buffer beyond the
        // limit.
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
            // Interface numbers are valid in one section only, so held packets are released before the next
            // section.
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

    /// Processes one record. IP packets are given to the engine; all other records bypass it.
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
                    self.snap_cut.get_or_insert(CapturePosition { packet: record.number, offset: record.offset });
                }
                self.input.count(record.data.len(), record.data.len());
                self.gateway.output_mut(ONLY).ledger.pass(reason, record.data.len());
                if !matches!(reason, Reason::NotIp | Reason::OtherLink) {
                    // The frame may belong to any flow, and must not overtake that flow's held packets.
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

    /// Drops the stored options of a packet that was just written together with its record.
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
        let link_type = record.link_type.ok_or(Reason::OtherLink)?;
        let ingress = Ingress(self.interfaces_before + record.interface);
        let is_cut = record.data.len() < record.original_len as usize;
        match Frame::copy(record.data, link_type, ingress, &mut self.gateway.output_mut(ONLY).pool) {
            // A missing length field cannot be distinguished from a truncated frame.
            Ok(packet) if packet.ip().length_missing && is_cut => {
                self.gateway.recycle(ONLY, packet);
                Err(Reason::SnapCut)
            }
            Ok(packet) => Ok(packet),
            Err(CopyError::Unparsed(ParseError::Truncated)) if is_cut => Err(Reason::SnapCut),
            Err(no_packet) => Err(no_packet.into()),
        }
    }

    /// Advances the clock to this capture time. Each overdue entry times out at its own deadline.
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

    /// Releases and writes all held packets.
    fn release<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.gateway.flush(self.clock.now);
        self.drain(None, sink)
    }

    /// Writes the packets that the engine has finished.
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
                    // Output caused by a packet has that packet's time. Output caused by a deadline has the time of
                    // the clock.
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
            self.gateway.recycle(ONLY, packet);
        }
        Ok(())
    }
}

/// Returns the settings of the gateway's only side, for a port without offloads.
fn side(settings: &Settings) -> SideSettings {
    let Stages { reassemble, fragment_policy, coalesce, segment, fragment } = settings.stages;
    let how = match (fragment_policy, reassemble) {
        (Some(policy), _) => policy,
        (None, Toggle::On) => FragmentPolicy::Reassemble,
        (None, Toggle::Off) => FragmentPolicy::Off,
    };
    let policies = match settings.fragment_policy_for.as_slice() {
        [] => Prefixes::new(how),
        named => {
            named.iter().fold(Prefixes::new(FragmentPolicy::Off), |policies, prefix| policies.with(*prefix, how))
        }
    };
    let (position, icmp_source) = match settings.role {
        As::Host => (Position::Source, None),
        As::Transit { icmp_source } => (Position::Transit, Some(icmp_source)),
    };
    let timeout = settings.limits.timeout;
    SideSettings {
        memory: settings.limits.bytes,
        policies,
        fragment_timeout: timeout.or((position == Position::Transit).then_some(TRANSIT_TIMEOUT)),
        merge_timeout: timeout.unwrap_or(MERGE_TIMEOUT),
        // Packets are received in the order of the file, so there is nothing to predict.
        placement: PlacementMode::Never,
        coalesce,
        hold: settings.hold,
        exempt: settings.exempt.clone(),
        segment_policies: Prefixes::new(settings.segment_policy),
        segment,
        fragment,
        split: settings.split,
        segment_size: [SegmentSize::Maximise; 2],
        id_lifetime: settings.lifetime,
        icmp_source,
        ..SideSettings::new(settings.mtu, position)
    }
}

impl Clock {
    /// Returns the engine's time for a time of the capture, with the current offset.
    fn reading(&self, time: Time) -> Time {
        let nanos = i128::from(time.nanos()) + self.shift;
        Time::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }

    /// Moves the clock to a time of the capture. Earlier times do not move the clock, because merged captures
    /// contain times out of order. If all times stay earlier for [`LASTING`], the capture's clock went back, and
    /// the offset changes. The offset also changes at a jump beyond every time-out.
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

    /// Returns the current time on the capture's clock.
    fn stamp(&self) -> Time {
        let nanos = i128::from(self.now.nanos()) - self.shift;
        Time::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

impl Traffic {
    /// Upper bounds of the histogram's bars, in bytes. They are common packet sizes.
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

/// Size of the pool in addition to the limit of held bytes, for input and output packets, in bytes.
const POOL_EXTRA: usize = 16 << 20;
/// Memory counted for a record's options in addition to their own length, in bytes.
const OPTIONS_CHARGE: usize = 64;
/// Memory limit of stored options, in bytes. The options of packets that are held within the default time-outs need
/// less.
const OPTIONS_LEN_MAX: usize = 16 << 20;
/// Longest step of the engine's clock; a longer step of the capture's clock is a jump. This step exceeds all
/// time-outs that can be configured, so no packet from before the jump is still held.
const LEAP: Duration = Duration::from_secs(7_200);
/// Time after which the capture's clock counts as set back. In merged captures, the times of one source stay behind
/// those of another for a shorter time.
const LASTING: Duration = Duration::from_millis(200);
/// The only direction of the gateway.
const ONLY: usize = 0;
