//! A fragment, and a datagram that is being put together -> may it join?
//!
//! Whoever joins fragments asks here: for a fragment that goes on where a hint says, for one whose datagram is
//! looked for, for one whose payload was received in its place, and for the first of its datagram. A fast path
//! brings the facts more cheaply: a hint for a search, an answer that it remembers for one that it would get again.
//! It decides nothing.

use super::holes::Fit;
use crate::ledger::Reason;
use packet::icmp::IcmpError;
use packet::{AddressPair, Fragment, Ip, L2Scope, Packet, PrevHop, UNIT, Version};

/// Are two fragments of the same datagram? Those are that have the same key (RFC 791 section 3.2, R006; RFC 8200
/// section 4.5, R093), and came by the same port and VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramKey {
    pub(super) id: u32,
    pub(super) version: Version,
    pub(super) protocol: u8,
    pub(super) ends: AddressPair,
    pub(super) origin: L2Scope,
    /// Who cut it, where only that one's pieces are joined.
    pub(super) hop: Option<PrevHop>,
}

impl DatagramKey {
    /// The key of a fragment.
    #[inline(always)]
    pub(crate) fn of(fragment: &Packet, frag: Fragment, hop: Option<PrevHop>) -> DatagramKey {
        let (version, protocol) = (fragment.ip().version, fragment.ip().key_protocol());
        DatagramKey { id: frag.id, version, protocol, ends: fragment.ends(), origin: fragment.origin(), hop }
    }

    /// Is it the key of this fragment, whoever cut it? The same, without making another key. A fragment of the
    /// shape of one that the key is of has its version and protocol.
    #[inline(always)]
    pub(super) fn is_of(&self, fragment: &Packet, frag: Fragment, is_of_its_shape: bool) -> bool {
        let ip = fragment.ip();
        self.id == frag.id
            && (is_of_its_shape || self.version == ip.version && self.protocol == ip.key_protocol())
            && fragment.has_ends(&self.ends)
            && self.origin == fragment.origin()
            && self.hop.is_none()
    }
}

/// May the identification of a datagram be another's by this time? It may where its hosts have started so many
/// others since that half of all identifications are used up. `of_all` counts those of all hosts, and is no
/// smaller.
#[inline(always)]
pub(super) fn id_may_have_wrapped(version: Version, of_all: u32, of_its_hosts: impl FnOnce() -> u32) -> bool {
    let half = 1 << (version.id_bits() - 1);
    of_all >= half && of_its_hosts() >= half
}

/// What is wrong with a fragment by itself, and what its sender is to be told.
pub(crate) fn fault(packet: &Packet, frag: Fragment) -> Option<(Reason, Option<IcmpError>)> {
    let ip = packet.ip();
    match len_fault(ip, frag) {
        // RFC 8200 section 4.5 (R089): the payload length is what is wrong.
        Some(Reason::FragLenNot8) => {
            Some((Reason::FragLenNot8, Some(IcmpError::BadField { pointer: PAYLOAD_LEN_AT })))
        }
        // RFC 8200 section 4.5 (R090): the offset is what is wrong.
        Some(Reason::FragOversize) => {
            let pointer = u32::from(ip.header_len) + OFFSET_AT;
            Some((Reason::FragOversize, Some(IcmpError::BadField { pointer })))
        }
        Some(reason) => Some((reason, None)),
        None if packet.lacks_headers() => Some((Reason::FragHeadersCut, Some(IcmpError::HeadersCut))),
        None if ip.option_misplaced => Some((Reason::FragOption, None)),
        None => None,
    }
}

/// What is wrong with a fragment's length: it says nothing, its end is no place for another one to start, or lies
/// past every datagram.
#[inline]
pub(crate) fn len_fault(ip: &Ip, frag: Fragment) -> Option<Reason> {
    let len = ip.payload_len();
    if len == 0 {
        Some(Reason::FragZeroLen)
    } else if frag.more && !len.is_multiple_of(UNIT) {
        Some(Reason::FragLenNot8)
    } else if usize::from(frag.offset) + len > ip.payload_len_max() {
        Some(Reason::FragOversize)
    } else {
        None
    }
}

/// What speaks against a fragment that stands so to what its datagram has: a repeat is dropped alone, anything else
/// ends the datagram (RFC 5722 section 4, R063).
pub(super) fn conflict(fit: Fit, has_same_bytes: impl FnOnce() -> bool) -> Option<Reason> {
    match fit {
        Fit::Fills => None,
        Fit::Held if has_same_bytes() => Some(Reason::FragRepeat),
        Fit::Held | Fit::Overlaps => Some(Reason::FragOverlap),
        Fit::Contradicts => Some(Reason::FragConflict),
    }
}

/// Where the payload length stands in an IPv6 header, and the offset in a Fragment header.
const PAYLOAD_LEN_AT: u32 = 4;
/// See [`PAYLOAD_LEN_AT`].
const OFFSET_AT: u32 = 2;
