//! Kinds of traffic -> differences between Wideload in the path and the kernel alone.
//!
//! The same frames are sent over the same links several times: with the kernel alone in the middle, with a gateway,
//! and with a gateway whose stages are all off. Each time the same frames must arrive, in the same order within
//! each flow. Intended differences are listed in `known.rs` with their reasons; any other difference is a fault. A
//! second table has exchanges between ordinary sockets. Their observations must not differ either.

mod compare;
mod frames;
mod kinds;
mod known;
mod rig;
mod socket_rig;
mod sockets;

use super::Conditions;
use compare::Evidence;
use frames::{Frames, SentFrame, Side};
use kinds::{KINDS, Kind};
use rig::{Arrived, Rig};
use serde::Serialize;
use socket_rig::SocketRig;
use sockets::{Notes, SOCKET_KINDS, SocketKind};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Instant;

/// Role of the gateway in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A border, compared with the kernel's bridge.
    Border,
    /// A router, compared with the kernel's forwarding.
    Router,
    /// A wide interface, compared with a host without Wideload. Both have all addresses of the wide side.
    WideInterface,
}

/// Kind of a gateway's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// Packet sockets (AF_PACKET).
    Packet,
    /// AF_XDP sockets.
    Xdp,
}

/// Offloads of the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Links without offloads, so that a real link could carry every frame.
    Plain,
    /// Links with the kernel's default offloads.
    Offloads,
}

/// The system in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Middle {
    /// The kernel alone, without Wideload.
    Kernel,
    /// A gateway with the default stages of its role.
    Gateway,
    /// A gateway with all stages off.
    Bypassed,
    /// A router that merges fragments in transit.
    Merging,
}

/// Kinds of traffic, roles, ports and links to compare.
#[derive(Clone, Debug)]
pub struct TransparencySettings {
    /// Names of the kinds; empty: all.
    pub kinds: Vec<String>,
    /// Roles to compare, in this order.
    pub roles: Vec<Role>,
    /// Kinds of ports to compare, in this order.
    pub ports: Vec<PortKind>,
    /// Kinds of links to compare, in this order.
    pub links: Vec<LinkKind>,
    /// Whether to compare only the kinds of the short comparison.
    pub is_short: bool,
}

impl Default for TransparencySettings {
    fn default() -> TransparencySettings {
        TransparencySettings {
            kinds: Vec::new(),
            roles: vec![Role::Border, Role::Router, Role::WideInterface],
            ports: vec![PortKind::Packet, PortKind::Xdp],
            links: vec![LinkKind::Plain, LinkKind::Offloads],
            is_short: false,
        }
    }
}

impl TransparencySettings {
    /// Returns settings for a comparison of a few seconds: few kinds, all roles, and packet sockets on links
    /// without offloads.
    pub fn short() -> TransparencySettings {
        TransparencySettings {
            kinds: Vec::new(),
            roles: vec![Role::Border, Role::Router, Role::WideInterface],
            ports: vec![PortKind::Packet],
            links: vec![LinkKind::Plain],
            is_short: true,
        }
    }
}

/// Results of all comparisons.
#[derive(Clone, Debug, Serialize)]
pub struct Transparency {
    /// Machine, kernel and program of the comparison.
    pub conditions: Conditions,
    /// One row for each kind, role, port, links and middle.
    pub rows: Vec<TransparencyRow>,
    /// Names and descriptions of the listed differences that occurred.
    pub differences: BTreeMap<&'static str, String>,
    /// Total duration, in seconds.
    pub seconds: f64,
}

