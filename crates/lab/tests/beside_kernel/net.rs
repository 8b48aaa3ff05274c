//! A configuration of the middle host -> three hosts in a row, and the outcome of datagrams between them.
//!
//! ```text
//! narrow ──── 1,500 ──── to-narrow  middle  to-wide ──── 9,000 ──── wide
//!                                           to-other ─── 9,000 ─── other
//! ```
//!
//! `wide` and `other` are interfaces of one host, which also has all addresses of a third network.

use config::Config;
use daemon::service::Service;
use libtest_mimic::Trial;
use linux::addresses::Prefix;
use linux::sockets;
use packet::Version;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{Summed, udp};
use wideload_lab::net::{Host, HostLink, Offloading, cable};

/// The role of the middle host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middle {
    /// A router without a gateway.
    Forwarding,
    /// A router that merges fragments up to the wide link's MTU.
    Merging,
    /// A router that reassembles toward the wide link.
    Reassembling,
    /// A host without a gateway.
    Stock,
    /// A host with a wide interface on this interface.
    Wide(&'static str),
}

/// The links between the hosts.
#[derive(Clone, Copy)]
pub struct Links<'a> {
    /// Creates the interfaces, which are up and have no addresses.
    pub lay: &'a dyn Fn(&Net),
    /// The IP versions that cross all links.
    pub versions: &'static [Version],
    /// The VRF of the middle host's interfaces.
    pub vrf: Option<&'static str>,
}

/// Three hosts in a row.
pub struct Net {
    pub narrow: Host,
    pub middle: Host,
    pub wide: Host,
    versions: &'static [Version],
    /// The VRF of sockets in the middle host.
    vrf: Option<&'static str>,
    service: Option<Service>,
}

impl Net {
    /// Creates the hosts, and waits until packets cross.
    pub fn new(what: Middle) -> Net {
        Net::joined(CABLES, what, |_| ())
    }

