//! The differences between a gateway and the kernel that are wanted, each with what it is and why.

use super::compare::{Evidence, Packet, matches};
use super::{Middle, Role};

/// A difference that is wanted.
pub(super) struct Known {
    pub name: &'static str,
    /// Kinds that may show it; a `*` at the end stands for any letters.
    pub kinds: &'static [&'static str],
    pub roles: &'static [Role],
    pub middles: &'static [Middle],
    pub what: &'static str,
    pub why: &'static str,
    /// Takes just this difference out of the evidence.
    pub excuse: fn(&mut Evidence<'_>),
}

impl Known {
    pub(super) fn applies(&self, kind: &str, role: Role, middle: Middle) -> bool {
        let is_here = self.roles.contains(&role) && self.middles.contains(&middle);
        is_here && self.kinds.iter().any(|pattern| matches(pattern, kind))
    }
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[
    Known {
        name: "mss",
        kinds: &["tcp-*"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway],
        what: "a SYN's MSS is larger",
        why: "hosts are told that longer segments are welcome; all else in the SYN stays",
        excuse: |evidence| {
            evidence.pair(|kernel, ours| {
                let (Some(theirs), Some(own)) = (Packet::read(kernel), Packet::read(ours)) else { return false };
                let (Some((theirs_at, from)), Some((own_at, to))) = (theirs.mss(), own.mss()) else { return false };
                let blank = |packet: &Packet<'_>, at: usize| {
                    let mut bytes = packet.bytes.to_vec();
                    bytes[at..at + 2].fill(0);
                    bytes[packet.transport_at + 16..packet.transport_at + 18].fill(0);
                    bytes
                };
                theirs_at == own_at && from < to && own.is_right() && blank(&theirs, theirs_at) == blank(&own, own_at)
            });
        },
    },
    Known {
        name: "segments",
        kinds: &["tcp-*"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway],
        what: "TCP segments are joined or cut",
        why: "this is what a border is for; the bytes of each stream are the same, in order, in packets that fit the link",
        excuse: |evidence| evidence.compare_streams(),
    },
];
