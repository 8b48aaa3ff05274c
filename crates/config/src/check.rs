//! What each key of a file says in, what does not go together out.

use crate::problem::Notes;
use crate::read::{Said, SideSaid, Which};
use crate::settings::{DontFragment, Fail, Raise, Role, Stage};
use crate::table::Given;
use crate::value::{Kind, shown_stretch};
use core::time::Duration;
use engine::{FragmentPolicy, Holding, Toggle};

/// Notes what is wrong across keys, and what smells.
pub(crate) fn check(said: &Said<'_>, notes: &mut Notes) {
    let sides: Vec<&SideSaid<'_>> = said.wide.iter().chain(&said.narrow).collect();
    for side in &sides {
        check_mtu(side, notes);
        check_hold(side, notes);
    }
    if let [wide, narrow] = sides.as_slice() {
        check_pair(wide, narrow, notes);
    }
    check_mss(said, notes);
    let Some(role) = said.role.here().map(|at| at.value) else {
        return;
    };
    check_keys_of_roles(said, role, notes);
    for side in &sides {
        check_port(side, role, notes);
        check_joining(side, role, notes);
        check_idle(side, role, notes);
        if role != Role::Border
            && let Some(at) = side.df.is(DontFragment::Fragment)
        {
            let what = format!("{} does not cut what its sender forbids to cut", called(role));
            notes.error(at, side.table.name_of("df"), what, "leave it out, or give role = \"border\"");
        }
    }
    check_bypass(said, role, &sides, notes);
    check_fail(said, role, &sides, notes);
}

fn check_mtu(side: &SideSaid<'_>, notes: &mut Notes) {
    let Some(mtu) = side.mtu.here() else {
        return;
    };
    let is_tap = side.port.here().is_some_and(|port| port.value.kind == Kind::Tap);
    if is_tap && mtu.value > TAP_MTU_MAX {
        let what = format!("{} is above the {TAP_MTU_MAX} of a tap", mtu.value);
        notes.error(mtu.at, side.table.name_of("mtu"), what, format!("give 68 to {TAP_MTU_MAX}"));
    }
    if mtu.value < IPV6_MTU_MIN {
        let what = format!(
            "{} is below the 1280 that every link of IPv6 takes, so its datagrams are not cut to fit",
            mtu.value
        );
        notes.warning(mtu.at, side.table.name_of("mtu"), what, "give 1280 or more if IPv6 is to pass");
    }
}

fn check_hold(side: &SideSaid<'_>, notes: &mut Notes) {
    if let Some(hold) = side.hold.here()
        && let Holding::Fixed(stretch) = hold.value
        && stretch > HOLD_UNFELT
    {
        let what = format!("{} is long enough for senders to slow down or to send again", shown_stretch(stretch));
        let mend = "give \"burst\", \"adaptive\" or at most \"20ms\"";
        notes.warning(hold.at, side.table.name_of("hold"), what, mend);
    }
}

fn check_pair(wide: &SideSaid<'_>, narrow: &SideSaid<'_>, notes: &mut Notes) {
    if let (Some(one), Some(other)) = (wide.port.here(), narrow.port.here())
        && one.value.interface == other.value.interface
    {
        let what = format!("{} is the interface of both sides", other.value.interface);
        notes.error(other.at, "narrow.port", what, "give each side its own");
    }
    if let (Some(one), Some(other)) = (wide.mtu.here(), narrow.mtu.here()) {
        if one.value < other.value {
            let what = format!("{} is below the narrow side's {}", one.value, other.value);
            notes.error(one.at, "wide.mtu", what, "give the wide side the larger MTU, or swap the sides");
        }
        if one.value == other.value {
            let what = format!("{} is the MTU of both sides, so nothing needs another size", one.value);
            notes.warning(one.at, "wide.mtu", what, "give each side the MTU of its link");
        }
    }
}

fn check_mss(said: &Said<'_>, notes: &mut Notes) {
    if let Some(safe) = said.mss.safe.here()
        && let Some(narrow) = said.narrow.as_ref().and_then(|narrow| narrow.mtu.here())
        && safe.value > narrow.value
    {
        let what = format!("{} is above the narrow side's MTU of {}", safe.value, narrow.value);
        let mend = match narrow.value {
            ..SAFE_LEN_MIN => "leave it out, since the MTU is below 576 too".to_owned(),
            mtu => format!("give 576 to {mtu}"),
        };
        notes.error(safe.at, "mss.safe", what, mend);
    }
    if let Some(at) = said.mss.raise.is(Raise::Always) {
        let what = "what comes back another way than through here may be longer than that way takes";
        notes.warning(at, "mss.raise", what, "give \"both-ways\" unless all ways lead through here");
    }
}

