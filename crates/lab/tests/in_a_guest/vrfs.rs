//! VRFs with interfaces of the middle host -> packets received by sockets inside and outside of them.

use crate::devices::VRF;
use crate::needing;
use crate::net::{
    CABLES, Datagrams, Delivered, LENS, Links, Middle, Net, PORT, ROUTERS, TIMEOUT, WIDE_INTERFACES, alike_by,
    arrives_alike, bound, fragments, ip, lay, lay_narrow, lay_other, lay_wide, v4, v6,
};
use config::Config;
use daemon::service::Service;
use libtest_mimic::Trial;
use linux::frames::FrameSocket;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use wideload_lab::net::Host;

pub fn tests() -> Vec<Trial> {
    let test = |name: &str, test: fn()| needing(name.to_owned(), &[&VRF], test);
    vec![
        test("vrf_of_a_router", || arrives_alike(IN_VRF, Middle::Forwarding, ROUTERS)),
        test("vrf_of_a_wide_interface", || arrives_alike(IN_VRF, Middle::Stock, WIDE_INTERFACES)),
        test("router_between_a_vrf_and_the_main_table", leaked_routes),
        test("sockets_outside_of_a_vrf_receive_if_allowed", sockets_outside),
        test("two_vrfs_of_routers_with_the_same_addresses_stay_apart", || {
            two_vrfs(true, &[ROUTER_THAT_JOINS, ROUTER_THAT_REASSEMBLES]);
        }),
        test("two_vrfs_of_wide_interfaces_with_the_same_addresses_stay_apart", || {
            two_vrfs(false, &[WIDE_INTERFACE])
        }),
    ]
}

/// Cables, and all of the middle host's interfaces in a VRF.
const IN_VRF: Links = Links { lay: &in_vrf, vrf: Some("red"), ..CABLES };

fn in_vrf(net: &Net) {
    lay_narrow(net);
    lay_wide(net);
    lay_other(net);
    enslave(&net.middle, "red", 10, &["to-narrow", "to-wide", "to-other"]);
}

/// Puts interfaces into a new VRF.
fn enslave(host: &Host, vrf: &str, table: u32, interfaces: &[&str]) {
    ip(host, &format!("link add {vrf} type vrf table {table}"));
    ip(host, &format!("link set {vrf} up"));
    for version in ["", "-6 "] {
        ip(host, &format!("{version}route add vrf {vrf} unreachable default metric 4278198272"));
    }
    for interface in interfaces {
        ip(host, &format!("link set {interface} master {vrf}"));
    }
}

/// The narrow link alone is in a VRF; routes lead out of it and back.
fn leaked_routes() {
    let outcome = |config: Option<&str>| {
        let side = Side::new("red");
        let middle = Host::new("middle").unwrap();
        settings(&middle, true);
        side.join(&middle);
        enslave(&middle, "red", 10, &["red-to-n"]);
        side.give_addresses(&middle);
        for (version, network) in [("", "10.78"), ("-6 ", "fd78:")] {
            let [wide, narrow] = if version.is_empty() {
                [format!("{network}.1.0/24"), format!("{network}.2.0/24")]
            } else {
                [format!("{network}1::/64"), format!("{network}2::/64")]
            };
            ip(&middle, &format!("{version}route add {wide} dev red-to-w table 10"));
            ip(&middle, &format!("{version}route add {narrow} dev red-to-n"));
        }
        let service = config.map(|config| start(&middle, config, "red"));
        let directions =
            [(&side.narrow, &side.wide, [v4(1, 1), v6(1, 1)]), (&side.wide, &side.narrow, [v4(2, 1), v6(2, 1)])];
        let all = || -> Vec<Delivered> {
            directions
                .iter()
                .flat_map(|(from, to, targets)| targets.map(|target| Datagrams::new(from, to, target).send()))
                .collect()
        };
        let until = Instant::now() + TIMEOUT;
        while !all().iter().all(Delivered::is_all) {
            assert!(Instant::now() < until, "not all comes through: {:?}", all());
        }
        assert!(service.as_ref().is_none_or(|service| taken_from_narrow(service) > 0), "nothing was taken");
        all()
    };
    let without = outcome(None);
    for config in [ROUTER_THAT_JOINS, ROUTER_THAT_REASSEMBLES] {
        assert_eq!(outcome(Some(config)), without, "{config}");
    }
}

