//! Faults of ours that the comparison found and that are not mended yet. Each leaves this list with its repair.

use super::compare::matches;
use super::{Links, PortKind, Role};

/// A fault.
pub(super) struct Open {
    pub name: &'static str,
    /// Kinds that show it; a `*` at the end stands for any letters.
    pub kinds: &'static [&'static str],
    pub roles: &'static [Role],
    pub ports: &'static [PortKind],
    pub links: &'static [Links],
    /// What happens.
    pub what: &'static str,
    /// What the kernel alone does.
    pub kernel: &'static str,
}

impl Open {
    pub(super) fn applies(&self, kind: &str, role: Role, port: PortKind, links: Links) -> bool {
        let is_here = self.roles.contains(&role) && self.ports.contains(&port) && self.links.contains(&links);
        is_here && self.kinds.iter().any(|pattern| matches(pattern, kind))
    }
}

/// All of them.
pub(super) const OPEN: &[Open] = &[
    Open {
        name: "router-xdp",
        kinds: &["*"],
        roles: &[Role::Router],
        ports: &[PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "no packet is routed: what neighbours answer does not come to the kernel that asked, and neighbours that were set for \
               good are asked, too",
        kernel: "routes",
    },
    Open {
        name: "two-tags",
        kinds: &["qinq", "qinq-8100"],
        roles: &[Role::Border],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "a frame with two tags and a full packet (1,522 bytes on a link of 1,500) never arrives at the narrow end",
        kernel: "passes it: the outer tag is not counted, and the bridge leaves room for one more",
    },
    Open {
        name: "old-duplicates",
        kinds: &["tcp-old-duplicates"],
        roles: &[Role::Border],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "segments that came before and new ones of their flow leave in another order than they came in",
        kernel: "passes them in their order",
    },
    Open {
        name: "pseudo-header-sum",
        kinds: &["tcp-checksum-of-pseudo-header"],
        roles: &[Role::Border],
        ports: &[PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "a wrong checksum that equals the sum of the pseudo-header counts as one left to the card, and is made right",
        kernel: "passes the wrong checksum, and the receiver drops the packet",
    },
    Open {
        name: "router-tags",
        kinds: &["vlan", "vlan-dei", "vlan-4095", "qinq", "qinq-8100", "qinq-9100", "three-tags", "long-vlan"],
        roles: &[Role::Router],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "packets behind VLAN tags are routed, and leave without their tags",
        kernel: "drops a frame whose VLAN it does not serve",
    },
    Open {
        name: "router-zero-length",
        kinds: &["ipv4-zero-length", "ipv6-zero-length"],
        roles: &[Role::Router],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "a packet whose length field is 0 gets its real length and is routed",
        kernel: "drops it (IPv4), or routes what the field says (IPv6)",
    },
    Open {
        name: "router-options",
        kinds: &["ipv4-record-route", "ipv4-timestamp", "ipv4-source-route", "ipv4-options-bad"],
        roles: &[Role::Router],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "options of IPv4 are not looked at: no address or time is recorded, source routes and broken options pass",
        kernel: "records (RFC 1812 section 4.2.2.2), drops source routes, answers broken options with a parameter problem",
    },
    Open {
        name: "router-martians",
        kinds: &["ipv4-martians", "ipv6-martians", "ipv6-link-local"],
        roles: &[Role::Router],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "packets from loopback, multicast, unspecified, link-local and reserved addresses are routed",
        kernel: "drops them (RFC 1812 section 5.3.7, RFC 4291 section 2.5)",
    },
    Open {
        name: "router-ten-headers",
        kinds: &["ipv6-ten-headers"],
        roles: &[Role::Router],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "a packet of IPv6 behind ten extension headers never arrives",
        kernel: "routes it: a router does not read them (RFC 8200 section 4)",
    },
    Open {
        name: "static-neighbours",
        kinds: &["tcp-syn-flood"],
        roles: &[Role::Router],
        ports: &[PortKind::Packet, PortKind::Xdp],
        links: &[Links::Plain, Links::Offloads],
        what: "permanent neighbours are asked for again (NTF_USE takes the permanence away), and packets beyond the first 256 are lost while the answer is awaited",
        kernel: "sends to a permanent neighbour without asking",
    },
];