    /// Creates the hosts with other links, and waits until packets cross. `prepare` changes the hosts before a
    /// gateway starts.
    pub fn joined(links: Links, what: Middle, prepare: impl FnOnce(&Net)) -> Net {
        let [narrow, middle, wide] = ["narrow", "middle", "wide"].map(|name| Host::new(name).unwrap());
        for host in [&narrow, &middle, &wide] {
            for (name, value) in SETTINGS {
                host.space().set_sysctl(name, value).unwrap();
            }
        }
        let forwards = !matches!(what, Middle::Stock | Middle::Wide(_));
        for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            middle.space().set_sysctl(name, if forwards { "1" } else { "0" }).unwrap();
        }
        let of = |network, host| [Prefix::new(v4(network, host), 24), Prefix::new(v6(network, host), 64)];
        let addresses = [of(2, 1), of(2, 2), of(1, 2), of(1, 1), of(3, 2), of(3, 1)];
        let Links { lay, versions, vrf } = links;
        let mut net = Net { narrow, middle, wide, versions, vrf, service: None };
        lay(&net);
        let interfaces = net.interfaces();
        for ((host, name), addresses) in interfaces.iter().zip(addresses) {
            for address in addresses.iter().filter(|address| net.crosses(address.address)) {
                host.tell(|netlink| netlink.add_address(name, *address)).unwrap();
            }
        }
        net.set_routes();
        prepare(&net);
        if let Some(text) = net.config(what) {
            let config = Config::parse(&text, "beside.toml").unwrap();
            net.service = Some(net.middle.space().enter(|| Service::start(config)).unwrap());
        }
        net.settle(forwards);
        net
    }

    fn set_routes(&self) {
        let mtu = self.mtu("to-narrow");
        let vrf = self.vrf.map(|name| format!(" vrf {name}")).unwrap_or_default();
        if self.versions.contains(&Version::V4) {
            ip(&self.narrow, "route add default via 10.78.2.2");
            ip(&self.middle, &format!("route add 10.78.9.0/24 via 10.78.1.1{vrf}"));
            ip(&self.wide, "route add default via 10.78.1.2");
            ip(&self.wide, "route add local 10.78.9.0/24 dev lo");
        }
        if self.versions.contains(&Version::V6) {
            ip(&self.narrow, "-6 route add default via fd78:2::2");
            ip(&self.narrow, "addr add fe80::1/64 dev narrow nodad");
            ip(&self.middle, "addr add fe80::2/64 dev to-narrow nodad");
            ip(&self.middle, &format!("-6 route add fd78:9::/64 via fd78:1::1{vrf}"));
            // A router would announce its MTU by an ICMP error, at the cost of a datagram.
            ip(&self.wide, &format!("-6 route add default via fd78:1::2 mtu {mtu}"));
            ip(&self.wide, "-6 route add local fd78:9::/64 dev lo");
        }
    }

    /// All interfaces, each with its host.
    fn interfaces(&self) -> [(&Host, &'static str); 6] {
        let Net { narrow, middle, wide, .. } = self;
        [
            (narrow, "narrow"),
            (middle, "to-narrow"),
            (middle, "to-wide"),
            (wide, "wide"),
            (middle, "to-other"),
            (wide, "other"),
        ]
    }

    /// Whether packets of this IP version cross the links.
    fn crosses(&self, address: IpAddr) -> bool {
        self.versions.contains(if address.is_ipv4() { &Version::V4 } else { &Version::V6 })
    }

    /// Datagrams from one host to an address of another, both in the VRF if there is one.
    pub fn datagrams<'a>(&self, from: &'a Host, to: &'a Host, target: IpAddr) -> Datagrams<'a> {
        let vrf_of = |host| self.vrf.filter(|_| std::ptr::eq(host, &raw const self.middle));
        Datagrams { source_device: vrf_of(from), device: vrf_of(to), ..Datagrams::new(from, to, target) }
    }

    /// The MTU of an interface of the middle host, in bytes.
    fn mtu(&self, name: &str) -> u32 {
        self.middle.tell(|netlink| Ok(netlink.interface(name)?.mtu)).unwrap()
    }

    /// Whether there is a gateway.
    pub fn has_gateway(&self) -> bool {
        self.service.is_some()
    }

    /// Packets that the gateway has received so far.
    pub fn taken(&self) -> u64 {
        self.taken_by_end().iter().sum()
    }

    /// Packets from the narrow link that the gateway has received so far.
    pub fn taken_from_narrow(&self) -> u64 {
        self.taken_by_end()[1]
    }

    /// The counters of the gateway and of each host's kernel, as text.
    pub fn counters(&self) -> String {
        let hosts = [&self.narrow, &self.middle, &self.wide].map(kernel_counters);
        let gateway = self.service.as_ref().map(|service| service.snapshots().unwrap());
        format!("{}\n{gateway:#?}", hosts.join("\n"))
    }

    fn taken_by_end(&self) -> [u64; 2] {
        let snapshots = self.service.as_ref().map(|service| service.snapshots().unwrap()).unwrap_or_default();
        [0, 1].map(|end| snapshots.iter().map(|snapshot| snapshot.ends[end].rx.packets).sum())
    }

    fn config(&self, what: Middle) -> Option<String> {
        let side =
            |side: &str, name: &str| format!("[{side}]\nport = \"packet:{name}\"\nmtu = {}\n", self.mtu(name));
        let router = |more: &str| {
            format!("role = \"router\"\n{}{more}\n{}", side("wide", "to-wide"), side("narrow", "to-narrow"))
        };
        match what {
            Middle::Forwarding | Middle::Stock => None,
            Middle::Merging => Some(router("fragment-policy = \"merge\"")),
            Middle::Reassembling => Some(router("reassemble = true")),
            Middle::Wide(over) => {
                Some(format!("role = \"wide-interface\"\n[wide]\nmtu = 65535\n{}", side("narrow", over)))
            }
        }
    }

    /// Whether the gateway's counters add up.
    pub fn is_right(&self) -> bool {
        let snapshots = self.service.as_ref().map(|service| service.snapshots().unwrap()).unwrap_or_default();
        snapshots.iter().flat_map(|snapshot| &snapshot.directions).all(|direction| direction.broken.is_none())
    }

    /// The index of an interface.
    pub fn index(&self, host: &Host, name: &str) -> u32 {
        host.tell(|netlink| Ok(netlink.interface(name)?.index)).unwrap()
    }

    /// Waits until packets cross: an interface that has just come up drops packets for a moment.
    fn settle(&self, forwards: bool) {
        let directions = [
            (&self.narrow, &self.middle, 2, 2),
            (&self.wide, &self.middle, 1, 2),
            (&self.wide, &self.middle, 3, 2),
        ];
        let through = [(&self.narrow, &self.wide, 1, 1), (&self.wide, &self.narrow, 2, 1)];
        let through = if forwards { &through[..] } else { &[] };
        for (from, to, network, host) in directions.iter().chain(through) {
            let targets = [v4(*network, *host), v6(*network, *host)];
            for target in targets.into_iter().filter(|target| self.crosses(*target)) {
                let device = self.datagrams(from, to, target).device;
                let echo = Echo::on(to, SocketAddr::new(target, 0), device);
                let until = Instant::now() + TIMEOUT;
                while ping(from, echo.target, 8, TIMEOUT / 50).is_none() {
                    assert!(Instant::now() < until, "nothing comes from {} to {target}", from.name());
                }
            }
        }
    }
}

