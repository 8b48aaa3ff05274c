//! Floods of fragments in, how many good datagrams still become whole out: beside them, those of the live kernel.
//!
//! Good datagrams come in two pieces, at most half a millisecond apart, through a flood of first pieces that never become
//! whole. The kernel's reassembler and the engine's may each hold 4 MiB. Two systems are live: pieces are written to a TUN device,
//! those of the first two floods as fast as it takes them, those of the slow drip at its own pace. The kernel behind it either
//! joins them for its own socket, or forwards them by another device to the engine, which joins them and writes what becomes whole
//! to a host with such a socket. All of it is done by one thread, so no queue overflows, and what is lost is lost by who joins. A
//! third is simulated, by the engine alone: two million pieces a second, the drip again at its own pace.
//!
//! The slow drip needs patience: the kernel's table fills in some 12 seconds of 150 pieces a second, and is full from there on,
//! as 30 seconds pass until it gives one up. So the pieces of 20 seconds come first, at once, and good datagrams only after them,
//! while it goes on dripping.

use super::Conditions;
use super::forwarder::{Forwarder, Treats};
use super::wire::{self, Filled, Ip, Upper, put_content, put_ip, put_upper, v4_destination, v6_destination};
use crate::net::Host;
use engine::{
    Batch, Gateway, GatewaySettings, Join, Late, Pieces, Position, Prefixes, Secret, Secrets, SideSettings, Way,
};
use fastrand::Rng;
use linux::addresses::Prefix;
use linux::clock::Clock;
use linux::routes::Route;
use packet::{Frame, Ingress, Medium, NoPacket, Packet, Pool, Time, Version};
use port::{Kind, Offloads, Options, Port, Tap, ToDo, Wire};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

/// How long each flood lasts.
#[derive(Clone, Copy, Debug)]
pub struct FloodsSettings {
    /// Of live floods.
    pub live: Duration,
    /// Of simulated ones, in their own time.
    pub simulated: Duration,
    /// Of the simulated drip: longer than the patience with a datagram, for that is what it wants to use up.
    pub drip: Duration,
    /// What sources and lengths are drawn from.
    pub seed: u64,
}

impl Default for FloodsSettings {
    fn default() -> FloodsSettings {
        FloodsSettings {
            live: Duration::from_secs(12),
            simulated: Duration::from_secs(6),
            drip: Duration::from_secs(90),
            seed: 0,
        }
    }
}

/// What it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Floods {
    /// Under which conditions.
    pub conditions: Conditions,
    /// A row for each flood, version and system.
    pub rows: Vec<FloodRow>,
}

/// One flood.
#[derive(Clone, Debug, Serialize)]
pub struct FloodRow {
    /// Which.
    pub flood: Flood,
    /// Of which version, 4 or 6.
    pub version: u8,
    /// Who joins.
    pub system: Joins,
    /// Pieces of the flood in a second.
    pub rate: f64,
    /// Good datagrams that were sent.
    pub sent: u64,
    /// Of these, those that arrived whole.
    pub whole: u64,
    /// Good datagrams whose pieces were further apart, for the machine was busy; they are not counted.
    pub set_aside: u64,
    /// Most bytes that the engine held after a piece; none: nobody knows.
    pub held_max: Option<usize>,
    /// What share of them is to arrive; none: nothing is asked of the kernel.
    pub wanted: Option<f64>,
}

/// What comes beside good datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flood {
    /// First pieces from everywhere.
    FirstPieces,
    /// First pieces from a thousand sources; good ones come from others.
    ThousandSources,
    /// First pieces, 150 a second.
    Drip,
}

/// Who joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joins {
    /// The live kernel, behind a TUN device.
    Kernel,
    /// The engine, behind a TUN device.
    Engine,
    /// The engine, in simulated time.
    Simulated,
}

/// Writes all floods, and tells each before it begins.
///
/// # Errors
/// What is missing on this machine, and what to do.
pub fn floods(settings: &FloodsSettings, mut tell: impl FnMut(&str)) -> io::Result<Floods> {
    let conditions = Conditions::here(1);
    let mut rows = Vec::new();
    for flood in [Flood::FirstPieces, Flood::ThousandSources, Flood::Drip] {
        for version in [Version::V4, Version::V6] {
            for system in [Joins::Kernel, Joins::Engine, Joins::Simulated] {
                tell(&format!("{flood}, {version:?}, {system}"));
                rows.push(row(settings, flood, version, system)?);
            }
        }
    }
    Ok(Floods { conditions, rows })
}