fn check_keys_of_roles(said: &Said<'_>, role: Role, notes: &mut Notes) {
    if role != Role::Border
        && let Some(at) = said.mss_at
    {
        let what = format!("{} raises no MSS", called(role));
        notes.error(at, "mss", what, "leave [mss] out, or give role = \"border\"");
    }
    if role != Role::WideInterface
        && let Some(at) = said.wide_interface_at
    {
        let what = format!("{} has no routes of its own", called(role));
        notes.error(at, "wide-interface", what, "leave [wide-interface] out, or give role = \"wide-interface\"");
    }
    if role != Role::WideInterface
        && let Some(at) = said.limits.datagram_lifetime_at
    {
        let what = format!("{} gives out no identifiers", called(role));
        notes.error(at, "limits.datagram-lifetime", what, "leave it out, or give role = \"wide-interface\"");
    }
    if role != Role::Border
        && let Some(at) = said.limits.flows_at
    {
        let what = format!("{} remembers no MSS, so this limits nothing", called(role));
        notes.warning(at, "limits.flows", what, "leave it out");
    }
    if role != Role::Border
        && let Some(answers) = said.answer_from.here()
    {
        let what = "the host's kernel sends the ICMP errors here, so this has no effect";
        notes.warning(answers.at, "answer-from", what, "leave it out");
    }
}

fn check_fail(said: &Said<'_>, role: Role, sides: &[&SideSaid<'_>], notes: &mut Notes) {
    let Some(at) = said.fail.is(Fail::Open) else { return };
    if role != Role::Border {
        let what = "the kernel has all fragments while no worker works, so this has no effect";
        return notes.warning(at, "fail", what, "leave it out");
    }
    let is_packet = |side: &SideSaid<'_>| side.port.here().is_none_or(|port| port.value.kind == Kind::Packet);
    if !sides.iter().all(|side| is_packet(side)) {
        let what = "the kernel passes packets on by itself only between two packet: ports";
        notes.error(at, "fail", what, "leave it out, or write packet:NAME for both");
    }
}

fn check_port(side: &SideSaid<'_>, role: Role, notes: &mut Notes) {
    let Some(port) = side.port.here() else {
        let may_lack = (role, side.which) == (Role::WideInterface, Which::Wide);
        if matches!(side.port, Given::Not) && !may_lack {
            let mend = "write it, such as port = \"packet:lan0\"";
            notes.missing(side.table.at, side.table.name_of("port"), "this key is missing", mend);
        }
        return;
    };
    if (role, side.which, port.value.kind) == (Role::WideInterface, Which::Wide, Kind::Tun) {
        let what = "the host itself needs no device: what it sends is taken at the narrow interface";
        return notes.error(
            port.at,
            side.table.name_of("port"),
            what,
            "leave it out, or write tap:NAME for a guest",
        );
    }
    let (kinds, wanted): (&[Kind], _) = match (role, side.which) {
        (Role::WideInterface, Which::Wide) => (&[Kind::Tap], "tap:NAME for a guest, or leave it out for the host"),
        (Role::WideInterface, Which::Narrow) | (Role::Router, _) => (&[Kind::Packet], "packet:NAME"),
        (Role::Border, _) => (&[Kind::Packet, Kind::Xdp, Kind::Tap], "packet:NAME, xdp:NAME or tap:NAME"),
    };
    if kinds.contains(&port.value.kind) {
        return;
    }
    let name = Kind::NAMES.iter().find(|(_, kind)| *kind == port.value.kind).map_or("", |(name, _)| *name);
    let what = format!("{} has no {name} on its {} side", called(role), side.which.name());
    notes.error(port.at, side.table.name_of("port"), what, format!("write {wanted}"));
}

