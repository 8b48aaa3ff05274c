//! Frames of an attack -> a gateway's output, with checks of the laws after every frame.
//!
//! The gateway runs the real engine, with settings as in scene files. Unrelated background traffic is mixed with
//! the attack: datagrams in two fragments, and a stream of segments. All background traffic must be delivered
//! unchanged.

use super::background::BackgroundTraffic;
use super::craft;
use crate::address;
use crate::gateway::{settings, timeout};
use crate::rng::Rng;
use crate::topology::Gateway;
use crate::wire;
use core::ops::Range;
use core::time::Duration;
use engine::{
    Batch, Egress as Leaving, Event, Gateway as Engine, Ledger, Reason, Secret, Secrets, Side, Tally, Toward,
    WirePackets,
};
use packet::{Frame, Ingress, Ip, Link, LinkType, Packet, Pool, Time};
use std::borrow::Cow;

/// A gateway under attack, with its background traffic.
pub struct Rig {
    engine: Engine,
    batch: Batch,
    /// The directions toward the narrow side and toward the wide side.
    directions: [RigDirection; 2],
    now: Time,
    /// Link type of the attack's frames.
    pub link_type: LinkType,
    /// Ingress port number of the attack's frames.
    pub ingress: u32,
    /// Whether all packets of the attack have correct transport checksums. If so, the output must, too.
    pub has_right_sums: bool,
    /// Number of packets sent by the attack.
    pub packets: u64,
    background: Option<BackgroundTraffic>,
    /// Random numbers for burst sizes.
    rng: Rng,
    left: Vec<SentFrame>,
    bytes: Vec<u8>,
}

/// One direction of the gateway.
struct RigDirection {
    mtu: usize,
    timeout: Duration,
    limit: usize,
    came: Tally,
    put_count: u64,
    since_walk: usize,
    walk_len: usize,
}

/// A packet transmitted since the last `push`.
#[derive(Clone, Debug)]
struct SentFrame {
    is_answer: bool,
    at: Range<usize>,
}

/// A transmitted packet.
#[derive(Clone, Copy, Debug)]
pub struct Out<'a> {
    /// Whether the packet is an ICMP error of the gateway itself.
    pub is_answer: bool,
    /// The packet's bytes from its IP header on.
    pub frame: &'a [u8],
}

/// Success, or the description of a violation.
pub type Verdict = Result<(), String>;

