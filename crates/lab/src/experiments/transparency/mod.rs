//! Kinds of traffic in, out: is anything different with Wideload in the path from what it is with the kernel alone?
//!
//! The same frames go through the same cables several times: with the kernel alone in the middle, with a gateway, and with a
//! gateway whose stages are all off. What arrives has to be the same frames, in the same order within each flow. A difference
//! that is wanted stands in `known.rs` with its reason; one that is a fault stands in `open.rs` until it is mended.

mod compare;
mod frames;
mod kinds;
mod known;
mod open;
mod rig;

use super::Conditions;
use compare::Evidence;
use frames::{Frames, Sent, Side};
use kinds::{KINDS, Kind};
use rig::{Arrived, Rig};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Instant;

/// What a gateway is in these comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Beside the kernel's bridge.
    Border,
    /// Beside the kernel's forwarding.
    Router,
}

/// By which ports a gateway stands on its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// Packet sockets.
    Packet,
    /// AF_XDP.
    Xdp,
}

/// What the links are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// No offloads: each frame is what a wire would carry.
    Plain,
    /// As the kernel makes them.
    Offloads,
}

/// What stands in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Middle {
    /// The kernel alone.
    Kernel,
    /// A gateway as its role has it.
    Gateway,
    /// A gateway with all stages off.
    Bypassed,
    /// A router that joins fragments on the way.
    Graceful,
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct TransparencySettings {
    /// Kinds, by their names; none: all.
    pub kinds: Vec<String>,
    /// Roles, one after the other.
    pub roles: Vec<Role>,
    /// Ports, one after the other.
    pub ports: Vec<PortKind>,
    /// Links, one after the other.
    pub links: Vec<Links>,
    /// Only kinds of the short run?
    pub is_short: bool,
}

impl Default for TransparencySettings {
    fn default() -> TransparencySettings {
        TransparencySettings {
            kinds: Vec::new(),
            roles: vec![Role::Border, Role::Router],
            ports: vec![PortKind::Packet, PortKind::Xdp],
            links: vec![Links::Plain, Links::Offloads],
            is_short: false,
        }
    }
}

impl TransparencySettings {
    /// Few kinds, and a border by packet sockets on links without offloads: a matter of seconds.
    pub fn short() -> TransparencySettings {
        TransparencySettings {
            kinds: Vec::new(),
            roles: vec![Role::Border],
            ports: vec![PortKind::Packet],
            links: vec![Links::Plain],
            is_short: true,
        }
    }
}

/// What was compared.
#[derive(Clone, Debug, Serialize)]
pub struct Transparency {
    /// Under which conditions.
    pub conditions: Conditions,
    /// A row for each kind, role, port, links and middle.
    pub rows: Vec<TransparencyRow>,
    /// Listed and open differences that were met, with their sentences.
    pub differences: BTreeMap<&'static str, String>,
    /// Seconds that all of it took.
    pub seconds: f64,
}

/// What became of one kind in one middle.
#[derive(Clone, Debug, Serialize)]
pub struct TransparencyRow {
    /// The kind's name.
    pub kind: &'static str,
    /// What it belongs to.
    pub family: &'static str,
    /// The gateway's role.
    pub role: Role,
    /// Its ports.
    pub port: PortKind,
    /// The links.
    pub links: Links,
    /// What stood in the middle.
    pub middle: Middle,
    /// Frames that were sent.
    pub sent: usize,
    /// Frames that arrived with the kernel alone, and with this middle.
    pub arrived: [usize; 2],
    /// Is anything different?
    pub verdict: Verdict,
    /// Names of the differences, in `known.rs` and `open.rs`.
    pub names: Vec<&'static str>,
    /// The first difference, where it is not listed.
    pub first: Option<String>,
    /// The command that repeats it, where it is not listed.
    pub repeat: Option<String>,
}

/// Is anything different?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing is.
    Same,
    /// All differences are listed.
    Listed,
    /// A fault that is known.
    Open,
    /// Something is that nobody knew of.
    Different,
}

