//! The values of all keys -> contradictions between them, as errors and warnings.
//!
//! A combination of keys can be wrong although each key is valid by itself. Each error and each warning states a
//! key, the key's line and a fix. The module `read` checks single keys.

use crate::problem::Notes;
use crate::read::{RawConfig, RawSide, Which};
use crate::settings::{DontFragment, Fail, Raise, Role, Stage};
use crate::table::Given;
use crate::value::{Kind, shown_stretch};
use core::time::Duration;
use engine::{AckPolicy, FragmentPolicy, HOLD_MAX, Holding, SegmentPolicy, Toggle};

/// Adds errors and warnings about combinations of keys to `notes`.
pub(crate) fn check(said: &RawConfig<'_>, notes: &mut Notes) {
    let sides: Vec<&RawSide<'_>> = said.wide.iter().chain(&said.narrow).collect();
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
        check_fragment_policy(side, role, notes);
        check_segment_policy(side, role, notes);
        check_route_mtu(said, side, role, notes);
        check_idle(side, role, notes);
        if role != Role::Border
            && let Some(at) = side.df.is(DontFragment::Fragment)
        {
            let what = format!("{} must not fragment packets with DF", called(role));
            notes.error(at, side.table.name_of("df"), what, "remove it, or set role = \"border\"");
        }
    }
    check_bypass(said, role, &sides, notes);
    check_fail(said, role, &sides, notes);
}

fn check_mtu(side: &RawSide<'_>, notes: &mut Notes) {
    let Some(mtu) = side.mtu.here() else {
        return;
    };
    let is_tap = side.port.here().is_some_and(|port| port.value.kind == Kind::Tap);
    if is_tap && mtu.value > TAP_MTU_MAX {
        let what = format!("{} exceeds a TAP device's {TAP_MTU_MAX}", mtu.value);
        notes.error(mtu.at, side.table.name_of("mtu"), what, format!("set 68 to {TAP_MTU_MAX}"));
    }
    if mtu.value < IPV6_MTU_MIN {
        let what =
            format!("{} is below IPv6's minimum MTU of 1280, so IPv6 packets are not fragmented to it", mtu.value);
        notes.warning(mtu.at, side.table.name_of("mtu"), what, "set 1280 or more to carry IPv6");
    }
}

fn check_hold(side: &RawSide<'_>, notes: &mut Notes) {
    if let Some(hold) = side.hold.here()
        && let Holding::Fixed(stretch) = hold.value
        && stretch > HOLD_UNFELT
    {
        let shown = shown_stretch(stretch);
        let what = if stretch > HOLD_MAX {
            format!("{shown} is cut to {}: a longer wait would make senders retransmit", shown_stretch(HOLD_MAX))
        } else {
            format!("{shown} delays senders so much that they slow down or retransmit")
        };
        let mend = "set \"burst\", \"adaptive\" or at most \"20ms\"";
        notes.warning(hold.at, side.table.name_of("hold"), what, mend);
    }
}

fn check_pair(wide: &RawSide<'_>, narrow: &RawSide<'_>, notes: &mut Notes) {
    if let (Some(one), Some(other)) = (wide.port.here(), narrow.port.here())
        && one.value.interface == other.value.interface
    {
        let what = format!("both sides use the interface {}", other.value.interface);
        notes.error(other.at, "narrow.port", what, "give each side its own interface");
    }
    if let (Some(one), Some(other)) = (wide.mtu.here(), narrow.mtu.here()) {
        if one.value < other.value {
            let what = format!("{} is below the narrow side's {}", one.value, other.value);
            notes.error(one.at, "wide.mtu", what, "give the wide side the larger MTU, or swap the sides");
        }
        if one.value == other.value {
            let what = format!("both sides have the MTU {}, so no packet needs another size", one.value);
            notes.warning(one.at, "wide.mtu", what, "give each side the MTU of its link");
        }
    }
}