fn row(settings: &FloodsSettings, flood: Flood, version: Version, system: Joins) -> io::Result<FloodRow> {
    let load = || Load::new(flood, version, settings.seed);
    let mut row = match system {
        Joins::Kernel => seen(|| live(&mut load(), settings.live, &mut Kernel::open(version)?))?,
        Joins::Engine => seen(|| live(&mut load(), settings.live, &mut Behind::open(version)?))?,
        Joins::Simulated if flood == Flood::Drip => simulated(&mut load(), settings.drip),
        Joins::Simulated => simulated(&mut load(), settings.simulated),
    };
    row.system = system;
    row.wanted = (system != Joins::Kernel).then_some(match flood {
        Flood::FirstPieces => 0.999,
        Flood::ThousandSources => 0.9999,
        Flood::Drip => 1.0,
    });
    Ok(row)
}

/// A row of a live flood, again where the machine was so busy that all good datagrams were set aside.
fn seen(mut live: impl FnMut() -> io::Result<FloodRow>) -> io::Result<FloodRow> {
    let mut row = live()?;
    for _ in 1..TRIES {
        if row.sent > 0 {
            break;
        }
        row = live()?;
    }
    Ok(row)
}

/// Makes the packets of a flood, and of good datagrams beside it.
struct Load {
    flood: Flood,
    version: Version,
    rng: Rng,
    piece: Vec<u8>,
    /// Pieces of the flood so far, and good datagrams.
    count: u64,
    good_count: u64,
    whole: Vec<u8>,
}

impl Load {
    fn new(flood: Flood, version: Version, seed: u64) -> Load {
        let rng = Rng::with_seed(seed);
        Load { flood, version, rng, piece: Vec::new(), count: 0, good_count: 0, whole: Vec::new() }
    }

    /// The next piece of the flood.
    fn next(&mut self) -> &[u8] {
        self.count += 1;
        let source = match self.flood {
            Flood::ThousandSources => FLOOD_SOURCE + self.count as u32 % 1_000,
            Flood::FirstPieces | Flood::Drip => FLOOD_SOURCE + self.rng.u32(..1 << 22),
        };
        let id = self.rng.u32(..);
        self.piece.clear();
        put_fragment(&mut self.piece, self.version, source, id, (0, true), |to| to.resize(to.len() + FLOOD_LEN, 7));
        &self.piece
    }

    /// The two pieces of the next good datagram.
    fn good(&mut self) -> [Vec<u8>; 2] {
        self.good_count += 1;
        let number = self.good_count;
        // Each of some sources sends many.
        let source = GOOD_SOURCE + (number % GOOD_SOURCES) as u32;
        let ip = header(self.version, source, 0);
        let upper = Upper {
            is_tcp: false,
            ports: [PORT, PORT],
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            urgent: 0,
            options: wire::Options::None,
        };
        self.whole.clear();
        put_upper(&mut self.whole, (&ip, &[], UDP), &upper, Filled::Right, |to| {
            to.extend(number.to_be_bytes());
            put_content(to, number as u32, 0, GOOD_LEN);
        });
        let content = &self.whole[if self.version == Version::V4 { 20 } else { 40 }..];
        let id = (number / GOOD_SOURCES) as u32;
        [(0, &content[..CUT], true), (CUT, &content[CUT..], false)].map(|(offset, part, more)| {
            let mut piece = Vec::new();
            put_fragment(&mut piece, self.version, source, id, (offset, more), |to| to.extend(part));
            piece
        })
    }
}

fn header(version: Version, source: u32, id: u32) -> Ip {
    Ip { version, source, destination: 1, class: 0, hops: 64, flow: 0, id: id as u16, flags_offset: 0 }
}