/// Datagrams from one sender to one receiver.
pub struct Datagrams<'a> {
    pub from: &'a Host,
    /// The sender's address.
    pub source: SocketAddr,
    /// The sender's interface.
    pub source_device: Option<&'a str>,
    /// The TTL of the packets.
    pub hops: u32,
    pub to: &'a Host,
    /// The destination address.
    pub target: SocketAddr,
    /// The receiver's address.
    pub at: SocketAddr,
    /// The receiver's interface.
    pub device: Option<&'a str>,
}

/// The outcome: for each length the number of complete datagrams, and the errors that the sender got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub arrived: [usize; LENS.len()],
    pub errors: BTreeSet<i32>,
}

impl Delivered {
    /// Whether all datagrams arrived, without errors.
    pub fn is_all(&self) -> bool {
        self.arrived == [COUNT; LENS.len()] && self.errors.is_empty()
    }

    /// Whether no datagram arrived.
    pub fn is_none(&self) -> bool {
        self.arrived == [0; LENS.len()]
    }
}

impl<'a> Datagrams<'a> {
    /// Datagrams with any source address.
    pub fn new(from: &'a Host, to: &'a Host, target: IpAddr) -> Datagrams<'a> {
        let any: IpAddr =
            if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let source = SocketAddr::new(any, 0);
        let target = SocketAddr::new(target, PORT);
        Datagrams { from, source, source_device: None, hops: 64, to, target, at: target, device: None }
    }

    /// Sends a few datagrams of each length.
    pub fn send(&self) -> Delivered {
        let receiver = self.to.space().enter(|| bound(self.at, self.device)).unwrap();
        receiver.set_read_timeout(Some(QUIET)).unwrap();
        let sender = self.from.space().enter(|| bound(self.source, self.source_device)).unwrap();
        let (level, ttl) = if self.target.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TTL)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)
        };
        sockets::set_option(&sender, level, ttl, &self.hops.to_ne_bytes()).unwrap();
        let errors = if self.target.is_ipv4() { libc::IP_RECVERR } else { libc::IPV6_RECVERR };
        sockets::set_option(&sender, level, errors, &1_i32.to_ne_bytes()).unwrap();
        if self.target.is_ipv4() {
            let never = libc::IP_PMTUDISC_DONT.to_ne_bytes();
            sockets::set_option(&sender, level, libc::IP_MTU_DISCOVER, &never).unwrap();
        }
        let mut errors = BTreeSet::new();
        let mut keep = |error: Option<io::Error>| errors.extend(error.and_then(|error| error.raw_os_error()));
        keep(sender.connect(self.target).err());
        // Numbers continue from one call to the next, so that a late message of an earlier call is recognised.
        let first = SENT.fetch_add((COUNT * LENS.len()) as u64, Ordering::Relaxed);
        for (number, len) in (first..).zip((0..COUNT).flat_map(|_| LENS)) {
            let message = payload(number, len);
            // An error of the previous datagram is reported here, and this one is not sent.
            for _ in 0..3 {
                let sent = sender.send(&message);
                if sent.is_ok() {
                    break;
                }
                keep(sent.err());
            }
        }
        let mut arrived = [0; LENS.len()];
        let mut room = vec![0; LENS[LENS.len() - 1] + 1];
        let mut seen = BTreeSet::new();
        while let Ok(len) = receiver.recv(&mut room) {
            let number = u64::from_be_bytes(room[..8].try_into().unwrap());
            if number < first {
                // A late message counts as missing in the call that sent it.
                continue;
            }
            assert!(seen.insert(number), "message {number} comes twice");
            assert!(room[..len] == payload(number, len), "message {number} is another one");
            let Some(at) = LENS.iter().position(|it| *it == len) else { panic!("{len} bytes were never sent") };
            arrived[at] += 1;
            if seen.len() == COUNT * LENS.len() {
                break;
            }
        }
        keep(sender.take_error().unwrap());
        Delivered { arrived, errors }
    }
}

