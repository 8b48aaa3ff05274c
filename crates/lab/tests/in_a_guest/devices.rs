//! A kind of device -> two such devices, connected by a cable or between two hosts.

use crate::net::{Net, ip, lay, run};
use packet::Version;
use std::io::Write;
use std::process::Command;
use tempfile::NamedTempFile;
use wideload_lab::net::Host;

/// A feature that not every kernel has.
#[derive(Debug)]
pub struct Need {
    /// Name of the feature.
    pub what: &'static str,
    /// Commands that succeed if the feature exists. The host has the two ends `one` and `other` of a cable.
    probe: &'static [&'static str],
}

impl Need {
    /// The message if the kernel lacks the feature.
    pub fn missing(&self) -> Option<String> {
        let host = Host::new("probe").unwrap();
        host.tell(|netlink| netlink.make_veth("one", "other", host.space())).unwrap();
        self.probe.iter().find_map(|line| {
            let (program, words) = line.split_once(' ').unwrap();
            let tried = host.space().enter(|| Command::new(program).args(words.split(' ')).output());
            match tried {
                Ok(output) if output.status.success() => None,
                Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
                Err(error) => Some(format!("{program}: {error}")),
            }
        })
    }
}

/// A kind of device that carries packets over another link.
#[derive(Debug)]
pub struct Device {
    /// Name of the kind in the names of tests.
    pub name: &'static str,
    pub needs: &'static [&'static Need],
    /// The IP versions that cross the device.
    pub versions: &'static [Version],
    /// Length of the headers that the device adds, in bytes.
    pub overhead: u32,
    /// Whether the device's packets may exceed the MTU of their path. Such packets leave in fragments.
    pub is_cut: bool,
    /// Whether the device makes GSO packets.
    pub makes_gso: bool,
    /// The commands that create a device. `{name}` is the device's name and `{over}` the interface below. `{own}`,
    /// `{peer}`, `{own6}` and `{peer6}` are addresses of both ends. `{key}` and `{of_peer}` are a file with a
    /// private key and the peer's public key. `{path}` sets whether the device's packets may leave in fragments.
    make: &'static [&'static str],
}

/// The length of a tunnel's packets, inner packet included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The packets fit the narrow link's MTU.
    Fits,
    /// The packets exceed the narrow link's MTU.
    TooLong,
}

/// One end of the link below devices.
#[derive(Clone, Copy)]
pub struct Below<'a> {
    pub host: &'a Host,
    /// The interface.
    pub over: &'a str,
    /// IPv4 address of the interface; `v6` is the IPv6 address.
    pub v4: &'a str,
    pub v6: &'a str,
}