fn put_fragment(
    to: &mut Vec<u8>,
    version: Version,
    source: u32,
    id: u32,
    (offset, more): (usize, bool),
    content: impl FnOnce(&mut Vec<u8>),
) {
    let ip = header(version, source, id);
    match version {
        Version::V4 => {
            let flags_offset = (offset >> 3) as u16 | u16::from(more) << 13;
            put_ip(to, &Ip { flags_offset, ..ip }, &[], UDP, content);
        }
        Version::V6 => {
            let place = (offset as u16 | u16::from(more)).to_be_bytes();
            let front = [&[UDP, 0], &place[..], &id.to_be_bytes()].concat();
            put_ip(to, &ip, &front, FRAGMENT, content);
        }
    }
}

/// Somebody who joins behind a TUN device.
trait Target {
    fn write(&mut self, packet: &[u8]) -> io::Result<()>;
    /// Does what is to be done after some packets, and says which good datagrams have arrived since.
    fn arrived(&mut self, tell: &mut dyn FnMut(u64)) -> io::Result<()>;
    fn held_max(&self) -> Option<usize>;
}

/// The live kernel.
struct Kernel {
    _host: Host,
    tap: Tap,
    inbox: Inbox,
}

/// The engine behind the kernel's forwarding.
struct Behind {
    forwarder: Forwarder,
    rejoining: Rejoining,
    receiver: Kernel,
    frames: Vec<Frame>,
    clock: Clock,
}

/// The engine as a host's wide interface has it.
struct Rejoining {
    gateway: Gateway,
    batch: Batch,
    held_max: usize,
}

/// A socket that good datagrams are for.
struct Inbox {
    socket: UdpSocket,
    room: Vec<u8>,
    expected: Vec<u8>,
}

impl Kernel {
    fn open(version: Version) -> io::Result<Kernel> {
        let host = Host::new("receiver")?;
        for (name, value) in SETTINGS {
            host.space().set_sysctl(name, value)?;
        }
        let options = Options { mtu: Some(65_535), offloads: Offloads::default(), ..Options::default() };
        let tap = host.space().enter(|| Tap::open(DEVICE, Kind::Tun, &options))?;
        let address: IpAddr = match version {
            Version::V4 => Ipv4Addr::from(v4_destination(1)).into(),
            Version::V6 => Ipv6Addr::from(v6_destination(1)).into(),
        };
        host.tell(|netlink| {
            netlink.set_up(DEVICE)?;
            let index = netlink.interface(DEVICE)?.index;
            netlink.add_address(DEVICE, Prefix::host(address))?;
            let everyone = match version {
                Version::V4 => Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8),
                Version::V6 => Prefix::new(Ipv6Addr::new(0xfd00, 10, 0, 0, 0, 0, 0, 0), 32),
            };
            netlink.add_route(&Route::on(everyone, index))
        })?;
        let socket = host.space().enter(|| UdpSocket::bind(SocketAddr::new(address, PORT)))?;
        socket.set_nonblocking(true)?;
        let inbox = Inbox { socket, room: vec![0; 65_535], expected: Vec::new() };
        Ok(Kernel { _host: host, tap, inbox })
    }
}

impl Target for Kernel {
    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        write(&mut self.tap, packet)
    }

    fn arrived(&mut self, tell: &mut dyn FnMut(u64)) -> io::Result<()> {
        self.inbox.take(tell)
    }

    fn held_max(&self) -> Option<usize> {
        None
    }
}

impl Behind {
    fn open(version: Version) -> io::Result<Behind> {
        Ok(Behind {
            forwarder: Forwarder::open(Treats::Cuts)?,
            rejoining: Rejoining::new(),
            receiver: Kernel::open(version)?,
            frames: Vec::new(),
            clock: Clock::start(),
        })
    }
}

impl Target for Behind {
    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        let wire = Wire { header: packet, payload: &[], to_do: ToDo::default() };
        self.forwarder.send(wire)
    }

    fn arrived(&mut self, tell: &mut dyn FnMut(u64)) -> io::Result<()> {
        loop {
            let received = self.forwarder.take(self.rejoining.pool(), &mut self.frames)?;
            let now = self.clock.now();
            for frame in self.frames.drain(..) {
                let tap = &mut self.receiver.tap;
                self.rejoining.push(now, frame, |piece| write(tap, piece))?;
            }
            if received.was_last {
                break;
            }
        }
        self.receiver.arrived(tell)
    }

    fn held_max(&self) -> Option<usize> {
        Some(self.rejoining.held_max)
    }
}