/// A message of this length that starts with its number.
pub fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = wideload_lab::traffic::content(number, len);
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A socket at an address, and on one interface if it is given.
pub fn bound(address: SocketAddr, device: Option<&str>) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    if let Some(device) = device {
        sockets::set_option(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
    }
    sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20)?;
    // A closed socket keeps its port as long as a process has a copy, such as one that another test is starting.
    let mut outcome = bind(&socket, &address);
    for _ in 0..100 {
        if outcome != Err(Errno::ADDRINUSE) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        outcome = bind(&socket, &address);
    }
    outcome?;
    Ok(UdpSocket::from(socket))
}

/// A UDP datagram from the narrow host in fragments; its length is its ID.
pub fn fragments(target: IpAddr, message: &[u8]) -> Vec<Vec<u8>> {
    let datagram = udp(4).from(v4(2, 1)).to(target).ports(9, PORT).id(message.len() as u32).ip_flags(0);
    datagram.sum(Summed::None).payload(message).parts(FRAGMENT_LEN)
}

/// A thread that returns each datagram to the sender, until the value is dropped.
pub struct Echo {
    pub target: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub fn start(host: &Host, address: SocketAddr) -> Echo {
        Echo::on(host, address, None)
    }

    /// Starts an echo whose socket is bound to an interface.
    pub fn on(host: &Host, address: SocketAddr, device: Option<&str>) -> Echo {
        let socket = host.space().enter(|| bound(address, device)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let target = socket.local_addr().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut room = vec![0; 65_535];
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut room) {
                    // An echo that is not sent counts as a ping without an answer.
                    let _ = socket.send_to(&room[..len], from);
                }
            }
        });
        Echo { target, ends, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The round-trip time of a message; `None` after the time-out.
pub fn ping(from: &Host, target: SocketAddr, len: usize, timeout: Duration) -> Option<Duration> {
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = from.space().enter(|| bound(SocketAddr::new(any, 0), None)).unwrap();
    socket.set_read_timeout(Some(timeout)).unwrap();
    let message = payload(0, len);
    let began = Instant::now();
    socket.send_to(&message, target).ok()?;
    let mut room = vec![0; len + 1];
    (socket.recv(&mut room).ok()? == len && room[..len] == message).then(|| began.elapsed())
}

/// Runs `ip` in a host.
pub fn ip(host: &Host, words: &str) {
    run(host, "ip", &words.split(' ').collect::<Vec<_>>());
}

/// Passes lines to `nft` in a host.
pub fn nft(host: &Host, lines: &str) {
    run(host, "nft", &[lines]);
}

/// Runs a program in a host.
pub fn run(host: &Host, program: &str, words: &[&str]) {
    let output = host.space().enter(|| Command::new(program).args(words).output()).unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The IPv4 address of a host of one of the networks.
pub fn v4(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, 78, network, host).into()
}

/// The IPv6 address of a host of one of the networks.
pub fn v6(network: u8, host: u8) -> IpAddr {
    Ipv6Addr::new(0xFD78, network.into(), 0, 0, 0, 0, 0, host.into()).into()
}

/// A link-local address: the interface by its index, and the last byte.
pub fn link_local(host: u8, port: u16, index: u32) -> SocketAddr {
    SocketAddrV6::new(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, host.into()), port, 0, index).into()
}

/// Datagrams of both IP versions in both directions: through a router, or between a host and its neighbour.
pub fn both_directions(net: &Net, kernel: Middle) -> Vec<Delivered> {
    let directions = if kernel == Middle::Stock {
        [(&net.narrow, &net.middle, 2, 2), (&net.middle, &net.narrow, 2, 1)]
    } else {
        [(&net.narrow, &net.wide, 1, 1), (&net.wide, &net.narrow, 2, 1)]
    };
    let both = |(from, to, network, host)| {
        let targets = [v4(network, host), v6(network, host)];
        targets
            .into_iter()
            .filter(|target| net.crosses(*target))
            .map(move |target| net.datagrams(from, to, target).send())
    };
    let delivered = directions.into_iter().flat_map(both).collect();
    assert!(net.is_right());
    delivered
}

/// Checks that each of these middles behaves as one without a gateway. `prepare` changes the hosts before the
/// gateway starts. A difference must be seen twice, as a busy machine causes some that do not recur.
pub fn alike<T: PartialEq + Debug>(
    kernel: Middle,
    middles: &[Middle],
    prepare: impl Fn(&Net),
    outcome: impl Fn(&Net, Middle) -> T,
) -> T {
    alike_by(CABLES, kernel, middles, prepare, outcome)
}

