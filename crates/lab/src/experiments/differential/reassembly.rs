//! Fragmented datagrams -> the datagrams that the kernel's reassembler delivers, beside those of the engine.
//!
//! The comparison with the kernel has three parts; this part compares reassembly. `reassembly_model.rs` explains
//! differences.

use super::reassembly_cases::{Case, DATAGRAMS_MAX, PROTOCOLS};
use super::reassembly_draw::draw;
use super::reassembly_model::{explain, shown};
use super::{Bench, Kind, Verdict};
use crate::experiments::wire::{v4_destination, v6_destination};
use crate::net::Host;
use engine::{
    Batch, Egress, FragmentPolicy, Gateway, GatewaySettings, Late, PlacementMode, Position, Prefixes, Secret,
    Secrets, SideSettings,
};
use fastrand::Rng;
use linux::addresses::Prefix;
use linux::raw::RawSocket;
use linux::routes::Route;
use packet::{Ingress, LinkType, Packet, Pool, Time, Version};
use port::{Kind as DeviceKind, Offloads, Options, Port, Tap, TxFrame, TxOffload};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The kernel behind a TUN device, and an engine.
pub(super) struct Reassembly {
    _host: Host,
    tap: Tap,
    sockets: Vec<(Version, u8, RawSocket)>,
    /// The engine that gets one packet at a time. `in_batches` gets batches.
    singly: Gateway,
    in_batches: Gateway,
    now: Time,
    slot: u32,
}

/// Consecutive frames in one buffer.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// For each frame, the offset of its end and the index of its case.
    ends: Vec<(usize, usize)>,
}

/// Datagrams delivered for a case. For IPv4, each is the complete packet. For IPv6, each has addresses, traffic
/// class, hop limit, protocol and upper-layer payload.
type Delivered = Vec<Vec<u8>>;

impl Bench for Reassembly {
    type Case = Case;
    const KIND: Kind = Kind::Reassembly;

    fn open(rng: &mut Rng) -> io::Result<Reassembly> {
        let host = open_host()?;
        let options = Options { mtu: Some(65_535), offloads: Offloads::default(), ..Options::default() };
        let tap = host.space().enter(|| Tap::open(DEVICE, DeviceKind::Tun, &options))?;
        address(&host)?;
        let sockets = open_sockets(&host)?;
        let mut bench = Reassembly {
            _host: host,
            tap,
            sockets,
            singly: gateway(PlacementMode::Never, rng),
            in_batches: gateway(PlacementMode::Always, rng),
            now: Time::ZERO,
            slot: rng.u32(..1 << 24),
        };
        bench.await_kernel()?;
        Ok(bench)
    }

    fn draw(rng: &mut Rng) -> Case {
        draw(rng)
    }

    fn compare(&mut self, cases: &[Case]) -> io::Result<Vec<Verdict>> {
        let first = self.slot;
        self.slot = first.wrapping_add(cases.len() as u32);
        let frames = Frames::of(cases, first);
        let kernel = self.ask_kernel(&frames, first, cases.len())?;
        let [singly, in_batches] = self.ask_engine(&frames, cases.len());
        let slots = (0..).map(|index| first.wrapping_add(index));
        let outcomes = kernel.into_iter().zip(singly).zip(in_batches);
        Ok(cases
            .iter()
            .zip(slots)
            .zip(outcomes)
            .map(|((case, slot), ((kernel, singly), in_batches))| judge(case, slot, &kernel, &singly, &in_batches))
            .collect())
    }

    fn smaller(case: &Case) -> Vec<Case> {
        case.smaller()
    }

    fn words(case: &Case) -> String {
        case.words()
    }

    fn counts(case: &Case) -> (u64, u64) {
        (case.datagrams.len().min(DATAGRAMS_MAX) as u64, case.fragments.len() as u64)
    }
}