impl Rejoining {
    fn new() -> Rejoining {
        let side = SideSettings {
            memory: CAP,
            joins: Prefixes::new(Join::Destination),
            late: Late::Retire,
            ..SideSettings::new(u16::MAX, Position::Source)
        };
        let secrets = Secrets::both(Secret::new(fastrand::u128(..)));
        let gateway = Gateway::new(&GatewaySettings::one(side), secrets, || Pool::new(CAP + POOL_MORE));
        Rejoining { gateway, batch: Batch::default(), held_max: 0 }
    }

    fn pool(&mut self) -> &mut Pool {
        &mut self.gateway.output_mut(0).pool
    }

    /// Takes pieces, and tells all that leaves.
    ///
    /// # Panics
    /// Where it then holds more than it may.
    fn push(&mut self, now: Time, frame: Frame, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let Rejoining { gateway, batch, held_max } = self;
        gateway.expire(now);
        batch.frames.push(frame);
        gateway.push(now, 0, batch);
        let held = gateway.side(0).widening.charged();
        assert!(held <= CAP + DATAGRAM_LEN_MAX, "{held} bytes are held of {CAP}: at most a datagram more may be");
        *held_max = (*held_max).max(held);
        while let Some(way) = gateway.next(0) {
            let packet = match way {
                Way::Forward(packet) | Way::Answer(packet) => packet,
                Way::Pass(raw, _) => {
                    gateway.output_mut(0).pool.give(raw.into_buffer());
                    continue;
                }
            };
            let mut pieces = Pieces::of(&packet);
            while let Some(piece) = pieces.next() {
                if piece.payload.is_empty() {
                    write(piece.header)?;
                } else {
                    write(&[piece.header, piece.payload].concat())?;
                }
            }
            gateway.done(0, packet);
        }
        Ok(())
    }
}

impl Inbox {
    /// Takes what has come, and tells the numbers of what is whole and right.
    fn take(&mut self, tell: &mut dyn FnMut(u64)) -> io::Result<()> {
        loop {
            let len = match self.socket.recv(&mut self.room) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            if let Some(number) = is_good(&self.room[..len], &mut self.expected) {
                tell(number);
            }
        }
    }
}

/// The number of a good datagram, where its content is what was sent.
fn is_good(content: &[u8], expected: &mut Vec<u8>) -> Option<u64> {
    let (number, rest) = content.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    expected.clear();
    put_content(expected, number as u32, 0, GOOD_LEN);
    (rest == expected).then_some(number)
}

fn write(tap: &mut Tap, packet: &[u8]) -> io::Result<()> {
    tap.transmit(&[Wire { header: packet, payload: &[], to_do: ToDo::default() }]).map(drop)
}

