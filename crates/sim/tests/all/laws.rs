//! Gateways with injected bugs -> the law that detects each. A law that no bug breaks proves nothing.

use crate::scenes::{HOSTS, pair, plan, run};
use core::time::Duration;
use engine::{Event, SegmentPolicy};
use wideload_sim::flow::{Kind as FlowKind, Plan, Sizes};
use wideload_sim::link::LinkShape;
use wideload_sim::swarm::Case;
use wideload_sim::{Broken, Change, Gateway, GatewayRole, InjectedBug, Kind, Law, Router, Scene, To};

#[test]
fn a_correct_gateway_breaks_no_law_and_loses_nothing() {
    for role in [GatewayRole::Border, GatewayRole::WideInterface, GatewayRole::ReceiveOffload] {
        let outcome = run(&scene(role, None));
        assert_eq!(outcome.broken, None, "{role:?}");
        assert!(outcome.messages[0] > 500 && outcome.messages[0] == outcome.messages[1], "{role:?}: {outcome:?}");
        assert!(outcome.stream_bytes > 100_000, "{role:?}: {outcome:?}");
        for law in [Law::Mtu, Law::Conservation, Law::Integrity, Law::Order, Law::Holding] {
            assert!(outcome.hits.laws[law as usize - 1] > 100, "{law:?} was looked at: {:?}", outcome.hits.laws);
        }
    }
}

#[test]
fn silent_drops_break_conservation() {
    assert_eq!(broken(InjectedBug::DropsSilently).law, Law::Conservation);
}

#[test]
fn a_leaked_buffer_breaks_conservation() {
    let broken = broken(InjectedBug::ForgetsBuffer);
    assert_eq!(broken.law, Law::Conservation);
    assert!(broken.what.contains("buffers are lent"), "{broken}");
}

#[test]
fn exceeding_an_mtu_breaks_the_first_law() {
    assert_eq!(broken(InjectedBug::ExceedsMtu).law, Law::Mtu);
}

#[test]
fn changed_bytes_with_valid_checksums_break_integrity() {
    assert_eq!(broken(InjectedBug::Corrupts).law, Law::Integrity);
}

#[test]
fn lost_or_invented_ce_marks_break_integrity() {
    for is_v6 in [false, true] {
        for (bug, marks_above, shown) in [
            (None, Some(0), None),
            (Some(InjectedBug::LosesMarks), Some(0), Some("left marked")),
            (Some(InjectedBug::InventsMarks), None, Some("arrived marked")),
        ] {
            for sizes in [Sizes::Fixed(1_000), Sizes::Fixed(5_000)] {
                let mut scene = marked(bug, marks_above, sizes);
                scene.flows.iter_mut().for_each(|flow| flow.is_v6 = is_v6);
                let broken = run(&scene).broken;
                let is_seen = match (&broken, shown) {
                    (Some(broken), Some(what)) => broken.law == Law::Integrity && broken.what.contains(what),
                    (None, None) => true,
                    // A mark on one fragment marks the complete datagram, so this check does not apply to
                    // fragmented datagrams.
                    (None, Some("arrived marked")) => sizes == Sizes::Fixed(5_000),
                    _ => false,
                };
                assert!(is_seen, "{bug:?}, {sizes:?}, version 6 {is_v6}: {broken:?}");
            }
        }
    }
}

#[test]
fn refusal_without_an_icmp_error_breaks_refusal() {
    let broken = broken(InjectedBug::TellsNobody);
    assert_eq!(broken.law, Law::Refusal);
    assert!(broken.what.contains("tell its sender"), "{broken}");
}

#[test]
fn fragmenting_df_packets_breaks_refusal() {
    let mut scene = scene(GatewayRole::Border, Some(InjectedBug::CutsAll));
    scene.flows.retain(|flow| flow.kind == FlowKind::Datagrams && flow.from == HOSTS[0]);
    assert_eq!(run(&scene).broken.expect("a law breaks").law, Law::Refusal);
}