/// Result of one kind in one middle.
#[derive(Clone, Debug, Serialize)]
pub struct TransparencyRow {
    /// Name of the kind of traffic.
    pub kind: &'static str,
    /// Family to which the kind belongs, such as `tcp` or `fragments`.
    pub family: &'static str,
    /// The gateway's role.
    pub role: Role,
    /// Kind of the gateway's ports.
    pub port: PortKind,
    /// Offloads of the links.
    pub links: LinkKind,
    /// The system in the middle.
    pub middle: Middle,
    /// Number of frames that were sent; for sockets, number of observations with the kernel alone.
    pub sent: usize,
    /// Number of frames that arrived, or of observations: with the kernel alone, and with this middle.
    pub arrived: [usize; 2],
    /// Whether there are differences, and whether all are listed.
    pub verdict: Verdict,
    /// Names of the differences, as in `known.rs`.
    pub names: Vec<&'static str>,
    /// The first unlisted difference; `None` without one.
    pub first: Option<String>,
    /// Command that repeats an unlisted difference; `None` without one.
    pub repeat: Option<String>,
}

/// Result of comparing one kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No difference.
    Same,
    /// All differences are listed.
    Listed,
    /// An unlisted difference.
    Different,
}

/// Returns the name of a kind of traffic, spelled as in the table.
///
/// # Errors
/// No kind has this name.
pub fn transparency_kind_named(name: &str) -> Result<String, String> {
    let found = names().find(|kind| *kind == name).map(str::to_owned);
    let count = names().count();
    found.ok_or_else(|| format!("there is no kind `{name}`; `wideload lab transparency --list` shows all {count}"))
}

fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name).chain(SOCKET_KINDS.iter().map(|kind| kind.name))
}

/// Returns a list of all kinds, one per line: family, name, and whether the kind is part of the short comparison.
pub fn transparency_list() -> String {
    let line = |(family, name, is_short): (&str, &str, bool)| {
        let note = if is_short { "  short" } else { "" };
        format!("{family:<12}{name:<30}{note}").trim_end().to_owned() + "\n"
    };
    let raw = KINDS.iter().map(|kind| (kind.family, kind.name, kind.is_short));
    raw.chain(SOCKET_KINDS.iter().map(|kind| (kind.family, kind.name, kind.is_short))).map(line).collect()
}