/// Checks the same as [`alike`], with other links.
pub fn alike_by<T: PartialEq + Debug>(
    links: Links,
    kernel: Middle,
    middles: &[Middle],
    prepare: impl Fn(&Net),
    outcome: impl Fn(&Net, Middle) -> T,
) -> T {
    let by = |middle| outcome(&Net::joined(links, middle, &prepare), middle);
    let mut without = by(kernel);
    for &middle in middles {
        let with = by(middle);
        if with != without {
            eprintln!("{middle:?}: {with:?}, and without: {without:?}; once more");
            without = by(kernel);
            assert_eq!(by(middle), without, "{middle:?}, and without");
        }
    }
    without
}

/// Returns the first outcome if it is right, otherwise the second, as a busy machine loses a packet now and then.
/// Prints the first and what was counted by then, so that the place of the loss is seen.
pub fn twice<T: Debug>(outcome: impl Fn() -> T, is_right: impl Fn(&T) -> bool, counters: impl Fn() -> String) -> T {
    let first = outcome();
    if is_right(&first) {
        return first;
    }
    eprintln!("{first:?}; once more\n{}", counters());
    outcome()
}

/// The counters of a host's kernel, as text.
pub fn kernel_counters(host: &Host) -> String {
    let output = host.space().enter(|| Command::new("sh").args(["-c", "nstat -as; ip -s -s link"]).output());
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

/// Checks that all datagrams arrive in both directions, with and without a gateway. The gateway receives the
/// fragments from the narrow link.
pub fn arrives_alike(links: Links, kernel: Middle, middles: &[Middle]) {
    alike_by(
        links,
        kernel,
        middles,
        |_| (),
        |net, _| {
            let before = net.taken_from_narrow();
            let delivered = twice(
                || both_directions(net, kernel),
                |delivered| delivered.iter().all(Delivered::is_all),
                || net.counters(),
            );
            assert!(delivered.iter().all(Delivered::is_all), "{delivered:?}");
            assert_eq!(net.taken_from_narrow() > before, net.has_gateway());
            delivered
        },
    );
}

fn cables(net: &Net) {
    lay_narrow(net);
    lay_wide(net);
    lay_other(net);
}

/// A cable between the narrow host and the middle host.
pub fn lay_narrow(net: &Net) {
    lay([(&net.narrow, "narrow"), (&net.middle, "to-narrow")], 1_500);
}

/// A cable between the middle host and the wide one.
pub fn lay_wide(net: &Net) {
    lay([(&net.middle, "to-wide"), (&net.wide, "wide")], 9_000);
}

/// A second cable between the middle host and the wide one.
pub fn lay_other(net: &Net) {
    lay([(&net.middle, "to-other"), (&net.wide, "other")], 9_000);
}

/// A cable that carries every packet as a real link would.
pub fn lay(ends: [(&Host, &str); 2], mtu: u32) {
    lay_with(Offloading::Off, ends, mtu);
}

/// A cable between two hosts.
pub fn lay_with(offloading: Offloading, ends: [(&Host, &str); 2], mtu: u32) {
    cable(ends.map(|(host, interface)| HostLink { host, interface, mtu, addresses: &[] }), offloading).unwrap();
}

/// A test without preconditions.
pub fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// Plain cables.
pub const CABLES: Links = Links { lay: &cables, versions: &[Version::V4, Version::V6], vrf: None };
/// Routers with a gateway.
pub const ROUTERS: &[Middle] = &[Middle::Merging, Middle::Reassembling];
/// Wide interfaces.
pub const WIDE_INTERFACES: &[Middle] = &[Middle::Wide("to-narrow")];
/// A middle host without a gateway, and those with a gateway to compare.
pub const ROLES: &[(Middle, &[Middle])] = &[(Middle::Forwarding, ROUTERS), (Middle::Stock, WIDE_INTERFACES)];
/// Lengths of the messages, in bytes: one unfragmented, two in fragments.
pub const LENS: [usize; 3] = [100, 3_000, 20_000];
/// Number of messages of each length.
pub const COUNT: usize = 3;
/// Payload of a fragment, in bytes: it fits the link with two VLAN tags.
const FRAGMENT_LEN: usize = 1_400;
pub const PORT: u16 = 4_000;
/// Number of messages sent so far, by all tests.
static SENT: AtomicU64 = AtomicU64::new(0);
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a further message.
const QUIET: Duration = Duration::from_millis(400);
const SETTINGS: [(&str, &str); 8] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
];