fn sockets_outside() {
    let arrived = alike_by(
        IN_VRF,
        Middle::Stock,
        WIDE_INTERFACES,
        |_| (),
        |net, _| {
            ["0", "1"].map(|lets| {
                net.middle.space().set_sysctl("ipv4/udp_l3mdev_accept", lets).unwrap();
                [v4(2, 2), v6(2, 2)].map(|target| {
                    let mut datagrams = Datagrams::new(&net.narrow, &net.middle, target);
                    // No socket outside is bound to an address of the VRF.
                    datagrams.at.set_ip(datagrams.source.ip());
                    datagrams.send()
                })
            })
        },
    );
    let [kept_out, let_in] = arrived;
    assert!(kept_out.iter().all(Delivered::is_none), "{kept_out:?}");
    assert!(let_in.iter().all(Delivered::is_all), "{let_in:?}");
}

/// A middle host with two VRFs, each with a narrow and a wide host. All addresses exist twice.
struct Twice {
    middle: Host,
    sides: [Side; 2],
    services: Vec<Service>,
}

struct Side {
    vrf: &'static str,
    narrow: Host,
    wide: Host,
    /// Interface of the narrow host.
    device: String,
}

impl Side {
    fn new(vrf: &'static str) -> Side {
        let [narrow, wide] = ["narrow", "wide"].map(|name| Host::new(name).unwrap());
        [&narrow, &wide].into_iter().for_each(|host| settings(host, false));
        Side { vrf, narrow, wide, device: format!("{vrf}-n") }
    }

    /// Names of the middle host's interfaces.
    fn names(&self) -> [String; 2] {
        ["to-n", "to-w"].map(|name| format!("{}-{name}", self.vrf))
    }

    /// Connects both cables.
    fn join(&self, middle: &Host) {
        let [to_narrow, to_wide] = self.names();
        lay([(&self.narrow, &self.device), (middle, &to_narrow)], 1_500);
        lay([(middle, &to_wide), (&self.wide, "wide")], 9_000);
    }

    /// Sets the addresses of all interfaces, and the routes to the hosts.
    fn give_addresses(&self, middle: &Host) {
        let [to_narrow, to_wide] = self.names();
        let Side { narrow, wide, device, .. } = self;
        for (host, name, network, number) in [
            (narrow, device, 2, 1),
            (middle, &to_narrow, 2, 2),
            (middle, &to_wide, 1, 2),
            (wide, &"wide".to_owned(), 1, 1),
        ] {
            ip(host, &format!("addr add {}/24 dev {name}", v4(network, number)));
            ip(host, &format!("addr add {}/64 dev {name} nodad", v6(network, number)));
        }
        ip(narrow, "route add default via 10.78.2.2");
        ip(narrow, "-6 route add default via fd78:2::2");
        ip(wide, "route add default via 10.78.1.2");
        ip(wide, "-6 route add default via fd78:1::2 mtu 1500");
    }
}

fn settings(host: &Host, forwards: bool) {
    for name in ["ipv6/conf/default/accept_dad", "ipv6/conf/all/accept_dad", "ipv4/conf/all/rp_filter"] {
        host.space().set_sysctl(name, "0").unwrap();
    }
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        host.space().set_sysctl(name, if forwards { "1" } else { "0" }).unwrap();
    }
}

fn start(middle: &Host, config: &str, vrf: &str) -> Service {
    let config = Config::parse(&config.replace("{vrf}", vrf), &format!("{vrf}.toml")).unwrap();
    middle.space().enter(|| Service::start(config)).unwrap()
}

/// Packets from the narrow link that a gateway received.
fn taken_from_narrow(service: &Service) -> u64 {
    service.snapshots().unwrap().iter().map(|snapshot| snapshot.ends[1].rx.packets).sum()
}

impl Twice {
    /// If `forwards`, the middle host is a router. Gateways with this configuration run in the first `count` VRFs.
    fn new(forwards: bool, config: Option<&str>, count: usize) -> Twice {
        let middle = Host::new("middle").unwrap();
        settings(&middle, forwards);
        let sides = ["red", "blue"].map(Side::new);
        for (side, table) in sides.iter().zip(10..) {
            side.join(&middle);
            enslave(&middle, side.vrf, table, &side.names().each_ref().map(String::as_str));
            side.give_addresses(&middle);
        }
        let start = |side: &Side| config.map(|config| start(&middle, config, side.vrf));
        let services = sides.iter().take(count).filter_map(start).collect();
        let twice = Twice { middle, sides, services };
        // Interfaces that have just come up drop packets for a moment.
        for side in &twice.sides {
            for target in twice.targets(forwards) {
                let until = Instant::now() + TIMEOUT;
                while !twice.datagrams(side, forwards, target).send().is_all() {
                    assert!(Instant::now() < until, "{}: nothing comes to {target}", side.vrf);
                }
            }
        }
        twice
    }

