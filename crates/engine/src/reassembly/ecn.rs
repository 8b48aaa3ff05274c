//! Congestion marks of fragments -> the one of their datagram (RFC 3168 section 5.3).

use packet::Ecn;

/// The congestion marks seen on a datagram's pieces, one bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct EcnSeen(u8);

impl EcnSeen {
    pub(super) const NONE: EcnSeen = EcnSeen(0);

    #[inline]
    pub(super) fn note(&mut self, ecn: Ecn) {
        self.0 |= 1 << ecn.bits();
    }

    /// The mark of the whole: one that all pieces share; congestion where one of those that take part met it; none
    /// where some take part and some do not (RFC 3168 section 5.3, R042).
    pub(super) fn joined(self, first: Ecn) -> Option<Ecn> {
        let seen = |ecn: Ecn| self.0 & 1 << ecn.bits() != 0;
        match (seen(Ecn::NotEct), seen(Ecn::Ce)) {
            (true, _) if self.0 == 1 => Some(Ecn::NotEct),
            (true, _) => None,
            (false, true) => Some(Ecn::Ce),
            (false, false) => Some(first),
        }
    }

    /// The mark of pieces that are released: congestion where one of them met it, so that none loses it. Where some
    /// take part and some do not, the host behind us judges.
    pub(super) fn released(self, first: Ecn) -> Ecn {
        let has_ce = self.0 & 1 << Ecn::Ce.bits() != 0;
        if has_ce { Ecn::Ce } else { self.joined(first).unwrap_or(first) }
    }
}