#[test]
fn reordering_breaks_order() {
    let broken = broken(InjectedBug::Reorders);
    assert_eq!(broken.law, Law::Order, "{broken}");
}

#[test]
fn reordering_damaged_packets_breaks_order() {
    for (shown, bug) in [(None, None), (Some(Law::Order), Some(InjectedBug::Reorders))] {
        let mut scene = scene(GatewayRole::WideInterface, bug);
        scene.flows.retain(|flow| flow.kind == FlowKind::Stream);
        for flow in &mut scene.flows {
            (flow.count, flow.sizes) = (20_000, Sizes::Fixed(536));
        }
        scene.topology.links[0].shapes.iter_mut().for_each(|shape| shape.bit_errors = 1e-5);
        assert_eq!(run(&scene).broken.map(|broken| broken.law), shown);
    }
}

#[test]
fn shorter_segments_without_a_loss_break_sizes() {
    for (shown, bug) in [(None, None), (Some(Law::Sizes), Some(InjectedBug::Repeats))] {
        let mut scene = scene(GatewayRole::WideInterface, bug);
        scene.flows = vec![plan(FlowKind::Tcp, HOSTS[0], HOSTS[1], Sizes::Fixed(100_000))];
        scene.topology.nodes[HOSTS[0]].kind = Kind::Host { dont_fragment: false };
        // The receiver is behind a wide interface too, so it accepts wide segments.
        let interface =
            Gateway { segments: SegmentPolicy::Dynamic, ..Gateway::new(GatewayRole::WideInterface, HOSTS[0]) };
        scene.topology.nodes[1].kind = Kind::Gateway(interface.clone());
        let other = scene.topology.node("other".to_owned(), Kind::Gateway(Gateway { wide: HOSTS[1], ..interface }));
        scene.topology.links[1].ends = [1, other];
        scene.topology.link([other, HOSTS[1]], 9_000, LinkShape::default());
        assert_eq!(run(&scene).broken.map(|broken| broken.law), shown);
    }
}

#[test]
fn a_lowered_path_is_raised_after_ten_minutes() {
    for (kind, lowered) in [(Router::Refuses, Event::PathLoweredIcmp), (Router::Silent, Event::PathLoweredLoss)] {
        for is_v6 in [false, true] {
            for loss in [0.0, 0.01] {
                let what = format!("{kind:?}, version 6 {is_v6}, loss {loss}");
                let outcome = run(&shrinking(kind, is_v6, loss));
                assert_eq!(outcome.broken, None, "{what}");
                let count = |event| outcome.hits.events[event as usize];
                assert!(count(lowered) > 0, "{what}: the path is lowered");
                assert!(count(Event::PathRaised) > 0, "{what}: the path is raised");
                assert_eq!(outcome.lowered_path_count, 0, "{what}: the path is lowered at the end");
            }
        }
    }
}

/// A connection of twelve minutes across a border and a router. The router's link carries only 1,300 bytes for half a
/// minute.
fn shrinking(kind: Router, is_v6: bool, loss: f64) -> Scene {
    let mut topology = pair(GatewayRole::Border, LinkShape::default());
    let router = topology.node("router".to_owned(), Kind::Router(kind));
    topology.links[1].ends = [1, router];
    let delay = Duration::from_millis(5);
    topology.link([router, HOSTS[1]], 1_500, LinkShape { delay, loss, ..LinkShape::default() });
    let mut flow = plan(FlowKind::Tcp, HOSTS[0], HOSTS[1], Sizes::Fixed(40_000));
    (flow.is_v6, flow.count, flow.burst, flow.gap) = (is_v6, 7_200, 1, Duration::from_millis(100));
    let change = |at, to| Change { at: Duration::from_secs(at), link: 2, to: To::Mtu(to) };
    let changes = vec![change(2, 1_300), change(32, 1_500)];
    Scene { topology, flows: vec![flow], changes, bug: None, seed: 1, is_thorough: false }
}