    /// Addresses of the host to which the narrow ones send.
    fn targets(&self, forwards: bool) -> [IpAddr; 2] {
        if forwards { [v4(1, 1), v6(1, 1)] } else { [v4(2, 2), v6(2, 2)] }
    }

    fn datagrams<'a>(&'a self, side: &'a Side, forwards: bool, target: IpAddr) -> Datagrams<'a> {
        let (to, device) = if forwards { (&side.wide, None) } else { (&self.middle, Some(side.vrf)) };
        Datagrams { device, ..Datagrams::new(&side.narrow, to, target) }
    }

    /// Sends fragments of two datagrams in turns, one in each VRF, with the same addresses and the same ID. Returns
    /// whether each arrived unchanged.
    fn in_turns(&self, forwards: bool) -> Vec<bool> {
        let target = self.targets(forwards)[0];
        let receivers = self.sides.each_ref().map(|side| {
            let (to, device) = if forwards { (&side.wide, None) } else { (&self.middle, Some(side.vrf)) };
            let receiver = to.space().enter(|| bound(SocketAddr::new(target, PORT), device)).unwrap();
            receiver.set_read_timeout(Some(TIMEOUT / 10)).unwrap();
            receiver
        });
        let messages = [[7; 4_000], [8; 4_000]];
        let frames = [0, 1].map(|at| {
            let Side { vrf, narrow, device, .. } = &self.sides[at];
            let to =
                self.middle.tell(|netlink| Ok(netlink.interface(&format!("{vrf}-to-n"))?.mac)).unwrap().unwrap();
            let wire = narrow.space().enter(|| FrameSocket::open(device)).unwrap();
            let packets = fragments(target, &messages[at]);
            (
                wire,
                packets
                    .iter()
                    .map(|packet| [&to[..], &[2, 0, 0, 0, 0, 1, 8, 0], packet].concat())
                    .collect::<Vec<_>>(),
            )
        });
        for number in 0..frames[0].1.len() {
            for (wire, frames) in &frames {
                wire.send(&frames[number]).unwrap();
            }
        }
        let mut room = [0; 5_000];
        let mut whole = |at: usize| {
            let len = receivers[at].recv(&mut room).unwrap_or_default();
            room[..len] == messages[at]
        };
        vec![whole(0), whole(1)]
    }
}

fn two_vrfs(forwards: bool, configs: &[&str]) {
    let outcome = |twice: &Twice| {
        let mut arrived: Vec<Vec<[usize; LENS.len()]>> = Vec::new();
        for side in &twice.sides {
            let targets = twice.targets(forwards);
            arrived.push(targets.map(|target| twice.datagrams(side, forwards, target).send().arrived).to_vec());
        }
        let back = twice.sides.iter().flat_map(|side| {
            [v4(2, 1), v6(2, 1)].map(|target| {
                let (from, source_device) =
                    if forwards { (&side.wide, None) } else { (&twice.middle, Some(side.vrf)) };
                Datagrams { source_device, ..Datagrams::new(from, &side.narrow, target) }.send()
            })
        });
        let back: Vec<Delivered> = back.collect();
        assert!(back.iter().all(Delivered::is_all), "{back:?}");
        (arrived, twice.in_turns(forwards))
    };
    let without = outcome(&Twice::new(forwards, None, 0));
    assert!(without.1.iter().all(|whole| *whole), "{without:?}");
    for config in configs {
        for count in [1, 2] {
            let twice = Twice::new(forwards, Some(config), count);
            let before = twice.services.iter().map(taken_from_narrow).collect::<Vec<_>>();
            assert_eq!(outcome(&twice), without, "{count} gateways: {config}");
            let after = twice.services.iter().map(taken_from_narrow).collect::<Vec<_>>();
            assert!(
                after.len() == count && before.iter().zip(&after).all(|(before, after)| after > before),
                "{after:?}"
            );
        }
    }
}

const ROUTER_THAT_JOINS: &str = "role = \"router\"\n[wide]\nport = \"packet:{vrf}-to-w\"\nmtu = 9000\n\
                                 fragment-policy = \"merge\"\n[narrow]\nport = \"packet:{vrf}-to-n\"\nmtu = 1500\n";
const ROUTER_THAT_REASSEMBLES: &str = "role = \"router\"\n[wide]\nport = \"packet:{vrf}-to-w\"\nmtu = 9000\n\
                                       reassemble = true\n[narrow]\nport = \"packet:{vrf}-to-n\"\nmtu = 1500\n";
const WIDE_INTERFACE: &str = "role = \"wide-interface\"\n[wide]\nmtu = 65535\n[narrow]\nport = \"packet:{vrf}-to-n\"\n\
                              mtu = 1500\n";