impl Device {
    /// The path kinds that are possible for the device.
    pub fn paths(&self) -> &'static [Path] {
        if self.is_cut { &[Path::Fits, Path::TooLong] } else { &[Path::Fits] }
    }

    /// Creates two devices with these names and the MTU `mtu`.
    pub fn make(&self, below: [Below<'_>; 2], names: [&str; 2], mtu: u32, path: Path) {
        for at in [0, 1] {
            self.make_one(at, below, names[at], mtu, path);
        }
    }

    /// Creates one of the two devices, with the MTU `mtu`.
    pub fn make_one(&self, at: usize, below: [Below<'_>; 2], name: &str, mtu: u32, path: Path) {
        let (own, peer) = (below[at], below[1 - at]);
        let mut key = NamedTempFile::new().unwrap();
        key.write_all(KEYS[at].0.as_bytes()).unwrap();
        let up = format!("ip link set {name} mtu {mtu} up");
        for line in self.make.iter().copied().chain([&*up]) {
            let line = line
                .replace("{name}", name)
                .replace("{over}", own.over)
                .replace("{own}", own.v4)
                .replace("{peer}", peer.v4)
                .replace("{own6}", own.v6)
                .replace("{peer6}", peer.v6)
                .replace("{key}", key.path().to_str().unwrap())
                .replace("{of_peer}", KEYS[1 - at].1)
                .replace("{path}", if path == Path::Fits { "ttl 64" } else { "nopmtudisc" });
            let (program, words) = line.split_once(' ').unwrap();
            run(own.host, program, &words.split(' ').collect::<Vec<_>>());
        }
    }

    /// Connects the narrow host and the middle host by two devices over a cable.
    pub fn lay_narrow(&self, net: &Net) {
        self.lay([&net.narrow, &net.middle], ["narrow", "to-narrow"], 1_500);
    }

    /// Connects the middle host and the wide host in the same way.
    pub fn lay_wide(&self, net: &Net) {
        self.lay([&net.middle, &net.wide], ["to-wide", "wide"], 9_000);
    }

    fn lay(&self, hosts: [&Host; 2], names: [&str; 2], mtu: u32) {
        let overs = names.map(|name| format!("below-{}", &name[name.len() - 4..]));
        // The suffix distinguishes two devices in one host.
        let overs = [format!("{}-1", overs[0]), format!("{}-2", overs[1])];
        let at = |end: usize| Below {
            host: hosts[end],
            over: &overs[end],
            v4: ["10.79.0.1", "10.79.0.2"][end],
            v6: ["fd79::1", "fd79::2"][end],
        };
        let below = [at(0), at(1)];
        lay(below.map(|end| (end.host, end.over)), mtu);
        for end in below {
            ip(end.host, &format!("addr add {}/24 dev {}", end.v4, end.over));
            ip(end.host, &format!("addr add {}/64 dev {} nodad", end.v6, end.over));
        }
        self.make(below, names, mtu - self.overhead, Path::Fits);
    }
}

const fn need(what: &'static str, probe: &'static [&'static str]) -> Need {
    Need { what, probe }
}

pub const VRF: Need = need("vrf", &["ip link add probe type vrf table 10"]);
const VLAN_DEVICE: Need = need("vlan", &["ip link add link one name probe type vlan id 10"]);
const BONDING: Need = need("bond", &["ip link add probe type bond"]);
const MACVLAN_DEVICE: Need = need("macvlan", &["ip link add link one name probe type macvlan mode bridge"]);
const IPIP_DEVICE: Need = need("ipip", &["ip link add probe type ipip local 10.0.0.1 remote 10.0.0.2"]);
const SIT_DEVICE: Need = need("sit", &["ip link add probe type sit mode any local 10.0.0.1 remote 10.0.0.2"]);
const IP6TNL_DEVICE: Need =
    need("ip6tnl", &["ip link add probe type ip6tnl mode any local fd00::1 remote fd00::2"]);
const GRE_DEVICE: Need = need("gre", &["ip link add probe type gre local 10.0.0.1 remote 10.0.0.2"]);
const IP6GRE_DEVICE: Need = need("ip6gre", &["ip link add probe type ip6gre local fd00::1 remote fd00::2"]);
const VXLAN_DEVICE: Need = need("vxlan", &["ip link add probe type vxlan id 7 remote 10.0.0.2 dstport 4789"]);
const GENEVE_DEVICE: Need = need("geneve", &["ip link add probe type geneve id 7 remote 10.0.0.2"]);
const FOU_PORT: Need = need("fou", &["ip fou add port 5555 ipproto 4"]);
const WIREGUARD_DEVICE: Need = need("wireguard", &["ip link add probe type wireguard", "wg show probe"]);

const V4: &[Version] = &[Version::V4];
const V6: &[Version] = &[Version::V6];
const BOTH: &[Version] = &[Version::V4, Version::V6];

pub const VLAN: Device = Device {
    name: "vlan",
    needs: &[&VLAN_DEVICE],
    versions: BOTH,
    overhead: 0,
    is_cut: false,
    makes_gso: true,
    make: &["ip link add link {over} name {name} type vlan id 10"],
};
/// An 802.1Q tag behind an 802.1ad tag.
pub const QINQ: Device = Device {
    name: "qinq",
    needs: &[&VLAN_DEVICE],
    versions: BOTH,
    overhead: 4,
    is_cut: false,
    makes_gso: true,
    make: &[
        "ip link add link {over} name {over}.o type vlan protocol 802.1ad id 10",
        "ip link set {over}.o up",
        "ip link add link {over}.o name {name} type vlan id 20",
    ],
};
pub const BOND: Device = Device {
    name: "bond",
    needs: &[&BONDING],
    versions: BOTH,
    overhead: 0,
    is_cut: false,
    makes_gso: true,
    make: &[
        "ip link add {name} type bond mode active-backup miimon 100",
        "ip link set {over} down",
        "ip link set {over} master {name}",
    ],
};
pub const MACVLAN: Device = Device {
    name: "macvlan",
    needs: &[&MACVLAN_DEVICE],
    versions: BOTH,
    overhead: 0,
    is_cut: false,
    makes_gso: true,
    make: &["ip link add link {over} name {name} type macvlan mode bridge"],
};

/// IP in IP.
const IPIP: Device = Device {
    name: "ipip",
    needs: &[&IPIP_DEVICE],
    versions: V4,
    overhead: 20,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type ipip local {own} remote {peer} {path}"],
};
/// 6in4, and IP in IP by the same device.
const SIT: Device = Device {
    name: "sit",
    needs: &[&SIT_DEVICE],
    versions: BOTH,
    overhead: 20,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type sit mode any local {own} remote {peer} {path}"],
};
const IP6TNL: Device = Device {
    name: "ip6tnl",
    needs: &[&IP6TNL_DEVICE],
    versions: BOTH,
    overhead: 40,
    is_cut: false,
    makes_gso: true,
    make: &["ip link add {name} type ip6tnl mode any local {own6} remote {peer6} encaplimit none"],
};
const GRE: Device = Device {
    name: "gre",
    needs: &[&GRE_DEVICE],
    versions: BOTH,
    overhead: 24,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type gre local {own} remote {peer} {path}"],
};
const GRE_WITH_KEY_AND_CHECKSUM: Device = Device {
    name: "gre_with_key_and_checksum",
    needs: &[&GRE_DEVICE],
    versions: BOTH,
    overhead: 32,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type gre local {own} remote {peer} {path} key 7 csum"],
};
const IP6GRE: Device = Device {
    name: "ip6gre",
    needs: &[&IP6GRE_DEVICE],
    versions: BOTH,
    overhead: 44,
    is_cut: false,
    makes_gso: true,
    make: &["ip link add {name} type ip6gre local {own6} remote {peer6} encaplimit none"],
};
const VXLAN: Device = Device {
    name: "vxlan",
    needs: &[&VXLAN_DEVICE],
    versions: BOTH,
    overhead: 50,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type vxlan id 7 local {own} remote {peer} dstport 4789 noudpcsum"],
};
const VXLAN_WITH_CHECKSUM: Device = Device {
    name: "vxlan_with_checksum",
    needs: &[&VXLAN_DEVICE],
    versions: BOTH,
    overhead: 50,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type vxlan id 7 local {own} remote {peer} dstport 4789 udpcsum"],
};
const GENEVE: Device = Device {
    name: "geneve",
    needs: &[&GENEVE_DEVICE],
    versions: BOTH,
    overhead: 50,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type geneve id 7 remote {peer} noudpcsum"],
};
const GENEVE_WITH_CHECKSUM: Device = Device {
    name: "geneve_with_checksum",
    needs: &[&GENEVE_DEVICE],
    versions: BOTH,
    overhead: 50,
    is_cut: true,
    makes_gso: true,
    make: &["ip link add {name} type geneve id 7 remote {peer} udpcsum"],
};
/// IP in IP behind UDP.
const FOU: Device = Device {
    name: "fou",
    needs: &[&FOU_PORT, &IPIP_DEVICE],
    versions: V4,
    overhead: 28,
    is_cut: true,
    makes_gso: true,
    make: &[
        "ip fou add port 5555 ipproto 4",
        "ip link add {name} type ipip local {own} remote {peer} {path} encap fou encap-sport auto encap-dport 5555 encap-csum",
    ],
};
/// 6in4 behind UDP.
const FOU_6IN4: Device = Device {
    name: "fou_6in4",
    needs: &[&FOU_PORT, &SIT_DEVICE],
    versions: V6,
    overhead: 28,
    is_cut: true,
    makes_gso: true,
    make: &[
        "ip fou add port 5555 ipproto 41",
        "ip link add {name} type sit local {own} remote {peer} {path} encap fou encap-sport auto encap-dport 5555 noencap-csum",
    ],
};
const WIREGUARD: Device = Device {
    name: "wireguard",
    needs: &[&WIREGUARD_DEVICE],
    versions: BOTH,
    overhead: 80,
    is_cut: true,
    makes_gso: false,
    make: &[
        "ip link add {name} type wireguard",
        "wg set {name} listen-port 51820 private-key {key} peer {of_peer} endpoint {peer}:51820 allowed-ips 0.0.0.0/0,::/0",
    ],
};

/// Devices on an Ethernet link.
pub const ON_ETHERNET: &[&Device] = &[&VLAN, &QINQ, &BOND, &MACVLAN];
/// Devices that carry packets in packets.
pub const TUNNELS: &[&Device] = &[
    &IPIP,
    &SIT,
    &IP6TNL,
    &GRE,
    &GRE_WITH_KEY_AND_CHECKSUM,
    &IP6GRE,
    &VXLAN,
    &VXLAN_WITH_CHECKSUM,
    &GENEVE,
    &GENEVE_WITH_CHECKSUM,
    &FOU,
    &FOU_6IN4,
    &WIREGUARD,
];

/// Private and public keys of WireGuard, which protect no real data.
const KEYS: [(&str, &str); 2] = [
    ("2A1MMEnEqgV+1sMbh3SRZrplgYN9NE7tKF19VyiUSV0=", "S9JmzxnkbIJWE/ok4ttqPEgfZ5grjziyTC/4nx6oWm8="),
    ("uNTQn6Hsn2ateCS9OEs5nEWEQBywXXC510//owhRnUM=", "WeRgFiTrzq3vNZgOWLhOGLF3//dII4XpqNqNGHFt5HM="),
];