fn check_mss(said: &RawConfig<'_>, notes: &mut Notes) {
    if let Some(safe) = said.mss.safe.here()
        && let Some(narrow) = said.narrow.as_ref().and_then(|narrow| narrow.mtu.here())
        && safe.value > narrow.value
    {
        let what = format!("{} exceeds the narrow side's MTU of {}", safe.value, narrow.value);
        let mend = match narrow.value {
            ..SAFE_LEN_MIN => "remove it, as the MTU is below 576 too".to_owned(),
            mtu => format!("set 576 to {mtu}"),
        };
        notes.error(safe.at, "mss.safe", what, mend);
    }
    if let Some(at) = said.mss.raise.is(Raise::Always) {
        let what = "replies that return by another path may exceed that path's MTU";
        notes.warning(at, "mss.raise", what, "set \"both-ways\", unless all paths pass through this gateway");
    }
}

fn check_keys_of_roles(said: &RawConfig<'_>, role: Role, notes: &mut Notes) {
    if role != Role::Border
        && let Some(at) = said.mss_at
    {
        let what = format!("{} does not change the MSS", called(role));
        notes.error(at, "mss", what, "remove [mss], or set role = \"border\"");
    }
    if let Some(acks) = said.acks.here().filter(|acks| acks.value != AckPolicy::Unchanged) {
        if role != Role::Border {
            let what = format!("{} does not change acknowledgements", called(role));
            notes.error(acks.at, "acks", what, "remove it, or set role = \"border\"");
        } else if said.bypass.here().is_some_and(|list| list.value.iter().any(|stage| stage.value == Stage::Mss)) {
            let what = "the stage \"mss\" is bypassed, so no connection is known and this has no effect";
            notes.warning(acks.at, "acks", what, "remove it, or remove \"mss\" from bypass");
        }
    }
    let is_early = said.acks.here().filter(|acks| acks.value == AckPolicy::Early);
    match (is_early, said.limits.ack_store_at) {
        (Some(acks), None) if role == Role::Border => {
            let what = "acknowledged data needs a store until the wide host has it";
            notes.error(acks.at, "acks", what, "write ack-store = \"64MiB\" below [limits], or another value here");
        }
        (_, Some(at)) if role != Role::Border => {
            let what = format!("{} acknowledges nothing early, so this has no effect", called(role));
            notes.warning(at, "limits.ack-store", what, "remove it");
        }
        _ => {}
    }
    if role != Role::WideInterface
        && let Some(at) = said.wide_interface_at
    {
        let what = format!("{} sets no routes", called(role));
        notes.error(at, "wide-interface", what, "remove [wide-interface], or set role = \"wide-interface\"");
    }
    if role != Role::WideInterface
        && let Some(at) = said.limits.datagram_lifetime_at
    {
        let what = format!("{} assigns no IPv4 IDs", called(role));
        notes.error(at, "limits.datagram-lifetime", what, "remove it, or set role = \"wide-interface\"");
    }
    let follows_flows = said.narrow.as_ref().is_some_and(|side| side.allows_long_segments().is_some());
    if role != Role::Border
        && !follows_flows
        && let Some(at) = said.limits.flows_at
    {
        let what = format!("{} keeps no flow table, so this has no effect", called(role));
        notes.warning(at, "limits.flows", what, "remove it");
    }
    if role != Role::Border
        && let Some(answers) = said.icmp_source.here()
    {
        let what = "the kernel sends the ICMP errors in this role, so this has no effect";
        notes.warning(answers.at, "icmp-source", what, "remove it");
    }
}

fn check_fail(said: &RawConfig<'_>, role: Role, sides: &[&RawSide<'_>], notes: &mut Notes) {
    let Some(at) = said.fail.is(Fail::Open) else { return };
    if role != Role::Border {
        let what = "without a running worker the kernel receives all fragments anyway, so this has no effect";
        return notes.warning(at, "fail", what, "remove it");
    }
    let is_packet = |side: &RawSide<'_>| side.port.here().is_none_or(|port| port.value.kind == Kind::Packet);
    if !sides.iter().all(|side| is_packet(side)) {
        let what = "fail = \"open\" needs packet: ports on both sides";
        notes.error(at, "fail", what, "remove it, or write packet:NAME on both sides");
    }
}

