//! Network namespace -> a list of all settings, each with a name and a value. Two such lists can be compared.
//!
//! The inventory covers everything that a gateway could leave changed: interfaces with their features and programs,
//! addresses, and routes of every table. The inventory also covers routing rules, permanent neighbours, settings
//! below `/proc/sys/net`, packet sockets and abstract Unix sockets. Counters, ages and learned neighbours are left
//! out, because they change by themselves.

use linux::failure::failed;
use linux::features::Features;
use linux::netlink::Netlink;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, address::AddressFlags};
use offload::{Hook, attached};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::Path;

/// All settings of a network namespace, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Items and their values.
    pub items: BTreeMap<String, String>,
    /// Whether an address is still in duplicate address detection. If so, the value of the address will change.
    pub has_tentative: bool,
}

/// An item that changed. `None` stands for an item that did not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The item.
    pub item: String,
    /// Value in the earlier inventory; `None` if the item did not exist.
    pub before: Option<String>,
    /// Value in the later inventory; `None` if the item does not exist.
    pub after: Option<String>,
}

impl Inventory {
    /// Lists all settings of the calling thread's namespace.
    ///
    /// # Errors
    /// A failed kernel query; no privilege to list eBPF programs.
    pub fn take() -> io::Result<Inventory> {
        let mut inventory = Inventory::default();
        let mut netlink = Netlink::open()?;
        let names = inventory.interfaces(&mut netlink)?;
        inventory.addresses(&mut netlink, &names)?;
        inventory.routes(&mut netlink, &names)?;
        inventory.neighbours(&mut netlink, &names)?;
        inventory.settings(Path::new(SETTINGS));
        inventory.sockets(&names)?;
        Ok(inventory)
    }

    /// Returns the items whose values differ in a later inventory.
    pub fn differences(&self, later: &Inventory) -> Vec<Difference> {
        let of = |items: &BTreeMap<String, String>, item: &str| items.get(item).cloned();
        let added = later.items.keys().filter(|item| !self.items.contains_key(*item));
        let mut names: Vec<&String> = self.items.keys().chain(added).collect();
        names.sort();
        let compare = |item: &String| {
            let (before, after) = (of(&self.items, item), of(&later.items, item));
            (before != after).then(|| Difference { item: item.clone(), before, after })
        };
        names.into_iter().filter_map(compare).collect()
    }

    /// Adds an item. An item that exists already gets a number behind its name.
    fn add(&mut self, item: String, value: impl Into<String>) {
        let mut count = 2;
        let mut name = item.clone();
        while self.items.contains_key(&name) {
            name = format!("{item} ({count})");
            count += 1;
        }
        self.items.insert(name, value.into());
    }

