//! A fragment and its datagram -> whether the fragment may be added.
//!
//! All paths that add a fragment use these checks: fragments found by a hint or a search, fragments received in
//! their slot, and first fragments. A fast path only obtains facts at less cost. A hint replaces a search, and a
//! remembered result replaces an equal one. No fast path makes decisions of its own.

use super::holes::Fit;
use crate::ledger::Reason;
use packet::icmp::IcmpError;
use packet::{AddressPair, Fragment, Ip, L2Scope, Packet, PrevHop, UNIT, Version};

/// The key of a datagram. Fragments of one datagram have equal keys (RFC 791 section 3.2, R006; RFC 8200 section
/// 4.5, R093). They also have an equal ingress port and equal VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramKey {
    pub(super) id: u32,
    pub(super) version: Version,
    pub(super) protocol: u8,
    pub(super) ends: AddressPair,
    pub(super) l2_scope: L2Scope,
    /// The previous hop, if only fragments of one hop are reassembled together. Otherwise `None`.
    pub(super) hop: Option<PrevHop>,
}

impl DatagramKey {
    /// Returns the key of a fragment's datagram.
    #[inline(always)]
    pub(crate) fn of(fragment: &Packet, frag: Fragment, hop: Option<PrevHop>) -> DatagramKey {
        let (version, protocol) = (fragment.ip().version, fragment.ip().key_protocol());
        DatagramKey { id: frag.id, version, protocol, ends: fragment.ends(), l2_scope: fragment.l2_scope(), hop }
    }

    /// Whether this is the key of a fragment's datagram. False for every key with a previous hop. The result equals
    /// a comparison of keys, but no second key is built. `is_of_its_shape`: the fragment has a fingerprint of this
    /// datagram, so version and protocol are equal.
    #[inline(always)]
    pub(super) fn is_of(&self, fragment: &Packet, frag: Fragment, is_of_its_shape: bool) -> bool {
        let ip = fragment.ip();
        self.id == frag.id
            && (is_of_its_shape || self.version == ip.version && self.protocol == ip.key_protocol())
            && fragment.has_ends(&self.ends)
            && self.l2_scope == fragment.l2_scope()
            && self.hop.is_none()
    }
}

/// Whether the identification of a datagram may have been reused: its hosts have started half as many later
/// datagrams as there are identifications. `of_all` is the number of later datagrams of all hosts, and therefore an
/// upper bound.
#[inline(always)]
pub(super) fn id_may_have_wrapped(version: Version, of_all: u32, of_its_hosts: impl FnOnce() -> u32) -> bool {
    let half = 1 << (version.id_bits() - 1);
    of_all >= half && of_its_hosts() >= half
}

/// Returns the fault of a single fragment, and the ICMP error for its source host. `None` if it is valid.
pub(crate) fn fault(packet: &Packet, frag: Fragment) -> Option<(Reason, Option<IcmpError>)> {
    let ip = packet.ip();
    match len_fault(ip, frag) {
        // RFC 8200 section 4.5 (R089): the error points to the payload length.
        Some(Reason::FragLenNot8) => {
            Some((Reason::FragLenNot8, Some(IcmpError::BadField { pointer: PAYLOAD_LEN_AT })))
        }
        // RFC 8200 section 4.5 (R090): the error points to the offset.
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

/// Returns the fault of a fragment's length. The length is zero, is no multiple of 8 bytes although more fragments
/// follow, or exceeds the maximum datagram length.
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

/// Returns the conflict between a fragment and its datagram. A repeated fragment is dropped alone. After any other
/// conflict, the complete datagram is dropped (RFC 5722 section 4, R063).
pub(super) fn conflict(fit: Fit, has_same_bytes: impl FnOnce() -> bool) -> Option<Reason> {
    match fit {
        Fit::Fills => None,
        Fit::Repeat if has_same_bytes() => Some(Reason::FragRepeat),
        Fit::Repeat | Fit::Overlaps => Some(Reason::FragOverlap),
        Fit::Contradicts => Some(Reason::FragConflict),
    }
}

/// Position of the payload length in an IPv6 header, in bytes.
const PAYLOAD_LEN_AT: u32 = 4;
/// Position of the offset in a Fragment header, in bytes.
const OFFSET_AT: u32 = 2;