/// The name of a kind, as the table has it.
///
/// # Errors
/// There is none of this name.
pub fn transparency_kind_named(name: &str) -> Result<String, String> {
    let found = KINDS.iter().find(|kind| kind.name == name).map(|kind| kind.name.to_owned());
    found
        .ok_or_else(|| format!("`{name}` is no kind; `wideload lab transparency --list` shows all {}", KINDS.len()))
}

/// All kinds, a line each: family, name, and whether the short run has it.
pub fn transparency_list() -> String {
    let line = |kind: &Kind| {
        let note = if kind.is_short { "  short" } else { "" };
        format!("{:<12}{:<30}{note}", kind.family, kind.name).trim_end().to_owned() + "\n"
    };
    KINDS.iter().map(line).collect()
}

/// Sends each kind through each middle, and compares.
///
/// # Errors
/// The right to make networks is missing, or a middle does not start.
pub fn transparency(settings: &TransparencySettings, mut tell: impl FnMut(&str)) -> io::Result<Transparency> {
    let begun = Instant::now();
    let is_wanted = |kind: &Kind| {
        let is_named = settings.kinds.is_empty() || settings.kinds.iter().any(|name| name == kind.name);
        is_named && (kind.is_short || !settings.is_short)
    };
    let wanted: Vec<usize> = (0..KINDS.len()).filter(|&index| is_wanted(&KINDS[index])).collect();
    let mut rows = Vec::new();
    for &role in &settings.roles {
        for &links in &settings.links {
            for &port in &settings.ports {
                let scene = Scene { role, links, port };
                let mut seen = scene.compare(&wanted, 0, &mut tell)?;
                // What a busy machine did once, it does not do again.
                let odd: Vec<usize> = wanted
                    .iter()
                    .copied()
                    .filter(|&index| {
                        seen.iter().any(|row| row.kind == KINDS[index].name && row.verdict == Verdict::Different)
                    })
                    .collect();
                if !odd.is_empty() {
                    let again = scene.compare(&odd, 1, &mut tell)?;
                    for row in &mut seen {
                        let same = |other: &&TransparencyRow| (other.kind, other.middle) == (row.kind, row.middle);
                        if let Some(other) = again.iter().find(same)
                            && row.verdict == Verdict::Different
                        {
                            *row = other.clone();
                        }
                    }
                }
                rows.extend(seen);
            }
        }
    }
    let met = rows.iter().flat_map(|row| &row.names).map(|&name| (name, sentence(name))).collect();
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Transparency { conditions: Conditions::here(1), rows, differences: met, seconds })
}

fn sentence(name: &str) -> String {
    let known = known::KNOWN.iter().find(|known| known.name == name);
    let open = open::OPEN.iter().find(|open| open.name == name);
    known.map(|known| format!("{}: {}", known.what, known.why)).unwrap_or_else(|| {
        open.map(|open| format!("OPEN: {}; the kernel: {}", open.what, open.kernel)).unwrap_or_default()
    })
}

/// Where kinds are compared.
#[derive(Clone, Copy)]
struct Scene {
    role: Role,
    links: Links,
    port: PortKind,
}

