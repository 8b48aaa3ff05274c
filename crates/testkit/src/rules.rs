//! A packet's fields -> may it share a header with its neighbours, may it be cut into segments: the rulings,
//! written once more in the plainest way.

use crate::fields::{ACK, CWR, ECE, FIN, IPV4_LEN, PSH, RST, SYN, TCP, URG, long};
use crate::read::ReadPacket;
use std::hash::{DefaultHasher, Hash, Hasher};

impl ReadPacket {
    /// May it share its header with its neighbours? A whole TCP segment with payload and a right checksum, no flags
    /// but ACK, PSH, FIN and ECE, no options but one of time stamps.
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

    /// May it be cut into segments? Not what opens, resets or is urgent, or whose options sign it or cannot be
    /// read.
    pub fn may_be_segmented(&self) -> bool {
        self.protocol == TCP
            && self.has_header
            && !self.is_fragment()
            && !self.is_authenticated
            && self.flags & (SYN | RST | URG) == 0
            && !signs(self.options())
    }

    /// Time stamps, where there is one option of them and no other.
    pub fn stamps(&self) -> Option<(u32, u32)> {
        let at = stamps(self.options())??;
        Some((long(self.options(), at), long(self.options(), at + 4)))
    }

    /// Everything that a TCP packet's bytes leave with unchanged, in one number: link header, IP header but for
    /// lengths, identification and checksum; ports, reserved bits, flags but CWR, PSH and FIN, urgent pointer,
    /// options but for the values of time stamps.
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

    /// An Authentication header or an option of IPv4 is about one packet alone.
    fn speaks_of_one(&self) -> bool {
        self.is_authenticated || self.version == 4 && self.header().len() > IPV4_LEN
    }
}

/// Where the time stamps' values stand, if nothing else stands among the options; none where anything else does.
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

/// Does an option sign the segment, or can the options not be read?
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