fn check_joining(side: &SideSaid<'_>, role: Role, notes: &mut Notes) {
    let name = |key| side.table.name_of(key);
    if let Some(join) = side.join.here()
        && join.value != FragmentPolicy::Off
    {
        if side.reassemble.is(Toggle::On).is_some() {
            let what = "fragments are reassembled already";
            notes.error(join.at, name("join"), what, "leave out either reassemble or join");
        } else if matches!(side.reassemble, Given::Not) && side.reassembles_by_role(role) {
            let what = format!("{} reassembles fragments already", called(role));
            notes.error(join.at, name("join"), what, "leave it out, or write reassemble = false beside it");
        }
    }
    if let Some(at) = side.fragment.is(Toggle::Off)
        && side.joins_as(FragmentPolicy::ReassembleHop, role)
    {
        let what = "what is joined by \"hop\" must be cut again, and nothing is";
        notes.error(at, name("fragment"), what, "write true, or join otherwise");
    }
    if let Some(timeout) = side.timeout.here()
        && timeout.value > GRACEFUL_TIMEOUT_MAX
        && side.joins_as(FragmentPolicy::Merge, role)
    {
        let most = shown_stretch(GRACEFUL_TIMEOUT_MAX);
        let stretch = shown_stretch(timeout.value);
        let what =
            format!("{stretch} is long enough for identifiers to come round while fragments are joined gracefully");
        notes.error(timeout.at, name("patience"), what, format!("give at most \"{most}\""));
    }
}

/// What is said about a stage that does not work on this side.
fn check_idle(side: &SideSaid<'_>, role: Role, notes: &mut Notes) {
    let name = |key| side.table.name_of(key);
    if side.coalesce(role) == Some(None) {
        let what = "no segments are held on this side, so this has no effect";
        let mend = "write coalesce = \"resize\" too, or leave this out";
        let hold = side.hold.here().map(|at| (at.at, "hold"));
        let exempt = side.exempt.here().filter(|list| !list.value.is_empty()).map(|at| (at.at, "exempt"));
        for (at, key) in hold.into_iter().chain(exempt) {
            notes.warning(at, name(key), what, mend);
        }
    }
    let joins = [FragmentPolicy::Reassemble, FragmentPolicy::ReassembleHop, FragmentPolicy::Merge]
        .iter()
        .any(|join| side.joins_as(*join, role));
    if let Some(timeout) = side.timeout.here()
        && side.join(role).is_some()
        && !joins
    {
        let what = "no fragments are held on this side, so this has no effect";
        notes.warning(timeout.at, name("patience"), what, "write reassemble = true or join too, or leave this out");
    }
}

fn check_bypass(said: &Said<'_>, role: Role, sides: &[&SideSaid<'_>], notes: &mut Notes) {
    let Some(bypass) = said.bypass.here() else {
        return;
    };
    for stage in &bypass.value {
        let works = match stage.value {
            Stage::Mss | Stage::Lease => role == Role::Border,
            Stage::Coalesce => sides.iter().any(|side| side.coalesce(role) != Some(None)),
            Stage::Reassemble => sides.iter().any(|side| side.joins_as(FragmentPolicy::Reassemble, role)),
            Stage::Join => sides.iter().any(|side| {
                side.joins_as(FragmentPolicy::ReassembleHop, role) || side.joins_as(FragmentPolicy::Merge, role)
            }),
            Stage::Segment | Stage::Fragment => true,
        };
        if !works {
            let what = "this stage works on no side, so leaving it out has no effect";
            notes.warning(stage.at, "bypass", what, "leave it out of the list");
        }
    }
}

/// What people call it.
fn called(role: Role) -> &'static str {
    match role {
        Role::WideInterface => "a wide interface",
        Role::Router => "a router",
        Role::Border => "a border",
    }
}

/// Longest packet in a tap's longest frame, in bytes (Linux: 65,535 less the Ethernet header).
const TAP_MTU_MAX: u16 = 65_521;
/// RFC 8200 section 5.
const IPV6_MTU_MIN: u16 = 1_280;
/// What every host takes whole (RFC 791 section 3.1).
const SAFE_LEN_MIN: u16 = 576;
/// Longest hold that transports hardly feel (a run is older only where it is asked for).
const HOLD_UNFELT: Duration = Duration::from_millis(20);
/// Longest patience of graceful joining: no fast pair's identifications come round sooner (X2).
const GRACEFUL_TIMEOUT_MAX: Duration = Duration::from_millis(500);
