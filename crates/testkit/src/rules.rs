//! A packet's fields -> whether it may be coalesced with its neighbours, and whether it may be segmented.
//!
//! These are the rulings, written a second time in the plainest form.

use crate::fields::{ACK, CWR, ECE, FIN, IPV4_LEN, PSH, RST, SYN, TCP, URG, long};
use crate::read::ReadPacket;
use std::hash::{DefaultHasher, Hash, Hasher};

impl ReadPacket {
    /// Whether it may share its header with its neighbours: a whole TCP segment with payload and a right checksum.
    /// Flags other than ACK, PSH, FIN and ECE exclude it, and so do options other than one timestamp option.
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

    /// Whether it may be segmented. Excluded are packets that open or reset a connection or are urgent, and packets
    /// with signing or unreadable options.
    pub fn may_be_segmented(&self) -> bool {
        self.protocol == TCP
            && self.has_header
            && !self.is_fragment()
            && !self.is_authenticated
            && self.flags & (SYN | RST | URG) == 0
            && !signs(self.options())
    }

    /// The timestamps, if they are the only option.
    pub fn stamps(&self) -> Option<(u32, u32)> {
        let at = stamps(self.options())??;
        Some((long(self.options(), at), long(self.options(), at + 4)))
    }

    /// A hash of everything that must be unchanged in a TCP packet at egress:
    ///
    /// - the link header;
    /// - the IP header but for lengths, identification and checksum;
    /// - ports, reserved bits, urgent pointer, and flags but CWR, PSH and FIN;
    /// - options but for the timestamp values.
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

    /// Whether an Authentication header or an option of IPv4 describes this packet alone.
    fn speaks_of_one(&self) -> bool {
        self.is_authenticated || self.version == 4 && self.header().len() > IPV4_LEN
    }
}

/// Offset of the timestamp values; inner none: no options. Outer none: there is any other option.
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

/// Whether an option signs the segment, or the options cannot be read.
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
