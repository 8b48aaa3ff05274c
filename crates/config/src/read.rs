//! Tables of a file -> the value of each key -> the configuration.
//!
//! This module reads each key on its own. The module `check` finds contradictions between keys. `RawConfig::build`
//! builds the configuration if all keys are valid.

use crate::problem::{Notes, Problems, Wrong};
use crate::settings::{
    Config, DontFragment, Fail, LimitsConfig, MssConfig, OwnAddresses, Priority, Queueing, Raise, Role, SideConfig,
    Stage, WideInterfaceConfig,
};
use crate::spelling::nearest;
use crate::table::{At, Given, Table};
use crate::value::{self, Port, SOCKET_PATH_LEN_MAX, either, quoted};
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use engine::{
    ACK_STORE_MIN, AckPolicy, Exempt, FLOW_COUNT, FragmentPolicy, Holding, MEMORY, Mode, Prefix, SAFE_LEN,
    SegmentPolicy, SideSettings, SideStage, Toggle, Toward,
};
use packet::Split;
use std::path::PathBuf;
use toml::de::DeValue;

/// The values of all keys of a file. The keys of the sides' tables are in [`RawSide`].
#[derive(Debug)]
pub(crate) struct RawConfig<'a> {
    pub role: Given<Role>,
    pub workers: Given<u32>,
    pub icmp_source: Given<Vec<At<IpAddr>>>,
    pub control: Given<PathBuf>,
    pub metrics: Given<SocketAddr>,
    pub user: Given<String>,
    pub bypass: Given<Vec<At<Stage>>>,
    pub fail: Given<Fail>,
    pub priority: Given<Priority>,
    pub queueing: Given<Queueing>,
    pub acks: Given<AckPolicy>,
    pub wide: Option<RawSide<'a>>,
    pub narrow: Option<RawSide<'a>>,
    pub limits: LimitsSaid,
    pub mss: MssSaid,
    pub mss_at: Option<usize>,
    pub prefixes: Given<Vec<At<Prefix>>>,
    pub wide_interface_at: Option<usize>,
}

/// The values of the keys in one side's table.
#[derive(Debug)]
pub(crate) struct RawSide<'a> {
    pub table: Table<'a>,
    pub which: Which,
    pub port: Given<Port>,
    pub mtu: Given<u16>,
    pub coalesce: Given<Option<Mode>>,
    pub reassemble: Given<Toggle>,
    pub fragment_policy: Given<FragmentPolicy>,
    pub fragment_policy_for: Given<Vec<(At<Prefix>, At<FragmentPolicy>)>>,
    pub segment: Given<Toggle>,
    pub segment_policy: Given<SegmentPolicy>,
    pub segment_policy_for: Given<Vec<(At<Prefix>, At<SegmentPolicy>)>>,
    pub route_mtu: Given<Toggle>,
    pub fragment: Given<Toggle>,
    pub df: Given<DontFragment>,
    pub hold: Given<Holding>,
    pub timeout: Given<Duration>,
    pub even: Given<Toggle>,
    pub offloads: Given<Offloads>,
    pub exempt: Given<Vec<At<Exempt>>>,
}

/// Name of a side: wide or narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Wide,
    Narrow,
}

#[derive(Debug)]
pub(crate) struct LimitsSaid {
    pub memory: Given<u64>,
    pub flows: Given<u32>,
    pub flows_at: Option<usize>,
    pub datagram_lifetime: Given<Duration>,
    pub datagram_lifetime_at: Option<usize>,
    pub ack_store: Given<u64>,
    pub ack_store_at: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct MssSaid {
    pub raise: Given<Raise>,
    pub safe: Given<u16>,
}

/// The value of the key `offloads`: which offloads are left to the kernel and the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offloads {
    /// No offloads.
    None,
    /// The offloads that are on at the interface.
    AsIs,
    /// The offloads that are on at the interface. At a border, GRO is also switched on.
    All,
}

/// A role's defaults for the keys of one side.
struct Usual {
    coalesce: Option<Mode>,
    reassemble: Toggle,
    segment: Toggle,
    hold: Holding,
}