impl Rig {
    /// A gateway between a wide and a narrow link with these MTUs, in bytes.
    pub fn new(config: &Gateway, mtus: [u16; 2], seed: u64) -> Rig {
        let secret = Secret::new(u128::from(seed) << 64 | 0x5EED);
        let directions = [Toward::Narrow, Toward::Wide].map(|toward| RigDirection {
            mtu: usize::from(if toward == Toward::Wide { mtus[0] } else { mtus[1] }),
            timeout: timeout(config, toward),
            limit: config.limit,
            came: Tally::NONE,
            put_count: 0,
            since_walk: 0,
            walk_len: 0,
        });
        let mut settings = settings(config, mtus, None, None);
        settings.sides.iter_mut().for_each(|side| side.icmp_source = Some(address::answering(9)));
        Rig {
            engine: Engine::new(&settings, Secrets::both(secret), || Pool::new(config.pool)),
            batch: Batch::default(),
            directions,
            now: Time::ZERO,
            link_type: LinkType::Ip,
            ingress: 0,
            has_right_sums: true,
            packets: 0,
            background: None,
            rng: Rng::new(seed),
            left: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Adds background traffic after every `every` packets of the attack.
    pub fn among_bystanders(mut self, every: u64) -> Rig {
        self.background = Some(BackgroundTraffic::new(every));
        self
    }

    /// Processes an attack frame at time `at`, in the direction `toward`.
    pub fn push(&mut self, at: Duration, toward: Toward, frame: &[u8]) -> Verdict {
        self.push_burst(at, toward, [frame])
    }

    /// Processes several attack frames at the same time.
    pub fn push_burst<'a>(
        &mut self,
        at: Duration,
        toward: Toward,
        frames: impl IntoIterator<Item = &'a [u8]>,
    ) -> Verdict {
        self.forget();
        self.pass_time(at)?;
        let ingress = Ingress(self.ingress << 1 | toward as u32);
        let mut bystanders = self.background.take();
        let is_shared = (toward, self.link_type) == (Toward::Wide, LinkType::Ip);
        let (mut burst, mut others) = (Vec::new(), Vec::new());
        for frame in frames {
            self.packets += 1;
            burst.push((ingress, Cow::Borrowed(frame)));
            let beside = if is_shared { &mut burst } else { &mut others };
            if let Some(bystanders) = &mut bystanders {
                bystanders.each_due(|frame| beside.push((Ingress(7), Cow::Owned(frame))));
            }
        }
        self.take(toward, self.link_type, &burst)?;
        self.take(Toward::Wide, LinkType::Ip, &others)?;
        let Some(mut bystanders) = bystanders else { return Ok(()) };
        let arrived = self.bystanders_take(&mut bystanders);
        self.background = Some(bystanders);
        arrived
    }

    /// Processes frames in bursts of random size, with a mean interval of `gap` per frame. Returns all transmitted
    /// packets except ICMP errors.
    pub fn push_all<'a>(
        &mut self,
        at: Duration,
        gap: Duration,
        toward: Toward,
        frames: impl IntoIterator<Item = &'a Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut left = Vec::new();
        let mut frames = frames.into_iter().map(Vec::as_slice).peekable();
        let mut came_count = 0;
        while frames.peek().is_some() {
            let count = self.rng.one_of(&BURSTS);
            let burst = frames.by_ref().take(count);
            self.push_burst(at + gap * came_count as u32, toward, burst)?;
            came_count += count;
            left.extend(self.left().filter(|out| !out.is_answer).map(|out| out.frame.to_vec()));
        }
        self.rest()?;
        left.extend(self.left().filter(|out| !out.is_answer).map(|out| out.frame.to_vec()));
        Ok(left)
    }

    /// Flushes packets that are held only while more frames arrive. Earlier output is discarded.
    pub fn rest(&mut self) -> Verdict {
        self.forget();
        for toward in BOTH {
            self.engine.release(self.now, toward.direction());
            self.drain(toward)?;
        }
        self.give_to_bystanders()
    }

    /// Advances the time to `at`. Time-outs are handled at their exact times.
    pub fn wait_until(&mut self, at: Duration) -> Verdict {
        self.forget();
        self.pass_time(at)?;
        self.give_to_bystanders()
    }