/// Sends each kind of traffic through each middle, compares the arrivals, and passes a description of each step to
/// `tell`.
///
/// # Errors
/// No privilege to create namespaces; a middle that does not start.
pub fn transparency(settings: &TransparencySettings, mut tell: impl FnMut(&str)) -> io::Result<Transparency> {
    let begun = Instant::now();
    let is_wanted = |name: &str, is_short: bool| {
        let is_named = settings.kinds.is_empty() || settings.kinds.iter().any(|wanted| wanted == name);
        is_named && (is_short || !settings.is_short)
    };
    let wanted = Wanted {
        frames: (0..KINDS.len()).filter(|&at| is_wanted(KINDS[at].name, KINDS[at].is_short)).collect(),
        sockets: (0..SOCKET_KINDS.len())
            .filter(|&at| is_wanted(SOCKET_KINDS[at].name, SOCKET_KINDS[at].is_short))
            .collect(),
    };
    let mut rows = Vec::new();
    for &role in &settings.roles {
        for &links in &settings.links {
            // Roles other than a border have one kind of port.
            let ports = if role == Role::Border { &settings.ports[..] } else { &[PortKind::Packet] };
            for &port in ports {
                let scene = Scene { role, links, port };
                let mut seen = scene.compare_all(&wanted, 0, &mut tell)?;
                // Kinds with differences are compared a second time. Differences that a busy machine caused do not
                // recur.
                let is_odd =
                    |name: &str| seen.iter().any(|row| row.kind == name && row.verdict == Verdict::Different);
                let odd = Wanted {
                    frames: wanted.frames.iter().copied().filter(|&at| is_odd(KINDS[at].name)).collect(),
                    sockets: wanted.sockets.iter().copied().filter(|&at| is_odd(SOCKET_KINDS[at].name)).collect(),
                };
                let again = scene.compare_all(&odd, 1, &mut tell)?;
                for row in &mut seen {
                    let same = |other: &&TransparencyRow| (other.kind, other.middle) == (row.kind, row.middle);
                    if let Some(other) = again.iter().find(same)
                        && row.verdict == Verdict::Different
                    {
                        *row = other.clone();
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
    if let Some(known) = known::KNOWN_OF_SOCKETS.iter().find(|known| known.name == name) {
        return format!("{}: {}", known.what, known.why);
    }
    known.map(|known| format!("{}: {}", known.what, known.why)).unwrap_or_default()
}

/// Indices of the wanted kinds in the tables.
struct Wanted {
    frames: Vec<usize>,
    sockets: Vec<usize>,
}

/// Role, ports and links with which kinds are compared.
#[derive(Clone, Copy)]
struct Scene {
    role: Role,
    links: LinkKind,
    port: PortKind,
}

impl Scene {
    fn middles(self) -> &'static [Middle] {
        match self.role {
            Role::Border | Role::WideInterface => &[Middle::Gateway, Middle::Bypassed],
            Role::Router => &[Middle::Gateway, Middle::Bypassed, Middle::Merging],
        }
    }

    fn compare_all(
        self,
        wanted: &Wanted,
        attempt: u8,
        tell: &mut impl FnMut(&str),
    ) -> io::Result<Vec<TransparencyRow>> {
        let mut rows = Vec::new();
        if !wanted.frames.is_empty() {
            rows.extend(self.compare(&wanted.frames, attempt, tell)?);
        }
        if !wanted.sockets.is_empty() {
            rows.extend(self.compare_sockets(&wanted.sockets, tell)?);
        }
        Ok(rows)
    }

    fn compare_sockets(self, wanted: &[usize], tell: &mut impl FnMut(&str)) -> io::Result<Vec<TransparencyRow>> {
        let Scene { role, links, port } = self;
        let mut play = |middle: Middle| -> io::Result<Vec<Notes>> {
            let place = format!("{} by {}, {} links, {}", role.config(), port.name(), links.name(), middle.name());
            tell(&place);
            let rig = SocketRig::new(role, links, port, middle)
                .map_err(|why| io::Error::new(why.kind(), format!("{place}: {why}")))?;
            let mut all = Vec::new();
            for &at in wanted {
                tell(&format!("{place}: {}", SOCKET_KINDS[at].name));
                all.push(rig.play(&SOCKET_KINDS[at], at as u8 + 1)?);
            }
            rig.end();
            Ok(all)
        };
        let by_kernel = play(Middle::Kernel)?;
        let mut rows = Vec::new();
        for &middle in self.middles() {
            for ((&at, kernel), ours) in wanted.iter().zip(&by_kernel).zip(play(middle)?) {
                rows.push(self.judge_notes(&SOCKET_KINDS[at], middle, kernel, &ours));
            }
        }
        Ok(rows)
    }

    /// Compares observations of sockets, line by line.
    fn judge_notes(self, kind: &SocketKind, middle: Middle, kernel: &Notes, ours: &Notes) -> TransparencyRow {
        let Scene { role, links, port } = self;
        let seen = |notes: &Notes, what: &str| {
            notes.all.iter().find(|(of, _)| of == what).map_or("nothing", |(_, seen)| seen.as_str()).to_owned()
        };
        let mut names = Vec::new();
        let mut first = None;
        let all = kernel.all.iter().chain(ours.all.iter().filter(|(what, _)| seen(kernel, what) == "nothing"));
        for (what, _) in all {
            let (theirs, own) = (seen(kernel, what), seen(ours, what));
            if theirs == own {
                continue;
            }
            let listed = known::KNOWN_OF_SOCKETS
                .iter()
                .find(|known| known.applies(kind.name, role, port, middle) && (known.excuse)(what, &theirs, &own));
            match listed {
                Some(known) if !names.contains(&known.name) => names.push(known.name),
                Some(_) => {}
                None => first = first.or(Some(format!("{what}: kernel: {theirs}; gateway: {own}"))),
            }
        }
        let verdict = match (&first, names.is_empty()) {
            (None, true) => Verdict::Same,
            (None, false) => Verdict::Listed,
            (Some(_), _) => Verdict::Different,
        };
        let repeat = first.is_some().then(|| self.repeat(kind.name));
        let (sent, arrived) = (kernel.all.len(), [kernel.all.len(), ours.all.len()]);
        let (kind, family) = (kind.name, kind.family);
        TransparencyRow { kind, family, role, port, links, middle, sent, arrived, verdict, names, first, repeat }
    }

    /// Returns the command that compares a kind with the same role, ports and links.
    fn repeat(self, kind: &str) -> String {
        let Scene { role, links, port } = self;
        let (role, port, links) = (role.config(), port.name(), links.name());
        format!("wideload lab transparency --kind {kind} --role {role} --port {port} --links {links}")
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
        let mut sent: Vec<(usize, Vec<SentFrame>)> = Vec::new();
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
            let started = rig.start(middle, port)?;
            match rig.wait_until_forwarding(&settling(&probes)) {
                // A middle that forwards nothing is compared as if no frame had arrived.
                Err(why) if why.kind() == io::ErrorKind::TimedOut && middle != Middle::Kernel => {
                    rig.clear(started)?;
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
            rig.clear(started)?;
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

    fn judge(
        self,
        kind: &Kind,
        middle: Middle,
        sent: &[SentFrame],
        kernel: &Arrived,
        ours: Arrived,
    ) -> TransparencyRow {
        let Scene { role, links, port } = self;
        let count = |arrived: &Arrived| arrived[0].len() + arrived[1].len();
        let arrived = [count(kernel), count(&ours)];
        let mut evidence = Evidence { port, sent, kernel: kernel.clone(), ours };
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
        let verdict = match (&first, names.is_empty()) {
            (None, true) => Verdict::Same,
            (None, false) => Verdict::Listed,
            (Some(_), _) => Verdict::Different,
        };
        let repeat = first.is_some().then(|| self.repeat(kind.name));
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

/// Gives a router the neighbour entries of the frames' hosts.
fn introduce(rig: &Rig, frames: &Frames, role: Role) -> io::Result<()> {
    if role == Role::Border {
        return Ok(());
    }
    for side in [Side::Wide, Side::Narrow] {
        rig.introduce(side, frames.v4(side).into(), frames.mac(side))?;
        rig.introduce(side, frames.v6(side).into(), frames.mac(side))?;
    }
    Ok(())
}

/// Returns a small datagram from each side, which shows that the middle forwards.
fn settling(probes: &Frames) -> Vec<SentFrame> {
    let mut frames = Frames::new([0xEE, 0], None);
    for from in [Side::Wide, Side::Narrow] {
        let bytes = probes.ip4(from, 253, &[0; 40]).bytes();
        frames.ether_to(from, probes.next_hop(from), 0x0800, &bytes);
    }
    frames.sent
}

impl Role {
    /// Returns the role's name in a configuration.
    pub fn config(self) -> &'static str {
        match self {
            Role::Border => "border",
            Role::Router => "router",
            Role::WideInterface => "wide-interface",
        }
    }
}

impl PortKind {
    /// Returns the prefix of port addresses of this kind.
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Packet => "packet",
            PortKind::Xdp => "xdp",
        }
    }
}

impl LinkKind {
    /// Returns the name of the links on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Plain => "plain",
            LinkKind::Offloads => "offloads",
        }
    }
}

impl Middle {
    fn name(self) -> &'static str {
        match self {
            Middle::Kernel => "kernel",
            Middle::Gateway => "gateway",
            Middle::Bypassed => "stages off",
            Middle::Merging => "merging",
        }
    }
}

impl Transparency {
    /// Whether every row has only listed differences, or none.
    pub fn is_good(&self) -> bool {
        self.count(Verdict::Different) == 0
    }

    /// Returns the number of rows with this verdict.
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
            "{} same, {} listed, {} different, in {:.0} s; Linux {}",
            self.count(Verdict::Same),
            self.count(Verdict::Listed),
            self.count(Verdict::Different),
            self.seconds,
            self.conditions.kernel
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::frames::SeenFrame;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_frames_that_do_not_change() {
        let mut names: Vec<&str> = names().collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count < 255, "addresses have a byte for it");
        for kind in KINDS.iter() {
            let make = || {
                let mut frames = Frames::new([0, 1], None);
                (kind.make)(&mut frames);
                frames.sent.into_iter().map(|sent| sent.bytes).collect::<Vec<_>>()
            };
            assert!(!make().is_empty() && make() == make(), "{}", kind.name);
        }
    }

    #[test]
    fn each_listed_difference_names_kinds_that_there_are() {
        for pattern in known::KNOWN.iter().flat_map(|known| known.kinds) {
            assert!(KINDS.iter().any(|kind| compare::matches(pattern, kind.name)), "{pattern}");
        }
        for pattern in known::KNOWN_OF_SOCKETS.iter().flat_map(|known| known.kinds) {
            assert!(SOCKET_KINDS.iter().any(|kind| compare::matches(pattern, kind.name)), "{pattern}");
        }
    }

    #[test]
    fn a_comparison_reports_listed_and_unlisted_differences() {
        let border = Scene { role: Role::Border, links: LinkKind::Plain, port: PortKind::Packet };
        let xdp = Scene { port: PortKind::Xdp, ..border };
        let router = Scene { role: Role::Router, ..border };
        let wide_interface = Scene { role: Role::WideInterface, links: LinkKind::Offloads, ..border };
        let raw = |scene: Scene, name: &str, middle: Middle, kernel: Arrived, ours: Arrived| {
            let kind = KINDS.iter().find(|kind| kind.name == name).expect("it is a kind");
            scene.judge(kind, middle, &[], &kernel, ours)
        };
        let noted = |scene: Scene, name: &str, middle: Middle, kernel: &str, ours: &str| {
            let kind = SOCKET_KINDS.iter().find(|kind| kind.name == name).expect("it is a kind");
            scene.judge_notes(kind, middle, &notes(kernel), &notes(ours))
        };
        let rows = vec![
            raw(border, "arp-request", Middle::Gateway, frames(&[1], &[2]), frames(&[1], &[2])),
            raw(border, "arp-reply", Middle::Gateway, frames(&[1], &[1, 2]), frames(&[2], &[2, 1])),
            raw(xdp, "arp-request", Middle::Bypassed, frames(&[1], &[]), frames(&[], &[2])),
            raw(router, "arp-request", Middle::Merging, frames(&[1], &[]), frames(&[1], &[])),
            noted(border, "socket-ping", Middle::Gateway, "lost", "all 2000 bytes"),
            noted(wide_interface, "socket-ttl", Middle::Bypassed, "all 2000 bytes", "lost"),
        ];
        let differences = rows.iter().flat_map(|row| &row.names).map(|&name| (name, sentence(name))).collect();
        let conditions = Conditions::made_up();
        let whole = Transparency { conditions, rows, differences, seconds: 12.0 };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reports/transparency.txt");
        testkit::golden(path, &whole.to_string());
    }

    /// Returns frames of one flow on the wide and on the narrow side, whose last bytes are these numbers.
    fn frames(wide: &[u8], narrow: &[u8]) -> Arrived {
        let frame = |&number: &u8| {
            let bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5, number];
            SeenFrame { bytes, segment_len: None }
        };
        [wide, narrow].map(|numbers| numbers.iter().map(frame).collect())
    }

    fn notes(seen: &str) -> Notes {
        let mut notes = Notes::default();
        notes.begin("IPv4 to narrow");
        notes.say("2000 bytes", seen);
        notes
    }
}
