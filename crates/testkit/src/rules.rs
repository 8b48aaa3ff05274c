//! A packet's fields -> whether the packet may be coalesced or segmented.
//!
//! These functions repeat the rulings of the engine in the simplest form, so that tests can compare the two.

use crate::fields::{ACK, CWR, ECE, FIN, IPV4_LEN, PSH, RST, SYN, TCP, URG, long};
use crate::read::ReadPacket;
use std::hash::{DefaultHasher, Hash, Hasher};

impl ReadPacket {
    /// Whether the packet may be coalesced with neighbours. The packet must be an unfragmented TCP segment with
    /// payload and a correct checksum. Flags other than ACK, PSH, FIN and ECE exclude it. Options other than a
    /// single timestamp option exclude it, too.
    pub fn joins(&self) -> bool {
        self.protocol == TCP
            && self.has_header
            && !self.is_fragment()
            && !self.speaks_of_one()
            && self.sum_is_right
            && !self.payload().is_empty()
            && self.flags & !(PSH | FIN | ECE) == ACK
            && stamps(self.options()).is_some()
    }

    /// Whether the packet may be segmented. SYN, RST and URG exclude it, and so do an Authentication header and
    /// signing or malformed options.
    pub fn may_be_segmented(&self) -> bool {
        self.protocol == TCP
            && self.has_header
            && !self.is_fragment()
            && !self.is_authenticated
            && self.flags & (SYN | RST | URG) == 0
            && !signs(self.options())
    }

    /// The values of the timestamp option, if the segment has no other options.
    pub fn stamps(&self) -> Option<(u32, u32)> {
        let at = stamps(self.options())??;
        Some((long(self.options(), at), long(self.options(), at + 4)))
    }

    /// A hash of all parts of a TCP packet that a gateway must not change:
    ///
    /// - the link header;
    /// - the IP header, except lengths, identification and checksum;
    /// - ports, reserved bits, urgent pointer, and all flags except CWR, PSH and FIN;
    /// - options, except the timestamp values.
    pub fn surroundings(&self) -> u64 {
        let mut kept = self.frame[..self.payload_at].to_vec();
        let ip_at = self.ip_at;
        if self.version == 4 {
            kept[ip_at + 2..ip_at + 6].fill(0);
            kept[ip_at + 10..ip_at + 12].fill(0);
        } else {
            kept[ip_at + 4..ip_at + 6].fill(0);
        }
        let upper = &mut kept[self.upper_at..];
        upper[4..12].fill(0);
        upper[13] &= !(CWR | PSH | FIN);
        upper[14..18].fill(0);
        if let Some(Some(at)) = stamps(self.options()) {
            upper[20 + at..20 + at + 8].fill(0);
        }
        let mut hasher = DefaultHasher::new();
        kept.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the packet has headers that may be valid for this packet only: an Authentication header or IPv4
    /// options.
    fn speaks_of_one(&self) -> bool {
        self.is_authenticated || self.version == 4 && self.header().len() > IPV4_LEN
    }
}

/// Offset of the timestamp values in the options, in bytes. `None`: there are other options. `Some(None)`: there
/// are no timestamps, at most padding.
fn stamps(options: &[u8]) -> Option<Option<usize>> {
    let (mut at, mut found) = (0, None);
    while at < options.len() {
        match options[at] {
            0 => break,
            1 => at += 1,
            8 if found.is_none() && options.get(at + 1) == Some(&10) && at + 10 <= options.len() => {
                found = Some(at + 2);
                at += 10;
            }
            _ => return None,
        }
    }
    Some(found)
}

/// Whether an option signs the segment, or the options are malformed.
fn signs(options: &[u8]) -> bool {
    let mut at = 0;
    while at < options.len() {
        match (options[at], options.get(at + 1)) {
            (0, _) => return false,
            (1, _) => at += 1,
            (19 | 29, Some(len)) if *len >= 2 && at + usize::from(*len) <= options.len() => return true,
            (_, Some(len)) if *len >= 2 && at + usize::from(*len) <= options.len() => at += usize::from(*len),
            _ => return true,
        }
    }
    false
}
