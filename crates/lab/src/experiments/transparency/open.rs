//! Faults of ours that the comparison found and that are not mended yet. Each leaves this list with its repair.

use super::compare::matches;
use super::{Links, PortKind, Role};

/// A fault.
pub(super) struct Open {
    pub name: &'static str,
    /// Kinds that show it; a `*` at the end stands for any letters.
    pub kinds: &'static [&'static str],
    pub roles: &'static [Role],
    pub ports: &'static [PortKind],
    pub links: &'static [Links],
    /// What happens.
    pub what: &'static str,
    /// What the kernel alone does.
    pub kernel: &'static str,
}

impl Open {
    pub(super) fn applies(&self, kind: &str, role: Role, port: PortKind, links: Links) -> bool {
        let is_here = self.roles.contains(&role) && self.ports.contains(&port) && self.links.contains(&links);
        is_here && self.kinds.iter().any(|pattern| matches(pattern, kind))
    }
}

/// All of them.
pub(super) const OPEN: &[Open] = &[];