impl Scene {
    fn middles(self) -> &'static [Middle] {
        match self.role {
            Role::Border => &[Middle::Gateway, Middle::Bypassed],
            Role::Router => &[Middle::Gateway, Middle::Bypassed, Middle::Graceful],
        }
    }

    fn compare(
        self,
        wanted: &[usize],
        attempt: u8,
        tell: &mut impl FnMut(&str),
    ) -> io::Result<Vec<TransparencyRow>> {
        let Scene { role, links, port } = self;
        let mut rig = Rig::new(role, links)?;
        let routers = rig.routers()?;
        let number = |index: usize| [attempt, index as u8 + 1];
        let mut sent: Vec<(usize, Vec<Sent>)> = Vec::new();
        for &index in wanted {
            let mut frames = Frames::new(number(index), routers);
            introduce(&rig, &frames, role)?;
            (KINDS[index].make)(&mut frames);
            sent.push((index, frames.sent));
        }
        let probes = Frames::new([attempt, 255], routers);
        introduce(&rig, &probes, role)?;
        let mut play = |middle: Middle, wanted: &[Arrived]| -> io::Result<Vec<Arrived>> {
            let place = format!("{} by {}, {} links, {}", role.config(), port.name(), links.name(), middle.name());
            tell(&place);
            let standing = rig.stand(middle, port)?;
            match rig.settle(&settling(&probes)) {
                // What passes nothing is compared as that.
                Err(why) if why.kind() == io::ErrorKind::TimedOut && middle != Middle::Kernel => {
                    rig.clear(standing)?;
                    return Ok(vec![Arrived::default(); sent.len()]);
                }
                settled => settled.map_err(|why| io::Error::new(why.kind(), format!("{place}: {why}")))?,
            }
            let mut all = Vec::new();
            for (at, (index, sent)) in sent.iter().enumerate() {
                tell(&format!("{place}: {}", KINDS[*index].name));
                let counts = wanted.get(at).map_or([0; 2], |[wide, narrow]| [wide.len(), narrow.len()]);
                all.push(rig.play(sent, counts)?);
            }
            rig.clear(standing)?;
            Ok(all)
        };
        let by_kernel = play(Middle::Kernel, &[])?;
        let mut rows = Vec::new();
        for &middle in self.middles() {
            let by_us = play(middle, &by_kernel)?;
            for (((index, sent), kernel), ours) in sent.iter().zip(&by_kernel).zip(by_us) {
                rows.push(self.judge(&KINDS[*index], middle, sent, kernel, ours));
            }
        }
        Ok(rows)
    }

    fn judge(self, kind: &Kind, middle: Middle, sent: &[Sent], kernel: &Arrived, ours: Arrived) -> TransparencyRow {
        let Scene { role, links, port } = self;
        let count = |arrived: &Arrived| arrived[0].len() + arrived[1].len();
        let arrived = [count(kernel), count(&ours)];
        let mut evidence = Evidence { sent, kernel: kernel.clone(), ours };
        let mut names = Vec::new();
        for known in known::KNOWN.iter().filter(|known| known.applies(kind.name, role, middle)) {
            if evidence.difference().is_none() {
                break;
            }
            let before = (evidence.kernel.clone(), evidence.ours.clone());
            (known.excuse)(&mut evidence);
            if before != (evidence.kernel.clone(), evidence.ours.clone()) {
                names.push(known.name);
            }
        }
        let first = evidence.difference();
        let mut verdict = match (&first, names.is_empty()) {
            (None, true) => Verdict::Same,
            (None, false) => Verdict::Listed,
            (Some(_), _) => Verdict::Different,
        };
        if let Some(open) = open::OPEN.iter().find(|open| open.applies(kind.name, role, port, links))
            && first.is_some()
        {
            verdict = Verdict::Open;
            names.push(open.name);
        }
        let repeat = first.is_some().then(|| {
            format!(
                "wideload lab transparency --kind {} --role {} --port {} --links {}",
                kind.name,
                role.config(),
                port.name(),
                links.name()
            )
        });
        let (kind, family) = (kind.name, kind.family);
        TransparencyRow {
            kind,
            family,
            role,
            port,
            links,
            middle,
            sent: sent.len(),
            arrived,
            verdict,
            names,
            first,
            repeat,
        }
    }
}

/// Neighbours of a router.
fn introduce(rig: &Rig, frames: &Frames, role: Role) -> io::Result<()> {
    if role != Role::Router {
        return Ok(());
    }
    for side in [Side::Wide, Side::Narrow] {
        rig.introduce(side, frames.v4(side).into(), frames.mac(side))?;
        rig.introduce(side, frames.v6(side).into(), frames.mac(side))?;
    }
    Ok(())
}

/// A small datagram from each end.
fn settling(probes: &Frames) -> Vec<Sent> {
    let mut frames = Frames::new([0xEE, 0], None);
    for from in [Side::Wide, Side::Narrow] {
        let bytes = probes.ip4(from, 253, &[0; 40]).bytes();
        frames.ether_to(from, probes.next_hop(from), 0x0800, &bytes);
    }
    frames.sent
}

impl Role {
    /// Its name, as a configuration has it.
    pub fn config(self) -> &'static str {
        match self {
            Role::Border => "border",
            Role::Router => "router",
        }
    }
}