impl Reassembly {
    /// Waits until the kernel receives on every address. IPv6 addresses take seconds on a busy machine.
    fn await_kernel(&mut self) -> io::Result<()> {
        let began = Instant::now();
        for (version, destination) in [(Version::V4, 1), (Version::V4, 2), (Version::V6, 1), (Version::V6, 2)] {
            let frames = Frames::of(&[Case::whole(version, destination)], self.slot);
            while self.ask_kernel(&frames, self.slot, 1)?[0].is_empty() {
                if began.elapsed() > READY_WITHIN {
                    return Err(io::Error::other(format!(
                        "{DEVICE}: the kernel accepts no packet for its {version:?} addresses; check if a packet filter or \
                         net.ipv6.conf.all.disable_ipv6 blocks them"
                    )));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.slot = self.slot.wrapping_add(1);
        Ok(())
    }

    fn ask_kernel(&mut self, frames: &Frames, first: u32, count: usize) -> io::Result<Vec<Delivered>> {
        for (frame, _) in frames.each() {
            let wire = TxFrame { header: frame, payload: &[], offload: TxOffload::default() };
            // Packets that the kernel rejects at once are not delivered either.
            let _ = self.tap.transmit(&[wire]);
        }
        let mut delivered = vec![Delivered::new(); count];
        for (version, protocol, socket) in &mut self.sockets {
            while let Some(arrival) = socket.receive()? {
                let (slot, bytes) = match (arrival.source, arrival.header) {
                    (IpAddr::V4(source), _) => (number(&source.octets()), arrival.bytes.to_vec()),
                    (IpAddr::V6(source), header) => {
                        let (to, class, hops) = header.unwrap_or((Ipv6Addr::UNSPECIFIED, 0, 0));
                        let seen = seen(&source.octets(), &to.octets(), [class, hops, *protocol], arrival.bytes);
                        (number(&source.octets()), seen)
                    }
                };
                let mask = if *version == Version::V4 { 0xFF_FFFF } else { u32::MAX };
                let index = (slot.wrapping_sub(first) & mask) as usize;
                if let Some(delivered) = delivered.get_mut(index) {
                    delivered.push(bytes);
                }
            }
        }
        delivered.iter_mut().for_each(|it| it.sort_unstable());
        Ok(delivered)
    }

    /// Returns the datagrams that the engine delivers for each case, first packet by packet, then in batches.
    fn ask_engine(&mut self, frames: &Frames, count: usize) -> [Vec<Delivered>; 2] {
        // After this time step, all earlier entries have timed out.
        self.now = self.now + Duration::from_secs(3_600);
        let mut both = [self.ask_singly(frames, count), self.ask_in_batches(frames, count)];
        both.iter_mut().flatten().for_each(|it| it.sort_unstable());
        both
    }

    fn ask_singly(&mut self, frames: &Frames, count: usize) -> Vec<Delivered> {
        self.singly.expire(self.now);
        let mut delivered = vec![Delivered::new(); count];
        for (frame, case) in frames.each() {
            push(&mut self.singly, self.now, [frame], &mut delivered[case]);
        }
        delivered
    }

    /// Pushes one batch per case, with payloads at their predicted places. Each batch's output belongs to one case.
    fn ask_in_batches(&mut self, frames: &Frames, count: usize) -> Vec<Delivered> {
        self.in_batches.expire(self.now);
        let mut delivered = vec![Delivered::new(); count];
        let mut ends = frames.each().peekable();
        while let Some((_, case)) = ends.peek().copied() {
            let of_case = std::iter::from_fn(|| ends.next_if(|(_, of)| *of == case).map(|(frame, _)| frame));
            push(&mut self.in_batches, self.now, of_case, &mut delivered[case]);
        }
        delivered
    }
}

/// Returns a gateway that reassembles the datagrams of all destinations.
fn gateway(guessing: PlacementMode, rng: &mut Rng) -> Gateway {
    let side = SideSettings {
        memory: 256 << 20,
        policies: Prefixes::new(FragmentPolicy::Reassemble),
        late: Late::Retire,
        placement: guessing,
        ..SideSettings::new(u16::MAX, Position::Transit)
    };
    let secrets = Secrets::both(Secret::new(rng.u128(..)));
    Gateway::new(&GatewaySettings::one(side), secrets, || Pool::new(512 << 20))
}

/// Pushes a batch of frames into a gateway, and returns the delivered packets.
fn push<'f>(
    gateway: &mut Gateway,
    now: Time,
    frames: impl IntoIterator<Item = &'f [u8]>,
    delivered: &mut Delivered,
) {
    let mut batch = Batch::default();
    let (mut places, pool) = gateway.places(0);
    for frame in frames {
        batch.receive(frame, LinkType::Ip, Ingress(0), places.as_mut(), pool);
    }
    gateway.push(now, 0, &mut batch);
    while let Some(direction) = gateway.next(0) {
        match direction {
            Egress::Forward(packet) | Egress::IcmpReply(packet) => {
                delivered.extend(as_delivered(&packet));
                gateway.recycle(0, packet);
            }
            Egress::PassThrough(raw, _) => gateway.output_mut(0).pool.give(raw.into_buffer()),
        }
    }
}

fn open_host() -> io::Result<Host> {
    let host = Host::new("receiver")?;
    for (name, value) in SETTINGS {
        host.space().set_sysctl(name, value)?;
    }
    Ok(host)
}

/// Gives the host its addresses, and a return route to all sources.
fn address(host: &Host) -> io::Result<()> {
    host.tell(|netlink| {
        netlink.set_up(DEVICE)?;
        let index = netlink.interface(DEVICE)?.index;
        for number in 1..=2 {
            netlink.add_address(DEVICE, Prefix::host(Ipv4Addr::from(v4_destination(number))))?;
            netlink.add_address(DEVICE, Prefix::host(Ipv6Addr::from(v6_destination(number))))?;
        }
        netlink.add_route(&Route::on(Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8), index))?;
        netlink.add_route(&Route::on(Prefix::new(Ipv6Addr::new(0xfd00, 10, 0, 0, 0, 0, 0, 0), 32), index))
    })
}

/// Opens one raw socket for each protocol of each IP version.
fn open_sockets(host: &Host) -> io::Result<Vec<(Version, u8, RawSocket)>> {
    let kinds = [Version::V4, Version::V6].into_iter().flat_map(|version| PROTOCOLS.map(|it| (version, it)));
    kinds
        .map(|(version, protocol)| {
            let socket = host.space().enter(|| RawSocket::open(version, protocol))?;
            Ok((version, protocol, socket))
        })
        .collect()
}

impl Frames {
    fn of(cases: &[Case], first: u32) -> Frames {
        let mut frames = Frames::default();
        for (index, case) in cases.iter().enumerate() {
            let slot = first.wrapping_add(index as u32);
            for fragment in &case.fragments {
                case.put_fragment(&mut frames.bytes, fragment, slot);
                frames.ends.push((frames.bytes.len(), index));
            }
        }
        frames
    }