    /// Adds all interfaces. Returns their names by index.
    fn interfaces(&mut self, netlink: &mut Netlink) -> io::Result<HashMap<u32, String>> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut names = HashMap::new();
        for answer in netlink.list(question, "cannot list interfaces")? {
            let RouteNetlinkMessage::NewLink(message) = answer else { continue };
            let index = message.header.index;
            let name = message.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            });
            let name = name.unwrap_or_else(|| index.to_string());
            self.add(format!("interface {name} flags"), format!("{:?}", message.header.flags));
            for attribute in message.attributes.iter().filter(|attribute| is_set(attribute)) {
                let text = format!("{attribute:?}");
                let (what, value) = text.split_once('(').unwrap_or((&text, ""));
                self.add(format!("interface {name} {what}"), value.strip_suffix(')').unwrap_or(value));
            }
            for feature in Features::of(&name)?.on() {
                self.add(format!("interface {name} feature {feature}"), "on");
            }
            for (hook, what) in [(Hook::Ingress, "ingress"), (Hook::Egress, "egress")] {
                for program in attached(index, hook)? {
                    self.add(format!("interface {name} program at its {what}"), format!("number {program}"));
                }
            }
            names.insert(index, name);
        }
        Ok(names)
    }

    fn addresses(&mut self, netlink: &mut Netlink, names: &HashMap<u32, String>) -> io::Result<()> {
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for answer in netlink.list(question, "cannot list addresses")? {
            let RouteNetlinkMessage::NewAddress(message) = answer else { continue };
            let is_tentative = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Flags(flags) => flags.contains(AddressFlags::Tentative),
                _ => false,
            };
            self.has_tentative |= message.attributes.iter().any(is_tentative);
            let lasts = |attribute: &&AddressAttribute| !matches!(attribute, AddressAttribute::CacheInfo(_));
            let text = spelled(message.attributes.iter().filter(lasts), names);
            let name = named(message.header.index, names);
            self.add(format!("address {name} {text}/{}", message.header.prefix_len), "there");
        }
        Ok(())
    }

    fn routes(&mut self, netlink: &mut Netlink, names: &HashMap<u32, String>) -> io::Result<()> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            for answer in netlink.list(RouteNetlinkMessage::GetRoute(question), "cannot list routes")? {
                let RouteNetlinkMessage::NewRoute(RouteMessage { header, attributes, .. }) = answer else {
                    continue;
                };
                let lasts = |attribute: &&RouteAttribute| {
                    !matches!(
                        attribute,
                        RouteAttribute::CacheInfo(_)
                            | RouteAttribute::Expires(_)
                            | RouteAttribute::Destination(_)
                            | RouteAttribute::Table(_)
                    )
                };
                let text = spelled(attributes.iter().filter(lasts), names);
                let destination = attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(address.to_string()),
                    RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(address.to_string()),
                    _ => None,
                });
                let table = attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Table(table) => Some(*table),
                    _ => None,
                });
                let destination = destination.unwrap_or_else(|| format!("default {family:?}"));
                let (table, bits) = (table.unwrap_or(header.table.into()), header.destination_prefix_length);
                let (kind, flags) = (header.kind, header.flags);
                self.add(format!("route {destination}/{bits} table {table} {kind:?} {text} {flags:?}"), "there");
            }
            let mut question = RuleMessage::default();
            question.header.family = family;
            for answer in netlink.list(RouteNetlinkMessage::GetRule(question), "cannot list rules")? {
                let RouteNetlinkMessage::NewRule(message) = answer else { continue };
                let text = spelled(message.attributes.iter(), names);
                let priority = message.attributes.iter().find_map(|attribute| match attribute {
                    RuleAttribute::Priority(priority) => Some(*priority),
                    _ => None,
                });
                let priority = priority.unwrap_or_default();
                self.add(format!("rule {priority} {family:?} {:?} {text}", message.header.action), "there");
            }
        }
        Ok(())
    }

    /// Adds all permanent neighbours.
    fn neighbours(&mut self, netlink: &mut Netlink, names: &HashMap<u32, String>) -> io::Result<()> {
        let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        for answer in netlink.list(question, "cannot list neighbours")? {
            let RouteNetlinkMessage::NewNeighbour(message) = answer else { continue };
            if message.header.state == NeighbourState::Permanent {
                let lasts = |attribute: &&NeighbourAttribute| {
                    matches!(
                        attribute,
                        NeighbourAttribute::Destination(_) | NeighbourAttribute::LinkLayerAddress(_)
                    )
                };
                let text = spelled(message.attributes.iter().filter(lasts), names);
                self.add(format!("neighbour {} {text}", named(message.header.ifindex, names)), "permanent");
            }
        }
        Ok(())
    }

    /// Adds all readable settings below a folder of `/proc/sys/net`.
    fn settings(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(SETTINGS).unwrap_or(&path).display().to_string();
            if path.is_dir() {
                self.settings(&path);
            } else if !OF_THEIR_OWN.contains(&name.as_str())
                && let Ok(value) = fs::read_to_string(&path)
            {
                self.add(format!("setting {name}"), value.trim_end());
            }
        }
    }

    fn sockets(&mut self, names: &HashMap<u32, String>) -> io::Result<()> {
        let read = |file: &str| fs::read_to_string(file).map_err(|why| failed(file, &why));
        for line in read(PACKET_SOCKETS)?.lines().skip(1) {
            // Columns: address, users, type, protocol, interface.
            let mut words = line.split_whitespace().skip(3);
            let (protocol, index) = (words.next().unwrap_or_default(), words.next().and_then(|it| it.parse().ok()));
            let name = index.map(|index| named(index, names)).unwrap_or_default();
            self.add(format!("packet socket {name} protocol {protocol}"), "open");
        }
        for name in read(UNIX_SOCKETS)?.lines().filter_map(|line| line.split_once('@')) {
            self.add(format!("abstract socket {}", name.1), "open");
        }
        Ok(())
    }
}

/// Whether the attribute depends only on the configuration.
fn is_set(attribute: &LinkAttribute) -> bool {
    !matches!(
        attribute,
        LinkAttribute::IfName(_)
            | LinkAttribute::Stats(_)
            | LinkAttribute::Stats64(_)
            | LinkAttribute::CarrierChanges(_)
            | LinkAttribute::CarrierUpCount(_)
            | LinkAttribute::CarrierDownCount(_)
            | LinkAttribute::Event(_)
            // The inventory has these settings below /proc/sys/net as well.
            | LinkAttribute::AfSpecUnspec(_)
    )
}