#[test]
fn holding_past_a_deadline_breaks_holding() {
    let broken = broken(InjectedBug::HoldsTooLong);
    assert_eq!(broken.law, Law::Holding, "{broken}");
}

#[test]
fn an_uncounted_lost_message_is_detected() {
    let mut scene = scene(GatewayRole::Border, None);
    scene.bug = Some(InjectedBug::LosesUnseen);
    let broken = run(&scene).broken.expect("a law breaks");
    assert_eq!(broken.law, Law::Integrity);
    assert!(broken.what.contains("did not arrive"), "{broken}");
}

#[test]
fn a_broken_law_shrinks_to_fewer_packets_and_names_the_command_that_repeats_it() {
    let case = Case { bug: Some(InjectedBug::DropsSilently), ..Case::of(1) };
    let what = case.run().expect_err("a gateway that drops breaks a law");
    let failure = case.shrink(what);
    let most = |case: &Case| case.scene().flows.iter().map(|flow| flow.count).sum::<u64>();
    assert!(most(&failure.case) < most(&case) / 4, "{} is not much smaller", failure.case);
    let text = failure.to_string();
    assert!(text.contains(&format!("repeat with: wideload lab swarm --case {}", failure.case)), "{text}");
    let again: Case = failure.case.to_string().parse().expect("a case reads back");
    assert_eq!(again, failure.case);
    assert_eq!(again.run().expect_err("the smaller case breaks it too"), failure.what);
}

/// The first law that a gateway with an injected bug breaks.
fn broken(bug: InjectedBug) -> Broken {
    let outcome = run(&scene(GatewayRole::Border, Some(bug)));
    outcome.broken.unwrap_or_else(|| panic!("{bug:?} breaks no law: {:?}", outcome.hits))
}

/// Streams and datagrams between a host on a wide link and a host on a narrow link, through a gateway. No router
/// may fragment the datagrams, some of which are too long.
fn scene(role: GatewayRole, bug: Option<InjectedBug>) -> Scene {
    let topology = pair(role, LinkShape { delay: Duration::from_micros(50), ..LinkShape::default() });
    let [far, near] = HOSTS;
    let flows = vec![
        plan(FlowKind::Datagrams, near, far, Sizes::Between(100, 1_400)),
        plan(
            FlowKind::Datagrams,
            far,
            near,
            if role == GatewayRole::Border { Sizes::Full } else { Sizes::Fixed(900) },
        ),
        plan(FlowKind::Stream, far, near, Sizes::Full),
        plan(FlowKind::Stream, near, far, Sizes::Full),
    ];
    let flows = if bug.is_none() { flows.into_iter().map(fitting).collect() } else { flows };
    Scene { topology, flows, bug, seed: 5, ..Scene::default() }
}

/// ECN-capable datagrams and a stream toward the host on the wide link. The gateway reassembles fragments.
fn marked(bug: Option<InjectedBug>, marks_above: Option<u64>, sizes: Sizes) -> Scene {
    let mut scene = scene(GatewayRole::WideInterface, bug);
    let [far, near] = HOSTS;
    scene.topology.nodes[near].kind = Kind::Host { dont_fragment: false };
    scene.topology.links[1].marks_above = marks_above;
    scene.flows.retain(|flow| flow.from == near);
    for flow in &mut scene.flows {
        assert_eq!(flow.to, far);
        flow.talk.ends[0].ecn = true;
        flow.sizes = sizes;
    }
    scene
}

/// The same plan with datagrams that fit the narrow MTU, so that none must be rejected.
fn fitting(plan: Plan) -> Plan {
    let sizes = if plan.kind == FlowKind::Datagrams { Sizes::Between(1, 1_400) } else { plan.sizes };
    Plan { sizes, ..plan }
}
