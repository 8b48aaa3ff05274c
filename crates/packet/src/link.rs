//! A frame's bytes in, where its IP packet starts out.

/// What stands in front of an IP packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Ethernet II, with any IEEE 802.1Q and 802.1ad tags.
    Ethernet,
    /// Nothing: the packet starts with its IP header.
    Ip,
    /// BSD loopback: four bytes of address family, in either byte order.
    Loopback,
    /// Linux cooked capture, version 1 (16 bytes).
    Cooked,
    /// Linux cooked capture, version 2 (20 bytes).
    Cooked2,
}