/// Formats attributes as a line, with interface names in place of indices, because indices change.
fn spelled<'a, T: Debug + 'a>(attributes: impl Iterator<Item = &'a T>, names: &HashMap<u32, String>) -> String {
    let spell = |attribute: &T| {
        let text = format!("{attribute:?}");
        match text.strip_prefix("Oif(").and_then(|index| index.strip_suffix(')')?.parse().ok()) {
            Some(index) => format!("by {}", named(index, names)),
            None => text,
        }
    };
    attributes.map(spell).collect::<Vec<_>>().join(" ")
}

fn named(index: u32, names: &HashMap<u32, String>) -> String {
    names.get(&index).cloned().unwrap_or_else(|| format!("interface {index}"))
}

const SETTINGS: &str = "/proc/sys/net";
/// Settings that change by themselves, or that all namespaces share.
const OF_THEIR_OWN: [&str; 4] = [
    "netfilter/nf_conntrack_count",
    "ipv4/tcp_available_congestion_control",
    "ipv4/tcp_available_ulp",
    "ipv4/tcp_fastopen_key",
];
/// List of packet sockets in the calling thread's namespace. The other threads may be in another namespace.
const PACKET_SOCKETS: &str = "/proc/thread-self/net/packet";
const UNIX_SOCKETS: &str = "/proc/thread-self/net/unix";

#[cfg(test)]
mod tests {
    use super::*;
    use linux::addresses::Prefix;
    use linux::features::{self, Toggle};
    use linux::namespace::Namespace;
    use linux::routes::Route;
    use offload::intercept::Intercept;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn every_namespace_change_is_a_difference_until_restored() {
        let [here, there] = [0; 2].map(|_| Namespace::new().expect("the test runs as root"));
        here.enter(|| {
            let mut netlink = Netlink::open().expect("sockets are free");
            netlink.make_veth("a0", "b0", &there).expect("the test runs as root");
            netlink.set_up("a0").expect("it is there");
            let index = netlink.interface("a0").expect("it is there").index;
            let before = Inventory::take().expect("the kernel tells");
            let differs = |what: &[&str]| {
                let differences = before.differences(&Inventory::take().expect("the kernel tells"));
                let items: Vec<_> = differences.iter().map(|difference| difference.item.as_str()).collect();
                for what in what {
                    assert!(items.iter().any(|item| item.contains(what)), "{what}: {items:?}");
                }
                assert!(!what.is_empty() || items.is_empty(), "{items:?}");
            };
            differs(&[]);

            let other =
                if Features::of("a0").expect("it is there").is_on("rx-gro") { Toggle::Off } else { Toggle::On };
            let previous = features::set("a0", &[("rx-gro", other)]).expect("a veth can do it");
            differs(&["interface a0 feature rx-gro"]);
            previous.restore().expect("it is there");

            let program = Intercept::all(index).expect("the test runs as root");
            differs(&["interface a0 program at its ingress"]);
            drop(program);

            let address: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
            netlink.add_address("a0", Prefix::new(address, 24)).expect("the test runs as root");
            let route = Route { table: 77, ..Route::on(Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24), index) };
            netlink.add_route(&route).expect("the test runs as root");
            netlink.add_rule(77, 77).expect("the test runs as root");
            differs(&[
                "address a0",
                "route 198.51.100.0/24 table 77",
                "rule 77 Inet ToTable",
                "rule 77 Inet6 ToTable",
            ]);
            netlink.remove_rule(77, 77).expect("it is there");
            netlink.remove_route(&route).expect("it is there");
            netlink.remove_address("a0", Prefix::new(address, 24)).expect("it is there");

            let setting = "ipv4/conf/a0/forwarding";
            let usual = here.sysctl(setting).expect("it is there");
            here.set_sysctl(setting, if usual == "0" { "1" } else { "0" }).expect("the test runs as root");
            differs(&["setting ipv4/conf/a0/forwarding"]);
            here.set_sysctl(setting, &usual).expect("the test runs as root");

            netlink.set_promiscuous("a0", Toggle::On).expect("the test runs as root");
            differs(&["interface a0 Promiscuity", "interface a0 flags"]);
            netlink.set_promiscuous("a0", Toggle::Off).expect("the test runs as root");

            let socket = linux::device::socket(libc::AF_PACKET, libc::SOCK_RAW).expect("the test runs as root");
            differs(&["packet socket"]);
            drop(socket);
            differs(&[]);
        });
    }
}