impl PortKind {
    /// Its name, as an address begins.
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Packet => "packet",
            PortKind::Xdp => "xdp",
        }
    }
}

impl Links {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Links::Plain => "plain",
            Links::Offloads => "offloads",
        }
    }
}

impl Middle {
    fn name(self) -> &'static str {
        match self {
            Middle::Kernel => "kernel",
            Middle::Gateway => "gateway",
            Middle::Bypassed => "stages off",
            Middle::Graceful => "graceful",
        }
    }
}

impl Transparency {
    /// Is nothing different but what is listed, and, where that is allowed, what is open?
    pub fn is_good(&self, allows_open: bool) -> bool {
        self.count(Verdict::Different) == 0 && (allows_open || self.count(Verdict::Open) == 0)
    }

    /// Rows with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

impl fmt::Display for Transparency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns: Vec<_> = self.rows.iter().map(|row| (row.role, row.links, row.port, row.middle)).collect();
        columns.sort();
        columns.dedup();
        for (number, (role, links, port, middle)) in columns.iter().enumerate() {
            let (role, links) = (role.config(), links.name());
            writeln!(
                f,
                "{}: {role} by {port}, {links} links, {middle}",
                number + 1,
                port = port.name(),
                middle = middle.name()
            )?;
        }
        write!(f, "\n{:<30}", "kind")?;
        (1..=columns.len()).try_for_each(|number| write!(f, "{number:>10}"))?;
        writeln!(f)?;
        let mut kinds: Vec<&str> = Vec::new();
        self.rows.iter().for_each(|row| {
            if !kinds.contains(&row.kind) {
                kinds.push(row.kind);
            }
        });
        for kind in kinds {
            write!(f, "{kind:<30}")?;
            let mut names: Vec<&str> = Vec::new();
            for column in &columns {
                let found = self
                    .rows
                    .iter()
                    .find(|row| row.kind == kind && (row.role, row.links, row.port, row.middle) == *column);
                let word = match found.map(|row| row.verdict) {
                    Some(Verdict::Same) => "same",
                    Some(Verdict::Listed) => "listed",
                    Some(Verdict::Open) => "OPEN",
                    Some(Verdict::Different) => "DIFFERENT",
                    None => "-",
                };
                names.extend(found.map(|row| row.names.as_slice()).unwrap_or_default());
                write!(f, "{word:>10}")?;
            }
            names.sort_unstable();
            names.dedup();
            writeln!(f, "  {}", names.join(", ").trim_end())?;
        }
        for row in self.rows.iter().filter(|row| row.first.is_some()) {
            let (role, port, links, middle) =
                (row.role.config(), row.port.name(), row.links.name(), row.middle.name());
            let first = row.first.as_deref().unwrap_or_default();
            writeln!(f, "\n{}, {role} by {port}, {links} links, {middle}: {first}", row.kind)?;
            row.repeat.iter().try_for_each(|command| writeln!(f, "repeat with: {command}"))?;
        }
        writeln!(f)?;
        for (name, sentence) in &self.differences {
            writeln!(f, "{name}: {sentence}")?;
        }
        writeln!(
            f,
            "{} same, {} listed, {} open, {} different, in {:.0} s; Linux {}",
            self.count(Verdict::Same),
            self.count(Verdict::Listed),
            self.count(Verdict::Open),
            self.count(Verdict::Different),
            self.seconds,
            self.conditions.kernel
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_frames_that_do_not_change() {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count < 255, "addresses have a byte for it");
        for kind in KINDS {
            let make = || {
                let mut frames = Frames::new([0, 1], None);
                (kind.make)(&mut frames);
                frames.sent.into_iter().map(|sent| sent.bytes).collect::<Vec<_>>()
            };
            assert!(!make().is_empty() && make() == make(), "{}", kind.name);
        }
    }

    #[test]
    fn each_listed_and_each_open_difference_names_kinds_that_there_are() {
        let patterns =
            known::KNOWN.iter().flat_map(|known| known.kinds).chain(open::OPEN.iter().flat_map(|open| open.kinds));
        for pattern in patterns {
            assert!(KINDS.iter().any(|kind| compare::matches(pattern, kind.name)), "{pattern}");
        }
    }
}
