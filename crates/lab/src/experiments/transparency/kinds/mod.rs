//! Name of a kind of traffic -> the frames to send, valid and faulty.
//!
//! Each file has the kinds of one layer. Results are listed in the order of `KINDS`.

mod icmp;
mod ip;
mod link;
mod tcp;
mod transports;

use super::frames::{Frames, Side};
use std::sync::LazyLock;

/// A kind of traffic, with its name and a function that creates its frames.
#[derive(Clone)]
pub(super) struct Kind {
    pub name: &'static str,
    pub family: &'static str,
    /// Whether the kind is part of the short comparison.
    pub is_short: bool,
    pub make: fn(&mut Frames),
}

const N: Side = Side::Narrow;
const W: Side = Side::Wide;
const BOTH: [Side; 2] = [N, W];

const fn kind(family: &'static str, name: &'static str, make: fn(&mut Frames)) -> Kind {
    Kind { name, family, is_short: false, make }
}

const fn short(family: &'static str, name: &'static str, make: fn(&mut Frames)) -> Kind {
    Kind { name, family, is_short: true, make }
}

/// All kinds of raw frames.
pub(super) static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    [
        link::NEIGHBOURS_LINKS_GROUPS,
        transports::TRANSPORTS_AND_TUNNELS,
        tcp::SEGMENTS,
        ip::HEADERS_V4,
        transports::DATAGRAMS,
        ip::HEADERS_V6,
        ip::FRAGMENTS,
        icmp::MESSAGES,
        ip::TOO_LONG,
    ]
    .concat()
});

/// IPv4 router alert option (RFC 2113).
const ALERT: [u8; 4] = [148, 4, 0, 0];
const ALL_NODES: [u8; 16] = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