    fn each(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (end, case))| (&self.bytes[start..*end], *case))
    }
}

fn judge(case: &Case, slot: u32, kernel: &Delivered, singly: &Delivered, in_batches: &Delivered) -> Verdict {
    if singly != in_batches {
        return Verdict::Differs(format!(
            "the engine's results differ: packet by packet it delivers {}, in a batch {}",
            shown(singly),
            shown(in_batches)
        ));
    }
    if kernel == singly {
        return Verdict::Same;
    }
    explain(&case.frames(slot).collect::<Vec<_>>(), kernel, singly)
}

/// Returns a complete packet as the host's sockets would deliver it; `None` if no socket would.
fn as_delivered(packet: &Packet) -> Option<Vec<u8>> {
    let bytes = packet.bytes();
    if packet.ip().version == Version::V4 {
        return PROTOCOLS.contains(&packet.ip().protocol).then(|| bytes.to_vec());
    }
    let upper = packet.ip().upper.filter(|upper| PROTOCOLS.contains(&upper.protocol))?;
    let class = (u16::from_be_bytes([bytes[0], bytes[1]]) >> 4) as u8;
    Some(seen(&bytes[8..24], &bytes[24..40], [class, bytes[7], upper.protocol], &bytes[usize::from(upper.at)..]))
}

pub(super) fn seen(source: &[u8], destination: &[u8], said: [u8; 3], content: &[u8]) -> Vec<u8> {
    [source, destination, &said, content].concat()
}

fn number(address: &[u8]) -> u32 {
    let from = if address.len() == 4 { 0 } else { 4 };
    let bytes = address.get(from..).and_then(|it| it.first_chunk::<4>()).copied().unwrap_or_default();
    let number = u32::from_be_bytes(bytes);
    if from == 0 { number & 0xFF_FFFF } else { number }
}

const DEVICE: &str = "pieces0";
/// Longest time until the kernel receives.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Kernel settings: packets from any source are accepted, and memory never limits reassembly.
const SETTINGS: [(&str, &str); 8] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ipfrag_high_thresh", "2000000000"),
    ("ipv4/ipfrag_low_thresh", "1900000000"),
    ("ipv4/ipfrag_time", "10"),
    ("ipv6/ip6frag_high_thresh", "2000000000"),
    ("ipv6/ip6frag_time", "10"),
    ("ipv6/conf/default/accept_dad", "0"),
];