/// Writes a flood to a TUN device.
fn live(load: &mut Load, stretch: Duration, target: &mut impl Target) -> io::Result<FloodRow> {
    wait_until_it_joins(load, target)?;
    let mut ledger = Goods::default();
    if load.flood == Flood::Drip {
        for _ in 0..DRIP_BEFORE {
            target.write(load.next())?;
        }
    }
    target.arrived(&mut |number| ledger.arrive(number))?;
    let clock = Clock::start();
    let (mut next_good, mut waiting): (Time, Option<(Time, u64, Vec<u8>)>) = (Time::ZERO, None);
    let before = load.count;
    loop {
        let now = clock.now();
        if now.nanos() > stretch.as_nanos() as u64 {
            break;
        }
        if let Some((since, number, second)) = waiting.take_if(|(since, ..)| now.since(*since) >= GAP) {
            target.write(&second)?;
            if clock.now().since(since) > GAP_MAX {
                ledger.set_aside(number);
            }
        }
        if waiting.is_none() && now >= next_good {
            let [first, second] = load.good();
            target.write(&first)?;
            waiting = Some((clock.now(), load.good_count, second));
            next_good = next_good.max(now) + GOOD_EACH;
        }
        match load.flood {
            Flood::Drip => {
                let due = before + now.nanos() * DRIP_RATE / 1_000_000_000;
                if load.count < due {
                    target.write(load.next())?;
                }
                thread::sleep(Duration::from_micros(50));
            }
            _ => (0..BURST).try_for_each(|_| target.write(load.next()))?,
        }
        target.arrived(&mut |number| ledger.arrive(number))?;
    }
    let seconds = clock.now().nanos() as f64 / 1e9;
    let rate = (load.count - before) as f64 / seconds;
    // The one that waits never had its second piece.
    let sent = load.good_count - u64::from(waiting.is_some());
    for _ in 0..SETTLE {
        target.arrived(&mut |number| ledger.arrive(number))?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(ledger.row(load, rate, sent, target.held_max()))
}

/// Sends good datagrams until some arrive: a fresh host's addresses and routes take a moment.
fn wait_until_it_joins(load: &Load, target: &mut impl Target) -> io::Result<()> {
    let mut probes = Load::new(load.flood, load.version, 0);
    // Numbers that no other good datagram has.
    probes.good_count = 1 << 40;
    let mut seen = 0;
    for _ in 0..PROBES_MAX {
        for piece in probes.good() {
            target.write(&piece)?;
        }
        target.arrived(&mut |_| seen += 1)?;
        if seen >= PROBES {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Err(io::Error::other("no datagram arrives behind the TUN device; look whether a firewall drops it"))
}

/// Which good datagrams arrived.
#[derive(Default)]
struct Goods {
    arrived: Vec<u64>,
    aside: Vec<u64>,
}

impl Goods {
    fn arrive(&mut self, number: u64) {
        self.arrived.push(number);
    }

    fn set_aside(&mut self, number: u64) {
        self.aside.push(number);
    }

    fn row(mut self, load: &Load, rate: f64, sent: u64, held_max: Option<usize>) -> FloodRow {
        self.arrived.sort_unstable();
        self.arrived.dedup();
        self.arrived.retain(|number| *number <= sent && !self.aside.contains(number));
        let set_aside = self.aside.len() as u64;
        FloodRow {
            flood: load.flood,
            version: if load.version == Version::V4 { 4 } else { 6 },
            system: Joins::Simulated,
            rate,
            sent: sent - set_aside,
            whole: self.arrived.len() as u64,
            set_aside,
            held_max,
            wanted: None,
        }
    }
}

/// Pushes a flood into the engine, in simulated time.
fn simulated(load: &mut Load, stretch: Duration) -> FloodRow {
    let rate = if load.flood == Flood::Drip { DRIP_RATE } else { SIMULATED_RATE };
    let (mut rejoining, mut ledger) = (Rejoining::new(), Goods::default());
    let mut expected = Vec::new();
    let mut seconds: VecDeque<(Time, Vec<u8>)> = VecDeque::new();
    let step = Duration::from_nanos(1_000_000_000 / rate);
    let (mut now, mut next_flood, mut next_good) = (Time::ZERO, Time::ZERO, Time::ZERO);
    let end = Time::ZERO + stretch;
    while now < end || !seconds.is_empty() {
        let second_at = seconds.front().map_or(Time::NEVER, |(at, _)| *at);
        let good_at = if next_good < end { next_good } else { Time::NEVER };
        now = second_at.min(next_flood).min(good_at);
        let header_len = if load.version == Version::V4 { 28 } else { 48 };
        let packet = if now == second_at {
            seconds.pop_front().map(|(_, piece)| copy(&piece, rejoining.pool()))
        } else if now == good_at {
            let [first, second] = load.good();
            seconds.push_back((now + GAP_MAX, second));
            next_good = now + GOOD_EACH;
            Some(copy(&first, rejoining.pool()))
        } else {
            next_flood = now + step;
            Some(copy(load.next(), rejoining.pool()))
        };
        let Some(Ok(packet)) = packet else { continue };
        let took = rejoining.push(now, Frame::Ip(packet), |piece| {
            is_good(&piece[header_len..], &mut expected).into_iter().for_each(|number| ledger.arrive(number));
            Ok(())
        });
        took.expect("what only looks cannot fail");
    }
    let rate = load.count as f64 / stretch.as_secs_f64();
    let held_max = Some(rejoining.held_max);
    ledger.row(load, rate, load.good_count, held_max)
}

fn copy(piece: &[u8], pool: &mut Pool) -> Result<Packet, NoPacket> {
    Frame::copy(piece, Medium::Ip, Ingress(0), pool)
}

impl FloodRow {
    /// Did as many good datagrams arrive as should?
    pub fn is_good(&self) -> bool {
        self.wanted.is_none_or(|wanted| self.sent > 0 && self.share() >= wanted)
    }

    /// What share of the good datagrams arrived.
    pub fn share(&self) -> f64 {
        self.whole as f64 / self.sent.max(1) as f64
    }
}

impl Floods {
    /// Is every row of the engine as it should be?
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(FloodRow::is_good)
    }
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Flood::FirstPieces => "first pieces from everywhere",
            Flood::ThousandSources => "from a thousand sources",
            Flood::Drip => "a slow drip",
        })
    }
}