    /// Packets transmitted since the last `push`, without background traffic.
    pub fn left(&self) -> impl Iterator<Item = Out<'_>> {
        self.left.iter().map(|left| Out { is_answer: left.is_answer, frame: &self.bytes[left.at.clone()] })
    }

    /// The ledger of the direction toward this side.
    pub fn ledger(&self, toward: Toward) -> &Ledger {
        self.engine.ledger(toward.direction())
    }

    /// Number of packets toward the wide side dropped for this reason.
    pub fn retired(&self, reason: Reason) -> u64 {
        self.ledger(Toward::Wide).retired(reason).packets
    }

    /// Number of packets toward the wide side forwarded unparsed for this reason.
    pub fn passed(&self, reason: Reason) -> u64 {
        self.ledger(Toward::Wide).passed(reason).packets
    }

    /// Number of occurrences of this event toward the wide side.
    pub fn event(&self, event: Event) -> u64 {
        self.ledger(Toward::Wide).event(event).packets
    }

    /// Memory charged to the stages toward the wide side, in bytes.
    pub fn charged(&self) -> usize {
        self.wide_side().aggregation.charged()
    }

    /// Memory charged to a border's connections, host pairs and paths, in bytes.
    pub fn charged_for_connections(&self) -> usize {
        self.engine.connections().map_or(0, |known| known.charged())
    }

    /// Number of packets and of buffers held toward the wide side.
    pub fn held(&self) -> (u64, usize) {
        let (held, buffers) = self.engine.held(Toward::Wide.direction());
        (held.packets, buffers)
    }

    /// The engine's state for packets toward the wide side.
    pub fn wide_side(&self) -> &Side {
        self.engine.side(Toward::Wide.direction())
    }

    /// Finishes the attack. Checks that all held packets are flushed, all buffers are returned, and all background
    /// traffic was delivered.
    pub fn end(&mut self) -> Verdict {
        self.rest()?;
        self.engine.flush(self.now);
        for toward in BOTH {
            self.drain(toward)?;
        }
        self.give_to_bystanders()?;
        for direction in BOTH.map(Toward::direction) {
            let (held, buffers) = self.engine.held(direction);
            let lent = self.engine.output(direction).pool.in_use_count();
            if held != Tally::NONE || buffers + lent > 0 {
                return Err(format!(
                    "{held:?} in {buffers} buffers are never released; {lent} buffers remain in use"
                ));
            }
            self.engine.check(direction)?;
        }
        self.background.as_ref().map_or(Ok(()), BackgroundTraffic::check_end)
    }

    fn forget(&mut self) {
        self.left.clear();
        self.bytes.clear();
    }

    fn pass_time(&mut self, at: Duration) -> Verdict {
        let at = Time::ZERO + at;
        while let Some(deadline) = self.engine.next_deadline().filter(|deadline| *deadline <= at) {
            self.now = self.now.max(deadline);
            self.engine.expire(self.now);
            let again = self.engine.next_deadline();
            for toward in BOTH {
                self.drain(toward)?;
            }
            if again.is_some_and(|again| again <= deadline) {
                return Err(format!("an entry with deadline {deadline} is still held after it expired"));
            }
        }
        self.now = self.now.max(at);
        self.engine.expire(self.now);
        Ok(())
    }

    /// Processes frames that arrive at the same time, as one batch.
    fn take(&mut self, toward: Toward, link_type: LinkType, burst: &[(Ingress, Cow<'_, [u8]>)]) -> Verdict {
        if burst.is_empty() {
            return Ok(());
        }
        let Rig { engine, batch, directions, now, .. } = self;
        let direction = toward.direction();
        let came = &mut directions[direction].came;
        let (mut places, pool) = engine.places(direction);
        for (ingress, frame) in burst {
            let split_count = batch.split.len();
            batch.receive(frame, link_type, *ingress, places.as_mut(), pool);
            if let Some(split) = batch.split.get_mut(split_count) {
                let link_len = Link::parse(link_type, frame).map_or(0, |link| link.len);
                if let Ok(ip) = Ip::parse(&frame[link_len..]) {
                    *came += Tally::new(1, ip.payload_len());
                }
                split.mark(now.nanos() + 1, false);
            }
        }
        for frame in &mut batch.frames {
            let Frame::Ip(packet) = frame else { continue };
            *came += Tally::new(1, packet.ip().payload_len());
            packet.tag = now.nanos() + 1;
        }
        engine.push(*now, direction, batch);
        self.drain(toward.other())?;
        self.drain(toward)
    }

    fn drain(&mut self, toward: Toward) -> Verdict {
        let direction = toward.direction();
        while let Some(leaving) = self.engine.next(direction) {
            let (packet, is_answer) = match leaving {
                Leaving::Forward(packet) => (packet, false),
                Leaving::IcmpReply(packet) => (packet, true),
                Leaving::PassThrough(raw, unfit) => {
                    let out = self.engine.output_mut(direction);
                    out.ledger.pass(unfit.into(), raw.frame().len());
                    out.pool.give(raw.into_buffer());
                    continue;
                }
            };
            let seen = self.emit(toward, &packet, is_answer);
            self.engine.recycle(direction, packet);
            seen?;
        }
        self.directions[direction].check(&self.engine, direction)
    }

    /// Checks law 1, and that an independent parser accepts the output and its checksums.
    fn emit(&mut self, toward: Toward, packet: &Packet, is_answer: bool) -> Verdict {
        let Rig { directions, now, left, bytes, has_right_sums, .. } = self;
        let direction = &mut directions[toward.direction()];
        let age = Duration::from_nanos((now.nanos() + 1).saturating_sub(packet.tag));
        if packet.tag > 0 && age > direction.timeout {
            return Err(format!("a packet was held for {age:?}; the limit is {:?}", direction.timeout));
        }
        let mut fragments = WirePackets::of(packet);
        while let Some(fragment) = fragments.next() {
            let start = bytes.len();
            bytes.extend(fragment.header.iter().chain(fragment.payload).skip(packet.link_len()));
            let frame = &bytes[start..];
            direction.put_count += u64::from(!is_answer);
            if frame.len() > direction.mtu && !is_answer {
                return Err(format!(
                    "a packet of {} bytes leaves for a link with MTU {}",
                    frame.len(),
                    direction.mtu
                ));
            }
            let Some(seen) = wire::read(frame) else {
                return Err(format!(
                    "a packet that leaves cannot be parsed: {:02x?}",
                    &frame[..frame.len().min(60)]
                ));
            };
            if *has_right_sums && !craft::is_sum_right(frame, &seen) {
                return Err(format!("a wrong checksum leaves: {:02x?}", &frame[..frame.len().min(80)]));
            }
            if seen.end != frame.len() && !packet.is_as_received() {
                return Err(format!("a header has length {} in a packet of {} bytes", seen.end, frame.len()));
            }
            left.push(SentFrame { is_answer, at: start..bytes.len() });
        }
        Ok(())
    }

    /// Checks the transmitted background packets, and removes them from the attack's output.
    fn bystanders_take(&mut self, bystanders: &mut BackgroundTraffic) -> Verdict {
        let Rig { now, left, bytes, .. } = self;
        let mut outcome = Ok(());
        left.retain(|left| {
            let frame = &bytes[left.at.clone()];
            let is_theirs = BackgroundTraffic::is_of_them(frame);
            if is_theirs && outcome.is_ok() {
                let seen = wire::read(frame).ok_or_else(|| "a background packet cannot be parsed".to_owned());
                outcome = seen.and_then(|seen| bystanders.take(*now, frame, &seen));
            }
            !is_theirs
        });
        outcome
    }

    fn give_to_bystanders(&mut self) -> Verdict {
        let Some(mut bystanders) = self.background.take() else { return Ok(()) };
        let outcome = self.bystanders_take(&mut bystanders);
        self.background = Some(bystanders);
        outcome
    }
}

impl RigDirection {
    /// Checks laws 2 and 6: every received packet is transmitted, dropped or held, and no stage exceeds its memory
    /// limit.
    fn check(&mut self, engine: &Engine, direction: usize) -> Verdict {
        let ledger = engine.ledger(direction);
        if self.came != ledger.received {
            return Err(format!("{:?} arrived, but the ledger counts {:?}", self.came, ledger.received));
        }
        let forwarded = ledger.forwarded.packets;
        if self.put_count != forwarded {
            return Err(format!("{} packets left, but the ledger counts {forwarded}", self.put_count));
        }
        let charges = engine.side(direction).aggregation.charges();
        if charges.iter().any(|charged| *charged > self.limit) {
            return Err(format!("the stages hold {charges:?} bytes; the limit of each is {}", self.limit));
        }
        if let Some([charged, limit]) = engine.connections().map(|known| [known.charged(), known.limit()])
            && charged > limit
        {
            return Err(format!("connections are charged {charged} bytes; the limit is {limit}"));
        }
        self.since_walk += 1;
        if self.since_walk >= self.walk_len {
            // A poisoned key is charged 512 bytes and has no buffer. The next recount follows after as many checks
            // as there may be poisoned keys.
            let poisoned = charges.iter().sum::<usize>() / 512;
            (self.since_walk, self.walk_len) = (0, poisoned);
            engine.check(direction)?;
        }
        Ok(())
    }
}

/// Both sides of a gateway.
const BOTH: [Toward; 2] = [Toward::Wide, Toward::Narrow];
/// Possible numbers of frames in a burst, one of which is chosen at random.
const BURSTS: [usize; 6] = [1, 1, 1, 2, 5, 64];