impl<'a> RawConfig<'a> {
    /// Reads the tables under `root`, and notes every error.
    pub fn read(root: &Table<'a>, notes: &mut Notes) -> RawConfig<'a> {
        root.check_keys(&ROOT, notes, belongs);
        let host = &value::host;
        let stage = |value: &DeValue<'_>| value::word(value, &Stage::NAMES);
        let limits = root.table("limits", notes);
        let mss = root.table("mss", notes);
        let wide_interface = root.table("wide-interface", notes);
        let said = RawConfig {
            role: root.need("role", "write \"wide-interface\", \"router\" or \"border\"", notes, &|value| {
                value::word(value, &Role::NAMES)
            }),
            workers: root.take("workers", notes, &|value| value::number(value, WORKERS, 2)),
            icmp_source: root.list("icmp-source", "a list such as [\"192.0.2.1\", \"2001:db8::1\"]", notes, host),
            control: root.take("control", notes, &value::path),
            metrics: root.take("metrics", notes, &value::socket),
            user: root.take("user", notes, &value::user),
            bypass: root.list("bypass", "a list such as [\"coalesce\"]", notes, &stage),
            fail: root.take("fail", notes, &|value| value::word(value, &Fail::NAMES)),
            priority: root.take("priority", notes, &|value| value::word(value, &Priority::NAMES)),
            queueing: root.take("queueing", notes, &|value| value::word(value, &Queueing::NAMES)),
            wide: RawSide::of(root, Which::Wide, notes),
            narrow: RawSide::of(root, Which::Narrow, notes),
            limits: LimitsSaid::read(limits.here().map(|at| &at.value), notes),
            acks: root.take("acks", notes, &|value| value::word(value, &AckPolicy::NAMES)),
            mss: MssSaid::read(mss.here().map(|at| &at.value), notes),
            mss_at: root.key_at("mss").map(|at| mss.here().map_or(at, |mss| mss.at)),
            prefixes: prefixes(wide_interface.here().map(|at| &at.value), notes),
            wide_interface_at: root.key_at("wide-interface").map(|at| wide_interface.here().map_or(at, |t| t.at)),
        };
        said.check_answers(notes);
        said
    }

    fn check_answers(&self, notes: &mut Notes) {
        let Some(answers) = self.icmp_source.here() else {
            return;
        };
        if answers.value.is_empty() {
            let mend = "add an address, or remove the key for the interface's own";
            notes.wrong(answers.at, "icmp-source", Wrong::new("the list is empty", mend));
        }
        for (number, answer) in answers.value.iter().enumerate() {
            let before = answers.value.iter().take(number);
            if before.into_iter().any(|other| other.value.is_ipv4() == answer.value.is_ipv4()) {
                let version = if answer.value.is_ipv4() { "IPv4" } else { "IPv6" };
                let what = format!("{} is a second address of {version}", answer.value);
                notes.wrong(answer.at, "icmp-source", Wrong::new(what, "give at most one of each version"));
            }
        }
    }

    /// Builds the configuration; `None` if a key has an error, which is then in `notes`. `name` is the
    /// configuration's name.
    pub fn build(&self, name: &str, notes: &mut Notes) -> Option<Config> {
        let control = self.control(name, notes);
        let role = self.role.here()?.value;
        let narrow = self.narrow.as_ref()?.build(role, None)?;
        let wide = self.wide.as_ref()?.build(role, Some(&narrow))?;
        Some(Config {
            role,
            name: name.to_owned(),
            workers: self.workers.or(1)? as usize,
            icmp_source: self.answers()?,
            own_addresses: OwnAddresses::default(),
            control: control?,
            metrics: self.metrics.here().map(|at| at.value),
            user: self.user.here().map(|at| at.value.clone()),
            bypass: self.bypass.or(Vec::new())?.into_iter().map(|at| at.value).collect(),
            fail: self.fail.or(Fail::Closed)?,
            priority: self.priority.or(if role == Role::WideInterface {
                Priority::Fair
            } else {
                Priority::High
            })?,
            queueing: self.queueing.or(Queueing::Fifo)?,
            limits: LimitsConfig {
                memory: usize::try_from(self.limits.memory.or(MEMORY as u64)?).ok()?,
                flows: self.limits.flows.or(FLOW_COUNT as u32)? as usize,
                datagram_lifetime: self.limits.datagram_lifetime.or(engine::LIFETIME)?,
                ack_store: usize::try_from(self.limits.ack_store.or(0)?).ok()?,
            },
            acks: self.acks.or(AckPolicy::Unchanged)?,
            mss: MssConfig {
                raise: self.mss.raise.or(if role == Role::Border { Raise::BothWays } else { Raise::Never })?,
                safe: self.mss.safe.or(SAFE_LEN.min(narrow.mtu))?,
            },
            wide_interface: WideInterfaceConfig {
                prefixes: self.prefixes.or(Vec::new())?.into_iter().map(|at| at.value).collect(),
            },
            wide,
            narrow,
            warnings: Problems::default(),
        })
    }

    fn control(&self, name: &str, notes: &mut Notes) -> Option<PathBuf> {
        if !matches!(self.control, Given::Not) {
            return self.control.here().map(|at| at.value.clone());
        }
        let path = format!("/run/wideload/{name}.sock");
        if path.len() <= SOCKET_PATH_LEN_MAX {
            return Some(PathBuf::from(path));
        }
        let what = format!("{} exceeds the {SOCKET_PATH_LEN_MAX} bytes of a socket path", quoted(&path));
        notes.error(0, "control", what, "set a shorter path, or give the file a shorter name");
        None
    }

    fn answers(&self) -> Option<[Option<IpAddr>; 2]> {
        let mut answers = [None; 2];
        for answer in self.icmp_source.or(Vec::new())? {
            answers[usize::from(answer.value.is_ipv6())] = Some(answer.value);
        }
        Some(answers)
    }
}

impl<'a> RawSide<'a> {
    fn of(root: &Table<'a>, which: Which, notes: &mut Notes) -> Option<RawSide<'a>> {
        let name = which.name();
        match root.table(name, notes) {
            Given::As(table) => Some(RawSide::read(table.value, which, notes)),
            Given::Wrong => None,
            Given::Not => {
                let mend = format!("write [{name}] with port and mtu below it");
                notes.missing(0, name.to_owned(), format!("the {name} side is missing"), mend);
                None
            }
        }
    }

    fn read(table: Table<'a>, which: Which, notes: &mut Notes) -> RawSide<'a> {
        table.check_keys(&SIDE, notes, belongs);
        let mut switch = |key| table.take(key, notes, &value::switch);
        let [reassemble, segment, fragment, even, route_mtu] =
            ["reassemble", "segment", "fragment", "even", "route-mtu"].map(&mut switch);
        let example = if which == Which::Wide { 9_000 } else { 1_500 };
        let mtu_mend = format!("write mtu = {example}, or the MTU of the link: 68 to 65535");
        let flow = "a list such as [\":22\", \"192.0.2.0/24\"]";
        let (fragment_policy_for, segment_policy_for) = policies_for(&table, notes);
        RawSide {
            which,
            port: table.take("port", notes, &value::port),
            mtu: table.need("mtu", &mtu_mend, notes, &|value| short(value, MTUS, example)),
            coalesce: table.take("coalesce", notes, &|value| value::word(value, &MODES)),
            reassemble,
            fragment_policy: table.take("fragment-policy", notes, &|value| value::word(value, &POLICIES)),
            fragment_policy_for,
            segment,
            segment_policy: table.take("segment-policy", notes, &|value| value::word(value, &SegmentPolicy::NAMES)),
            segment_policy_for,
            route_mtu,
            fragment,
            df: table.take("df", notes, &|value| value::word(value, &DFS)),
            hold: table.take("hold", notes, &hold),
            timeout: table.take("timeout", notes, &|value| value::stretch(value, TIMEOUTS, "500ms")),
            even,
            offloads: table.take("offloads", notes, &offloads),
            exempt: table.list("exempt", flow, notes, &value::exempt),
            table,
        }
    }

    /// Returns the side's fragment policy; `None` if one of the two keys for the policy has an error.
    pub fn fragment_policy(&self, role: Role) -> Option<FragmentPolicy> {
        match (self.reassemble.or(self.usual(role).reassemble)?, self.fragment_policy.or(FragmentPolicy::Off)?) {
            (Toggle::On, FragmentPolicy::Off) => Some(FragmentPolicy::Reassemble),
            (_, join) => Some(join),
        }
    }

    /// Returns the side's coalescing mode; `None` if the key has an error.
    pub fn coalesce(&self, role: Role) -> Option<Option<Mode>> {
        self.coalesce.or(self.usual(role).coalesce)
    }

    /// Whether this policy applies to the fragments for at least one destination. A key with an error counts as
    /// another policy.
    pub fn uses_policy(&self, policy: FragmentPolicy, role: Role) -> bool {
        let for_some = self
            .fragment_policy_for
            .here()
            .is_some_and(|list| list.value.iter().any(|(_, how)| how.value == policy));
        for_some || self.fragment_policy(role) == Some(policy)
    }

    /// Returns the position of the first segment policy that allows segments above the MTU; `None` if there is none.
    pub fn allows_long_segments(&self) -> Option<usize> {
        let own = self.segment_policy.here().filter(|own| own.value != SegmentPolicy::Segment).map(|own| own.at);
        let mut of_some = self.segment_policy_for.here().into_iter().flat_map(|list| &list.value);
        own.or_else(|| {
            of_some.find(|(_, policy)| policy.value != SegmentPolicy::Segment).map(|(_, policy)| policy.at)
        })
    }

    /// Whether any destination has one of these segment policies.
    pub fn uses_segment_policy(&self, policies: &[SegmentPolicy]) -> bool {
        let of_some = self.segment_policy_for.here().into_iter().flat_map(|list| &list.value);
        let mut all = self.segment_policy.here().into_iter().chain(of_some.map(|(_, policy)| policy));
        all.any(|policy| policies.contains(&policy.value))
    }

    /// Whether the role reassembles on this side by default.
    pub fn reassembles_by_role(&self, role: Role) -> bool {
        self.usual(role).reassemble == Toggle::On
    }

    /// Builds the side's configuration; `None` if a key has an error. A wide side without a port gets the egress
    /// port of the narrow side's interface.
    fn build(&self, role: Role, narrow: Option<&SideConfig>) -> Option<SideConfig> {
        let port = match (&self.port, narrow) {
            (Given::Not, Some(narrow)) => {
                narrow.port.split_once(':').map(|(_, interface)| format!("egress:{interface}"))?
            }
            _ => {
                let Port { kind, interface } = &self.port.here()?.value;
                let kind = value::Kind::NAMES.iter().find(|(_, other)| other == kind).map(|(name, _)| *name)?;
                format!("{kind}:{interface}")
            }
        };
        let offloads = self.offloads.or(Offloads::All)?;
        Some(SideConfig {
            port,
            mtu: self.mtu.here()?.value,
            coalesce: self.coalesce(role)?,
            fragment_policy: self.fragment_policy(role)?,
            fragment_policy_for: self
                .fragment_policy_for
                .or(Vec::new())?
                .into_iter()
                .map(|(to, how)| (to.value, how.value))
                .collect(),
            segment: self.segment.or(self.usual(role).segment)?,
            segment_policy: self.segment_policy.or(SegmentPolicy::Segment)?,
            segment_policy_for: self
                .segment_policy_for
                .or(Vec::new())?
                .into_iter()
                .map(|(to, policy)| (to.value, policy.value))
                .collect(),
            route_mtu: self.route_mtu.or(Toggle::Off)?,
            fragment: self.fragment.or(Toggle::On)?,
            df: self.df.or(DontFragment::Refuse)?,
            hold: self.hold.or(self.usual(role).hold)?.cut(),
            timeout: self.timeout.here().map(|at| at.value),
            split: if self.even.or(Toggle::Off)? == Toggle::On { Split::Balanced } else { Split::Max },
            offloads: if offloads == Offloads::None { Toggle::Off } else { Toggle::On },
            gro: if role == Role::Border && offloads == Offloads::All { Toggle::On } else { Toggle::Off },
            exempt: self.exempt.or(Vec::new())?.into_iter().map(|at| at.value).collect(),
        })
    }

    fn usual(&self, role: Role) -> Usual {
        let toward = if self.which == Which::Wide { Toward::Wide } else { Toward::Narrow };
        let usual = SideSettings::usual(role.gateway_role(), toward, u16::MAX);
        let is_guest =
            role == Role::WideInterface && self.port.here().is_some_and(|port| port.value.kind == value::Kind::Tap);
        Usual {
            // Without a TAP device, the host's own kernel receives the packets, and the kernel's GRO coalesces TCP.
            coalesce: usual.coalesce.or((toward == Toward::Wide && is_guest).then_some(Mode::Resize)),
            reassemble: if usual.has(SideStage::Reassemble) { Toggle::On } else { Toggle::Off },
            segment: usual.segment,
            hold: usual.hold,
        }
    }
}

impl Which {
    /// Returns the name of the side's table.
    pub fn name(self) -> &'static str {
        match self {
            Which::Wide => "wide",
            Which::Narrow => "narrow",
        }
    }
}

impl LimitsSaid {
    fn read(table: Option<&Table<'_>>, notes: &mut Notes) -> LimitsSaid {
        let Some(table) = table else {
            return LimitsSaid {
                memory: Given::Not,
                flows: Given::Not,
                flows_at: None,
                datagram_lifetime: Given::Not,
                datagram_lifetime_at: None,
                ack_store: Given::Not,
                ack_store_at: None,
            };
        };
        table.check_keys(&LIMITS, notes, belongs);
        LimitsSaid {
            memory: table.take("memory", notes, &|value| value::size(value, MEMORIES)),
            flows: table.take("flows", notes, &|value| value::number(value, FLOW_COUNTS, FLOW_COUNT as u32)),
            flows_at: table.key_at("flows"),
            datagram_lifetime: table
                .take("datagram-lifetime", notes, &|value| value::stretch(value, LIFETIMES, "2s")),
            datagram_lifetime_at: table.key_at("datagram-lifetime"),
            ack_store: table.take("ack-store", notes, &|value| value::size(value, ACK_STORES)),
            ack_store_at: table.key_at("ack-store"),
        }
    }
}

impl MssSaid {
    fn read(table: Option<&Table<'_>>, notes: &mut Notes) -> MssSaid {
        let Some(table) = table else {
            return MssSaid { raise: Given::Not, safe: Given::Not };
        };
        table.check_keys(&MSS, notes, belongs);
        MssSaid {
            raise: table.take("raise", notes, &|value| value::word(value, &RAISES)),
            safe: table.take("safe", notes, &|value| short(value, SAFE_LENS, SAFE_LEN.into())),
        }
    }
}

fn prefixes(table: Option<&Table<'_>>, notes: &mut Notes) -> Given<Vec<At<Prefix>>> {
    let Some(table) = table else {
        return Given::Not;
    };
    table.check_keys(&WIDE_INTERFACE, notes, belongs);
    let prefixes =
        table.list("prefixes", "a list such as [\"10.0.0.0/8\", \"2001:db8::/32\"]", notes, &value::prefix);
    if let Some(list) = prefixes.here().filter(|list| list.value.is_empty()) {
        let mend = "add a prefix, or remove the key for all routes of the narrow interface";
        notes.wrong(list.at, table.name_of("prefixes"), Wrong::new("the list is empty", mend));
        return Given::Wrong;
    }
    prefixes
}

/// Policies for some destinations.
type PoliciesFor<P> = Given<Vec<(At<Prefix>, At<P>)>>;

/// Reads the fragment policies and the segment policies for some destinations.
fn policies_for(side: &Table<'_>, notes: &mut Notes) -> (PoliciesFor<FragmentPolicy>, PoliciesFor<SegmentPolicy>) {
    let tables = match side.tables("for", notes) {
        Given::As(tables) => tables,
        Given::Wrong => return (Given::Wrong, Given::Wrong),
        Given::Not => return (Given::Not, Given::Not),
    };
    let said: Vec<_> = tables.value.iter().map(|table| one_for(table, notes)).collect();
    let mut known: Vec<Prefix> = Vec::new();
    let (mut fragments, mut segments) = (Vec::new(), Vec::new());
    let mut is_right = true;
    for (table, (prefix, fragment, segment)) in tables.value.iter().zip(said) {
        is_right &= !matches!((&fragment, &segment), (Given::Wrong, _) | (_, Given::Wrong));
        let Some(prefix) = prefix.here().copied() else {
            is_right = false;
            continue;
        };
        if known.contains(&prefix.value) {
            let wrong = Wrong::new(format!("{} is a duplicate", prefix.value), "remove one of the two tables");
            notes.wrong(prefix.at, table.name_of("prefix"), wrong);
            is_right = false;
        }
        known.push(prefix.value);
        fragments.extend(fragment.here().map(|policy| (prefix, *policy)));
        segments.extend(segment.here().map(|policy| (prefix, *policy)));
    }
    if !is_right {
        return (Given::Wrong, Given::Wrong);
    }
    let at = tables.at;
    (Given::As(At { at, value: fragments }), Given::As(At { at, value: segments }))
}

fn one_for(table: &Table<'_>, notes: &mut Notes) -> (Given<Prefix>, Given<FragmentPolicy>, Given<SegmentPolicy>) {
    table.check_keys(&FOR, notes, |key| {
        SIDE.contains(&key).then(|| "write it in the side's own table, in front of this one".to_owned())
    });
    let prefix = table.need("prefix", "write it, such as prefix = \"192.0.2.0/24\"", notes, &value::prefix);
    let reassemble = table.take("reassemble", notes, &value::switch);
    let join = table.take("fragment-policy", notes, &|value| value::word(value, &POLICIES));
    let segment = table.take("segment-policy", notes, &|value| value::word(value, &SegmentPolicy::NAMES));
    let join = match (reassemble, join) {
        (Given::Wrong, _) | (_, Given::Wrong) => Given::Wrong,
        (Given::Not, Given::Not) if matches!(segment, Given::Not) => {
            let mend = "write fragment-policy = \"merge\", \"reassemble-hop\" or \"off\", reassemble = true, or \
                        segment-policy";
            notes.missing(table.at, table.name_of("fragment-policy"), "the policy is missing", mend);
            Given::Wrong
        }
        (Given::As(At { value: Toggle::On, .. }), Given::As(join)) if join.value != FragmentPolicy::Off => {
            let what = "reassemble = true already reassembles the fragments of this prefix";
            notes.error(
                join.at,
                table.name_of("fragment-policy"),
                what,
                "remove either reassemble or fragment-policy",
            );
            Given::Wrong
        }
        (Given::As(At { at, value: Toggle::On }), _) => Given::As(At { at, value: FragmentPolicy::Reassemble }),
        (_, Given::As(join)) => Given::As(join),
        (Given::As(At { at, .. }), Given::Not) => Given::As(At { at, value: FragmentPolicy::Off }),
        (Given::Not, Given::Not) => Given::Not,
    };
    (prefix, join, segment)
}

fn hold(value: &DeValue<'_>) -> Result<Holding, Wrong> {
    let wanted = "\"burst\", \"adaptive\" or a duration from 10us to 10s, such as \"200us\"";
    let text = value::text(value, wanted)?;
    if text.starts_with(|letter: char| letter.is_ascii_digit()) {
        return value::stretch(value, HOLDS, "200us").map(Holding::Fixed);
    }
    let words = [("burst", Holding::Burst), ("adaptive", Holding::Adaptive)];
    value::word(value, &words).map_err(|wrong| {
        let mend = if nearest(text, ["burst", "adaptive"].into_iter()).is_some() {
            wrong.fix
        } else {
            format!("write {wanted}")
        };
        Wrong { fix: mend, ..wrong }
    })
}

fn offloads(value: &DeValue<'_>) -> Result<Offloads, Wrong> {
    match value {
        DeValue::Boolean(true) => Ok(Offloads::All),
        DeValue::Boolean(false) => Ok(Offloads::None),
        DeValue::String(text) if text == "as-is" => Ok(Offloads::AsIs),
        _ => Err(value::wrong_type(value, "true, false (both without quotation marks) or \"as-is\"")),
    }
}

/// Reads a 16-bit number.
fn short(value: &DeValue<'_>, bounds: RangeInclusive<u16>, example: u32) -> Result<u16, Wrong> {
    let wide = (*bounds.start()).into()..=(*bounds.end()).into();
    value::number(value, wide, example).map(|number| u16::try_from(number).unwrap_or(*bounds.end()))
}

/// Returns the fix for a key in the wrong table: the name of the right table.
fn belongs(key: &str) -> Option<String> {
    let is_of = |(_, keys): &&(&str, &[&str])| keys.contains(&key);
    let tables: Vec<String> = TABLES.iter().filter(is_of).map(|(table, _)| format!("[{table}]")).collect();
    if !tables.is_empty() {
        return Some(format!("write it below {}", either(&tables, "or")));
    }
    let is_table = TABLES.iter().any(|(table, _)| *table == key);
    match (is_table, ROOT.contains(&key)) {
        (true, _) => Some(format!("write [{key}] in a line of its own")),
        (_, true) => Some("write it at the top, in front of all tables".to_owned()),
        _ => None,
    }
}

const ROOT: [&str; 16] = [
    "role",
    "workers",
    "icmp-source",
    "control",
    "metrics",
    "user",
    "bypass",
    "fail",
    "priority",
    "queueing",
    "acks",
    "wide",
    "narrow",
    "limits",
    "mss",
    "wide-interface",
];
const SIDE: [&str; 16] = [
    "port",
    "mtu",
    "coalesce",
    "reassemble",
    "fragment-policy",
    "segment",
    "segment-policy",
    "route-mtu",
    "fragment",
    "df",
    "hold",
    "timeout",
    "even",
    "offloads",
    "exempt",
    "for",
];
const FOR: [&str; 4] = ["prefix", "fragment-policy", "reassemble", "segment-policy"];
const LIMITS: [&str; 4] = ["memory", "flows", "datagram-lifetime", "ack-store"];
const MSS: [&str; 2] = ["raise", "safe"];
const WIDE_INTERFACE: [&str; 1] = ["prefixes"];
const TABLES: [(&str, &[&str]); 5] =
    [("wide", &SIDE), ("narrow", &SIDE), ("limits", &LIMITS), ("mss", &MSS), ("wide-interface", &WIDE_INTERFACE)];

const MODES: [(&str, Option<Mode>); 3] =
    [("resize", Some(Mode::Resize)), ("reversible", Some(Mode::Reversible)), ("off", None)];
const POLICIES: [(&str, FragmentPolicy); 3] = [
    ("merge", FragmentPolicy::Merge),
    ("reassemble-hop", FragmentPolicy::ReassembleHop),
    ("off", FragmentPolicy::Off),
];
const DFS: [(&str, DontFragment); 2] = [("refuse", DontFragment::Refuse), ("fragment", DontFragment::Fragment)];
const RAISES: [(&str, Raise); 3] =
    [("never", Raise::Never), ("both-ways", Raise::BothWays), ("always", Raise::Always)];

const WORKERS: RangeInclusive<u32> = 1..=64;
/// Valid MTUs, in bytes: from the smallest MTU of an IPv4 link (RFC 791 section 3.2) to the longest IP packet.
const MTUS: RangeInclusive<u16> = 68..=u16::MAX;
const HOLDS: RangeInclusive<Duration> = Duration::from_micros(10)..=Duration::from_secs(10);
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_micros(10)..=Duration::from_hours(1);
const LIFETIMES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
/// Valid memory limits, in bytes.
const MEMORIES: RangeInclusive<u64> = 1 << 20..=4 << 30;
/// Valid sizes of the store for early acknowledgements, in bytes.
const ACK_STORES: RangeInclusive<u64> = ACK_STORE_MIN as u64..=4 << 30;
const FLOW_COUNTS: RangeInclusive<u32> = 1 << 10..=1 << 24;
/// Valid values of `mss.safe`, in bytes. The minimum is the datagram size that every host must accept (RFC 791
/// section 3.1).
const SAFE_LENS: RangeInclusive<u16> = 576..=u16::MAX;
