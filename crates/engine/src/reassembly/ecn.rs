//! ECN fields of fragments -> the ECN field of their datagram (RFC 3168 section 5.3).
//!
//! No congestion mark may be lost in reassembly. The caller drops complete datagrams with an invalid mixture.

use packet::Ecn;

/// The ECN fields seen on a datagram's fragments, one bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct EcnSeen(u8);

impl EcnSeen {
    pub(super) const NONE: EcnSeen = EcnSeen(0);

    #[inline]
    pub(super) fn note(&mut self, ecn: Ecn) {
        self.0 |= 1 << ecn.bits();
    }

    /// Returns the ECN field of the complete datagram (RFC 3168 section 5.3, R042). A field that all fragments
    /// share is kept. CE wins if all fragments are ECN-capable. A mixture of ECT(0) and ECT(1) gives `first`.
    /// `None` if Not-ECT and ECN-capable fragments are mixed.
    pub(super) fn joined(self, first: Ecn) -> Option<Ecn> {
        let seen = |ecn: Ecn| self.0 & 1 << ecn.bits() != 0;
        match (seen(Ecn::NotEct), seen(Ecn::Ce)) {
            (true, _) if self.0 == 1 => Some(Ecn::NotEct),
            (true, _) => None,
            (false, true) => Some(Ecn::Ce),
            (false, false) => Some(first),
        }
    }

    /// Returns the ECN field of released fragments. CE wins, so that no fragment loses a mark. If Not-ECT and
    /// ECN-capable fragments are mixed, the host behind this gateway decides.
    pub(super) fn released(self, first: Ecn) -> Ecn {
        let has_ce = self.0 & 1 << Ecn::Ce.bits() != 0;
        if has_ce { Ecn::Ce } else { self.joined(first).unwrap_or(first) }
    }
}