fn check_port(side: &RawSide<'_>, role: Role, notes: &mut Notes) {
    let Some(port) = side.port.here() else {
        let may_lack = (role, side.which) == (Role::WideInterface, Which::Wide);
        if matches!(side.port, Given::Not) && !may_lack {
            let mend = "write it, such as port = \"packet:lan0\"";
            notes.missing(side.table.at, side.table.name_of("port"), "this key is missing", mend);
        }
        return;
    };
    if (role, side.which, port.value.kind) == (Role::WideInterface, Which::Wide, Kind::Tun) {
        let what = "the host needs no device: its packets are taken at the narrow interface";
        return notes.error(
            port.at,
            side.table.name_of("port"),
            what,
            "remove it, or write tap:NAME for a virtual machine",
        );
    }
    let (kinds, wanted): (&[Kind], _) = match (role, side.which) {
        (Role::WideInterface, Which::Wide) => {
            (&[Kind::Tap], "tap:NAME for a virtual machine, or remove it for the host itself")
        }
        (Role::WideInterface, Which::Narrow) | (Role::Router, _) => (&[Kind::Packet], "packet:NAME"),
        (Role::Border, _) => (&[Kind::Packet, Kind::Xdp, Kind::Tap], "packet:NAME, xdp:NAME or tap:NAME"),
    };
    if kinds.contains(&port.value.kind) {
        return;
    }
    let name = Kind::NAMES.iter().find(|(_, kind)| *kind == port.value.kind).map_or("", |(name, _)| *name);
    let what = format!("{} cannot use {name} on its {} side", called(role), side.which.name());
    notes.error(port.at, side.table.name_of("port"), what, format!("write {wanted}"));
}

fn check_fragment_policy(side: &RawSide<'_>, role: Role, notes: &mut Notes) {
    let name = |key| side.table.name_of(key);
    if let Some(join) = side.fragment_policy.here()
        && join.value != FragmentPolicy::Off
    {
        if side.reassemble.is(Toggle::On).is_some() {
            let what = "reassemble = true already reassembles all fragments";
            notes.error(join.at, name("fragment-policy"), what, "remove either reassemble or fragment-policy");
        } else if matches!(side.reassemble, Given::Not) && side.reassembles_by_role(role) {
            let what = format!("{} already reassembles all fragments", called(role));
            notes.error(join.at, name("fragment-policy"), what, "remove it, or add reassemble = false");
        }
    }
    if let Some(at) = side.fragment.is(Toggle::Off)
        && side.uses_policy(FragmentPolicy::ReassembleHop, role)
    {
        let what = "fragment-policy = \"reassemble-hop\" needs fragment = true";
        notes.error(at, name("fragment"), what, "write true, or set another fragment-policy");
    }
    if let Some(timeout) = side.timeout.here()
        && timeout.value > MERGE_TIMEOUT_MAX
        && side.uses_policy(FragmentPolicy::Merge, role)
    {
        let most = shown_stretch(MERGE_TIMEOUT_MAX);
        let stretch = shown_stretch(timeout.value);
        let what = format!("IPv4 IDs may wrap within {stretch}, which is unsafe with fragment-policy = \"merge\"");
        notes.error(timeout.at, name("timeout"), what, format!("set at most \"{most}\""));
    }
}

fn check_segment_policy(side: &RawSide<'_>, role: Role, notes: &mut Notes) {
    let Some(at) = side.allows_long_segments() else { return };
    let name = |key| side.table.name_of(key);
    if role != Role::WideInterface || side.which != Which::Narrow {
        let what = "only the narrow side of a wide interface may send TCP segments above the MTU";
        notes.error(at, name("segment-policy"), what, "remove it, or write \"segment\"");
        return;
    }
    for (key, switch) in [("segment", &side.segment), ("fragment", &side.fragment)] {
        if let Some(off) = switch.is(Toggle::Off) {
            let what = format!("segment-policy needs {key} = true");
            notes.error(off, name(key), what, "write true, or remove segment-policy");
        }
    }
}

