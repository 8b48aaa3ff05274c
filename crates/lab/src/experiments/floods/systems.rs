//! Fragments -> the reassembled good datagrams, by the live kernel or by the engine.
//!
//! Both live systems are behind TUN devices. [`Rejoining`] is the engine alone, for simulated time too.

use super::super::forwarder::{Forwarder, HostOffload};
use super::super::wire::{v4_destination, v6_destination};
use super::load::{PORT, is_good};
use crate::net::Host;
use engine::{
    Batch, Egress, FragmentPolicy, Gateway, GatewaySettings, Late, Position, Prefixes, Secret, Secrets,
    SideSettings, WirePackets,
};
use linux::addresses::Prefix;
use linux::clock::Clock;
use linux::routes::Route;
use packet::{Frame, Pool, Time, Version};
use port::{Kind, Offloads, Options, Port, Tap, TxFrame, TxOffload};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// A reassembler behind a TUN device.
pub(super) trait Target {
    fn write(&mut self, packet: &[u8]) -> io::Result<()>;
    /// Processes the packets that were sent, and passes the numbers of newly arrived good datagrams to `tell`.
    fn arrived(&mut self, tell: &mut dyn FnMut(u64)) -> io::Result<()>;
    fn held_max(&self) -> Option<usize>;
}

/// The live kernel, which reassembles for its own socket.
pub(super) struct Kernel {
    _host: Host,
    tap: Tap,
    inbox: Inbox,
}

/// The engine behind the kernel's IP forwarding.
pub(super) struct Behind {
    forwarder: Forwarder,
    rejoining: Rejoining,
    receiver: Kernel,
    frames: Vec<Frame>,
    clock: Clock,
}

/// The engine with the configuration of a host's wide interface.
pub(super) struct Rejoining {
    gateway: Gateway,
    batch: Batch,
    pub(super) held_max: usize,
}

/// The socket that receives good datagrams.
struct Inbox {
    socket: UdpSocket,
    room: Vec<u8>,
    expected: Vec<u8>,
}

impl Kernel {
    pub(super) fn open(version: Version) -> io::Result<Kernel> {
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
    pub(super) fn open(version: Version) -> io::Result<Behind> {
        Ok(Behind {
            forwarder: Forwarder::open(HostOffload::Gso)?,
            rejoining: Rejoining::new(),
            receiver: Kernel::open(version)?,
            frames: Vec::new(),
            clock: Clock::start(),
        })
    }
}

impl Target for Behind {
    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        let wire = TxFrame { header: packet, payload: &[], offload: TxOffload::default() };
        self.forwarder.send(wire)
    }

    fn arrived(&mut self, tell: &mut dyn FnMut(u64)) -> io::Result<()> {
        loop {
            let received = self.forwarder.take(self.rejoining.pool(), &mut self.frames)?;
            let now = self.clock.now();
            for frame in self.frames.drain(..) {
                let tap = &mut self.receiver.tap;
                self.rejoining.push(now, frame, |fragment| write(tap, fragment))?;
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
    pub(super) fn new() -> Rejoining {
        let side = SideSettings {
            memory: CAP,
            policies: Prefixes::new(FragmentPolicy::Reassemble),
            late: Late::Retire,
            ..SideSettings::new(u16::MAX, Position::Source)
        };
        let secrets = Secrets::both(Secret::new(fastrand::u128(..)));
        let gateway = Gateway::new(&GatewaySettings::one(side), secrets, || Pool::new(CAP + POOL_MORE));
        Rejoining { gateway, batch: Batch::default(), held_max: 0 }
    }

    pub(super) fn pool(&mut self) -> &mut Pool {
        &mut self.gateway.output_mut(0).pool
    }

    /// Pushes a frame into the engine, and passes every output packet to `write`.
    ///
    /// # Panics
    /// The engine holds more bytes than its memory limit.
    pub(super) fn push(
        &mut self,
        now: Time,
        frame: Frame,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Rejoining { gateway, batch, held_max } = self;
        gateway.expire(now);
        batch.frames.push(frame);
        gateway.push(now, 0, batch);
        let held = gateway.side(0).aggregation.charged();
        assert!(held <= CAP + DATAGRAM_LEN_MAX, "{held} bytes are held of {CAP}: at most a datagram more may be");
        *held_max = (*held_max).max(held);
        while let Some(direction) = gateway.next(0) {
            let packet = match direction {
                Egress::Forward(packet) | Egress::IcmpReply(packet) => packet,
                Egress::PassThrough(raw, _) => {
                    gateway.output_mut(0).pool.give(raw.into_buffer());
                    continue;
                }
            };
            let mut fragments = WirePackets::of(&packet);
            while let Some(fragment) = fragments.next() {
                if fragment.payload.is_empty() {
                    write(fragment.header)?;
                } else {
                    write(&[fragment.header, fragment.payload].concat())?;
                }
            }
            gateway.recycle(0, packet);
        }
        Ok(())
    }
}

impl Inbox {
    /// Reads the received messages, and passes the numbers of complete and correct ones to `tell`.
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

fn write(tap: &mut Tap, packet: &[u8]) -> io::Result<()> {
    tap.transmit(&[TxFrame { header: packet, payload: &[], offload: TxOffload::default() }]).map(drop)
}

/// Memory limit of the kernel's and of the engine's reassembly, in bytes: the kernel's default ipfrag_high_thresh.
const CAP: usize = 4 << 20;
/// Buffer length for the longest datagram, in bytes.
const DATAGRAM_LEN_MAX: usize = 72 << 10;
/// Memory for packets in flight, in bytes, in addition to held ones.
const POOL_MORE: usize = 64 << 20;
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