impl fmt::Display for Joins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Joins::Kernel => "the kernel",
            Joins::Engine => "the engine",
            Joins::Simulated => "the engine, simulated",
        })
    }
}

impl fmt::Display for Floods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Good datagrams of two pieces, at most {GAP_MAX:?} apart, in floods of pieces; each system may hold 4 MiB.\n"
        )?;
        writeln!(
            f,
            "{:<30}{:<4}{:<23}{:>12}{:>8}{:>8}{:>11}{:>9}{:>11}{:>12}",
            "flood", "IP", "who joins", "pieces/s", "good", "whole", "share", "wanted", "set aside", "most held"
        )?;
        for row in &self.rows {
            let FloodRow { flood, version, system, rate, sent, whole, set_aside, held_max, wanted } = row;
            let wanted = wanted.map_or_else(|| "-".to_owned(), |wanted| format!("{:.2} %", wanted * 100.0));
            let held = held_max.map_or_else(|| "-".to_owned(), |held| held.to_string());
            let (share, mark) = (row.share() * 100.0, if row.is_good() { "" } else { "  short" });
            writeln!(
                f,
                "{flood:<30}{version:<4}{system:<23}{rate:>12.0}{sent:>8}{whole:>8}{share:>9.3} %{wanted:>9}{set_aside:>11}{held:>12}{mark}"
            )?;
        }
        writeln!(f, "\n{}", self.conditions)
    }
}

/// What each may hold, in bytes: the kernel's usual ipfrag_high_thresh.
const CAP: usize = 4 << 20;
/// The longest datagram, in bytes of the buffer that it needs.
const DATAGRAM_LEN_MAX: usize = 72 << 10;
/// Memory beside what is held, for packets on their way.
const POOL_MORE: usize = 64 << 20;
/// Payload of a flood's pieces, and of good datagrams beside their number, and where these are cut; in bytes.
const FLOOD_LEN: usize = 1_000;
const GOOD_LEN: usize = 1_600;
const CUT: usize = 1_400;
/// Stretch between good datagrams, and between their two pieces: at least, and at most.
const GOOD_EACH: Duration = Duration::from_micros(500);
const GAP: Duration = Duration::from_micros(300);
const GAP_MAX: Duration = Duration::from_micros(500);
/// Pieces of a flood that are written in one go.
const BURST: usize = 16;
/// Pieces in a second, in a simulated flood and of a drip.
const SIMULATED_RATE: u64 = 2_000_000;
const DRIP_RATE: u64 = 150;
/// Pieces of a drip that come first: those of 20 seconds.
const DRIP_BEFORE: u64 = 20 * DRIP_RATE;
/// Good datagrams that have to arrive before a flood begins, and how many are tried for that.
const PROBES: usize = 20;
const PROBES_MAX: usize = 5_000;
/// How often a live flood is written where nothing is seen of it.
const TRIES: usize = 3;
/// Milliseconds after which nothing more is on its way.
const SETTLE: u32 = 20;
const GOOD_SOURCES: u64 = 64;
/// Numbers of sources: of the good, and of the others.
const GOOD_SOURCE: u32 = 1 << 16;
const FLOOD_SOURCE: u32 = 1 << 17;
const PORT: u16 = 9_000;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const DEVICE: &str = "flood0";
const SETTINGS: [(&str, &str); 7] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ipfrag_high_thresh", "4194304"),
    ("ipv4/ipfrag_low_thresh", "3145728"),
    ("ipv6/ip6frag_high_thresh", "4194304"),
    ("ipv6/ip6frag_low_thresh", "3145728"),
    ("ipv6/conf/default/accept_dad", "0"),
];