fn check_route_mtu(said: &RawConfig<'_>, side: &RawSide<'_>, role: Role, notes: &mut Notes) {
    let Some(at) = side.route_mtu.is(Toggle::On) else { return };
    let has_device = said.wide.as_ref().is_some_and(|wide| wide.port.here().is_some());
    let (what, mend) = if role != Role::WideInterface || side.which != Which::Narrow {
        ("only the narrow side of a wide interface sets the MTU of its host's routes", "remove it")
    } else if side.uses_segment_policy(&[SegmentPolicy::Lan, SegmentPolicy::LanSlow, SegmentPolicy::Wan]) {
        let what = "the policies \"lan\", \"lan-slow\" and \"wan\" do not support it";
        (what, "remove it, or write segment-policy = \"dynamic\"")
    } else if !side.uses_segment_policy(&[SegmentPolicy::Dynamic]) {
        ("no destination has the segment policy \"dynamic\"", "add segment-policy = \"dynamic\", or remove it")
    } else if has_device {
        ("the host is behind a TAP device, so its routes are not here", "remove it, or remove wide.port")
    } else {
        return;
    };
    notes.error(at, side.table.name_of("route-mtu"), what, mend);
}

/// Warns about keys that have no effect, because the stage that they configure is off on this side.
fn check_idle(side: &RawSide<'_>, role: Role, notes: &mut Notes) {
    let name = |key| side.table.name_of(key);
    if side.coalesce(role) == Some(None) {
        let what = "this side does not coalesce, so this has no effect";
        let mend = "add coalesce = \"resize\", or remove this";
        let hold = side.hold.here().map(|at| (at.at, "hold"));
        let exempt = side.exempt.here().filter(|list| !list.value.is_empty()).map(|at| (at.at, "exempt"));
        let exempt = exempt.filter(|_| side.allows_long_segments().is_none());
        for (at, key) in hold.into_iter().chain(exempt) {
            notes.warning(at, name(key), what, mend);
        }
    }
    let joins = [FragmentPolicy::Reassemble, FragmentPolicy::ReassembleHop, FragmentPolicy::Merge]
        .iter()
        .any(|join| side.uses_policy(*join, role));
    if let Some(timeout) = side.timeout.here()
        && side.fragment_policy(role).is_some()
        && !joins
    {
        let what = "this side neither reassembles nor merges fragments, so this has no effect";
        notes.warning(
            timeout.at,
            name("timeout"),
            what,
            "add reassemble = true or fragment-policy, or remove this",
        );
    }
}

fn check_bypass(said: &RawConfig<'_>, role: Role, sides: &[&RawSide<'_>], notes: &mut Notes) {
    let Some(bypass) = said.bypass.here() else {
        return;
    };
    for stage in &bypass.value {
        let works = match stage.value {
            Stage::Mss | Stage::FlowOffload => role == Role::Border,
            Stage::Coalesce => sides.iter().any(|side| side.coalesce(role) != Some(None)),
            Stage::Reassemble => sides.iter().any(|side| side.uses_policy(FragmentPolicy::Reassemble, role)),
            Stage::Merge => sides.iter().any(|side| {
                side.uses_policy(FragmentPolicy::ReassembleHop, role)
                    || side.uses_policy(FragmentPolicy::Merge, role)
            }),
            Stage::Segment | Stage::Fragment => true,
        };
        if !works {
            let what = "no side has this stage, so bypassing it has no effect";
            notes.warning(stage.at, "bypass", what, "remove it from the list");
        }
    }
}

/// Returns the role's name with its article, for a sentence.
fn called(role: Role) -> &'static str {
    match role {
        Role::WideInterface => "a wide interface",
        Role::Router => "a router",
        Role::Border => "a border",
    }
}

/// Largest MTU of a TAP device, in bytes: the longest frame of Linux (65,535) less the Ethernet header.
const TAP_MTU_MAX: u16 = 65_521;
/// The minimum MTU of IPv6, in bytes (RFC 8200 section 5).
const IPV6_MTU_MIN: u16 = 1_280;
/// The IPv4 datagram size that every host must accept, in bytes (RFC 791 section 3.1).
const SAFE_LEN_MIN: u16 = 576;
/// Maximum hold time that does not affect TCP's congestion control.
const HOLD_UNFELT: Duration = Duration::from_millis(20);
/// Maximum time-out for merging fragments. Even a fast pair of hosts does not reuse an IPv4 ID within this time
/// (X2).
const MERGE_TIMEOUT_MAX: Duration = Duration::from_millis(500);
