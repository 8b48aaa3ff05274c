//! Networks -> the fates of their packets. Faults have their documented effect, and equal seeds give equal
//! simulations.

use crate::scenes::{HOSTS, pair, plan, run};
use core::time::Duration;
use wideload_sim::flow::{Kind as FlowKind, Plan, Reply, Sizes, Talk};
use wideload_sim::link::{Burst, LinkShape, QueueLimit, Red, RedMode, Reorder};
use wideload_sim::swarm::{Case, TOUR};
use wideload_sim::{
    Change, Coverage, Fault, Gateway, GatewayRole, InjectedBug, Kind, Law, Role, Router, Scene, Simulation, To,
    Topology,
};

#[test]
fn each_seed_gives_its_own_run() {
    let traces: Vec<u64> = SEEDS.iter().map(|seed| Case::of(*seed).run().expect("no law breaks").trace).collect();
    let again: Vec<u64> = SEEDS.iter().map(|seed| Case::of(*seed).run().expect("no law breaks").trace).collect();
    assert_eq!(traces, again);
    let mut different = traces.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), traces.len());
}

#[test]
fn a_trace_is_the_same_in_every_build() {
    // All numbers of this scene are integers, so that rounding on other machines has no effect.
    let outcome = run(&scene(plain(), LinkShape::default()));
    assert_eq!(format!("{:016x}", outcome.trace), TRACE);
}

#[test]
fn checking_counts_after_each_event_finds_nothing() {
    for seed in [3, 6, 7] {
        let scene = Case::of(seed).scene();
        let usual = Simulation::new(&scene).run();
        let thorough = Simulation::new(&Scene { is_thorough: true, ..scene }).run();
        assert_eq!(thorough, usual, "seed {seed}");
    }
}

#[test]
fn a_tour_of_seeds_breaks_no_law_and_meets_everything() {
    let mut hits = Coverage::new();
    for seed in 0..TOUR {
        match Case::of(seed).run() {
            Ok(outcome) => hits.add(&outcome.hits),
            Err(what) => panic!("{}", Case::of(seed).shrink(what)),
        }
    }
    let unmet: Vec<_> = hits.rows().filter(|(_, _, count)| *count == 0).collect();
    assert_eq!(unmet, []);
}

#[test]
fn each_fault_affects_only_its_place() {
    let base = LinkShape { delay: Duration::from_micros(100), seed: 3, ..LinkShape::default() };
    let slow = Some(50_000_000);
    let red = Red { mode: RedMode::Packets, min: 1, max: 10, share: 0.5 };
    let shapes = [
        (Fault::Loss, LinkShape { loss: 0.05, ..base.clone() }),
        (Fault::Burst, LinkShape { burst: Some(Burst { begins: 0.02, ends: 0.3 }), ..base.clone() }),
        (Fault::ByteLoss, LinkShape { byte_loss: 1e-4, ..base.clone() }),
        (Fault::BitErrors, LinkShape { bit_errors: 1e-5, ..base.clone() }),
        (Fault::Reorder, LinkShape { reorder: Some(Reorder { share: 0.1, displacement: 4 }), ..base.clone() }),
        (Fault::Duplicate, LinkShape { duplicates: 0.1, ..base.clone() }),
        (Fault::Jitter, LinkShape { jitter: Duration::from_micros(50), ..base.clone() }),
        (Fault::Rate, LinkShape { rate_bits_per_second: slow, queue: QueueLimit::Packets(5), ..base.clone() }),
        (
            Fault::Red,
            LinkShape {
                rate_bits_per_second: slow,
                red: Some(red),
                queue: QueueLimit::Packets(10_000),
                ..base.clone()
            },
        ),
    ];
    let harmless = run(&scene(plain(), base));
    assert_eq!(harmless.broken, None);
    assert_eq!(harmless.hits.faults.iter().sum::<u64>(), 0);
    assert_eq!(harmless.messages[0], harmless.messages[1]);
    for (fault, shape) in shapes {
        let outcome = run(&scene(plain(), shape));
        assert_eq!(outcome.broken, None, "{fault:?}");
        let met: Vec<Fault> =
            Fault::ALL.into_iter().filter(|fault| outcome.hits.faults[*fault as usize] > 0).collect();
        assert_eq!(met, [fault]);
        let loses = !matches!(fault, Fault::Reorder | Fault::Duplicate | Fault::Jitter);
        assert_eq!(outcome.messages[1] < outcome.messages[0], loses, "{fault:?}: {:?}", outcome.messages);
    }
}

#[test]
fn a_link_without_carrier_loses_all_and_goes_on_once_it_is_back() {
    let mut scene = scene(plain(), LinkShape { delay: Duration::from_micros(100), ..LinkShape::default() });
    let [down, up] = [300, 600].map(Duration::from_micros);
    scene.changes = vec![Change { at: down, link: 1, to: To::Down }, Change { at: up, link: 1, to: To::Up }];
    let outcome = run(&scene);
    assert_eq!(outcome.broken, None);
    let [sent, arrived] = outcome.messages;
    let lost = outcome.hits.faults[Fault::Carrier as usize];
    assert!(lost > 50 && arrived > sent / 4 && arrived < sent, "{lost} lost, {arrived} of {sent} arrived");
}

#[test]
fn a_shrinking_mtu_is_obeyed_and_reported_to_hosts() {
    let mut scene = scene(GatewayRole::Border, LinkShape::default());
    scene.changes = vec![Change { at: Duration::from_micros(300), link: 1, to: To::Mtu(700) }];
    let outcome = run(&scene);
    assert_eq!(outcome.broken, None);
    assert!(outcome.told_count > 0, "{outcome:?}");
    assert!(outcome.messages[1] < outcome.messages[0]);
}

#[test]
fn connections_deliver_all_bytes_through_gateways_and_losses() {
    let lossy = LinkShape { delay: Duration::from_millis(1), loss: 0.02, seed: 3, ..LinkShape::default() };
    for role in [GatewayRole::Border, GatewayRole::WideInterface, GatewayRole::ReceiveOffload] {
        for (shape, reply, is_v6) in [
            (LinkShape::default(), Reply::AtLast, false),
            (lossy.clone(), Reply::AtOnce, false),
            (lossy.clone(), Reply::AtLast, true),
        ] {
            let mut scene = talking(scene(role, shape), [0, 2]);
            scene.flows[0].is_v6 = is_v6;
            scene.flows[0].talk.reply = reply;
            let outcome = run(&scene);
            assert_eq!((outcome.broken, outcome.connections), (None, 1), "{role:?} {reply:?}");
            assert!(outcome.tcp_bytes > 600_000, "{role:?}: {} bytes", outcome.tcp_bytes);
            assert_eq!(outcome.tcp_packets, outcome.packets);
        }
    }
}

#[test]
fn connections_learn_reported_mtus_and_find_unreported_ones() {
    for (kind, is_told) in [(Router::Refuses, true), (Router::Fragments, true), (Router::Silent, false)] {
        let mut scene = talking(routed(kind), [0, 2]);
        let second = scene.topology.node("second router", Kind::Router(kind));
        scene.topology.links[1].ends = [1, second];
        scene.topology.link([second, 2], 1_500, LinkShape::default());
        let outcome = run(&scene);
        assert_eq!((outcome.broken, outcome.connections), (None, 1), "{kind:?}");
        assert_eq!(outcome.told_count > 0, is_told, "{kind:?}");
    }
}

#[test]
fn an_ecn_connection_is_marked_on_a_congested_link() {
    let marked = |ecn: bool, marks_above: Option<u64>| {
        let shape = LinkShape { rate_bits_per_second: Some(100_000_000), ..LinkShape::default() };
        let mut scene = talking(scene(plain(), shape), [0, 2]);
        scene.flows[0].talk.ends.iter_mut().for_each(|end| end.ecn = ecn);
        scene.topology.links.iter_mut().for_each(|link| link.marks_above = marks_above);
        let outcome = run(&scene);
        assert_eq!((outcome.broken, outcome.connections), (None, 1));
        outcome.hits.faults[Fault::Mark as usize]
    };
    assert!(marked(true, Some(2)) > 0);
    assert_eq!([marked(true, None), marked(false, Some(2))], [0, 0]);
}

#[test]
fn a_connection_that_cannot_end_breaks_a_law() {
    let mut scene = talking(scene(plain(), LinkShape::default()), [0, 2]);
    scene.changes = vec![Change { at: Duration::from_micros(300), link: 1, to: To::Down }];
    let broken = run(&scene).broken.expect("nothing arrives over a link that stays down");
    assert_eq!(broken.law, Law::Integrity);
    assert!(broken.what.contains("does not end as it should"), "{broken}");
}

#[test]
fn changed_bytes_in_a_connection_are_detected() {
    let mut scene = talking(scene(plain(), LinkShape::default()), [0, 2]);
    scene.bug = Some(InjectedBug::Corrupts);
    let broken = run(&scene).broken.expect("a law breaks");
    assert_eq!(broken.law, Law::Integrity, "{broken}");
}

#[test]
fn a_packet_that_passes_two_gateways_counts_at_the_first() {
    let messages = |mut scene: Scene| {
        scene.flows.retain(|flow| flow.kind == FlowKind::Datagrams);
        run(&scene)
    };
    let one = messages(scene(plain(), LinkShape::default()));
    let mut scene = scene(plain(), LinkShape::default());
    let gateway = scene.topology.node("second gateway", Kind::Gateway(Gateway::new(plain(), 2)));
    scene.topology.links[1].ends = [1, gateway];
    scene.topology.link([gateway, 2], 9_000, LinkShape::default());
    let two = messages(scene);
    assert_eq!((one.broken, two.broken), (None, None));
    assert_eq!([one.packets, two.packets], [1_200, 1_200]);
}

#[test]
fn each_router_treats_long_packets_by_its_kind() {
    for (kind, arrives, is_told) in [
        (Router::Fragments, true, false),
        (Router::Refuses, false, true),
        (Router::Silent, false, false),
        (Router::ReassemblesByHop, true, false),
        (Router::Merges, true, false),
    ] {
        let outcome = run(&routed(kind));
        assert_eq!(outcome.broken, None, "{kind:?}");
        let [sent, arrived] = outcome.messages;
        assert_eq!(arrived == sent, arrives, "{kind:?}: {arrived} of {sent}");
        assert_eq!(outcome.told_count > 0, is_told, "{kind:?}");
        let role = Role::ALL.iter().position(|role| *role == Role::from(kind)).expect("it is a role");
        assert!(outcome.hits.roles[role] >= sent, "{kind:?}");
    }
}

#[test]
fn a_hundred_nodes_in_a_chain_tree_or_mesh_deliver_everything() {
    let chain: String =
        (0..98).map(|number| format!("[[node]]\nname = \"c{number}\"\nkind = \"router\"\n")).collect();
    let names: Vec<String> = (0..98).map(|number| format!("\"c{number}\"")).collect();
    let hosts = "[[node]]\nname = \"a\"\nkind = \"host\"\n[[node]]\nname = \"b\"\nkind = \"host\"\n";
    let chain = format!("{hosts}{chain}[[chain]]\nnodes = [\"a\", {}, \"b\"]\nmtu = 1500\n", names.join(", "));
    let mesh = format!(
        "{hosts}[[mesh]]\nnames = \"m\"\ncount = 98\nextra = 40\nmtu = 1500\n\
         [[link]]\nends = [\"a\", \"m0\"]\nmtu = 9000\n[[link]]\nends = [\"m97\", \"b\"]\nmtu = 1400\n"
    );
    let tree = "[[node]]\nname = \"a\"\nkind = \"host\"\n[[node]]\nname = \"root\"\nkind = \"router\"\n\
                [[link]]\nends = [\"a\", \"root\"]\nmtu = 1500\n\
                [[tree]]\nroot = \"root\"\nnames = \"t\"\nfanout = 4\ndepth = 3\nmtu = 1300\n";
    for text in [chain, mesh, tree.to_owned()] {
        let topology = text.parse::<Scene>().unwrap_or_else(|bad| panic!("{bad}")).topology;
        let hosts = topology.nodes.iter().enumerate().filter(|(_, node)| matches!(node.kind, Kind::Host { .. }));
        let hosts: Vec<usize> = hosts.map(|(number, _)| number).collect();
        let (first, last) = (hosts[0], hosts[hosts.len() - 1]);
        let flows = vec![plan(FlowKind::Datagrams, first, last, Sizes::Between(1, 4_000))];
        let outcome = run(&Scene { topology, flows, seed: 1, ..Scene::default() });
        assert_eq!((outcome.broken, outcome.messages), (None, [600, 600]));
    }
}

fn plain() -> GatewayRole {
    GatewayRole::WideInterface
}

/// A host behind a gateway, and a host on the other side of a link with these properties.
fn scene(role: GatewayRole, shape: LinkShape) -> Scene {
    let topology = pair(role, shape);
    let [far, near] = HOSTS;
    let flows = vec![
        plan(FlowKind::Datagrams, far, near, Sizes::Between(8, 1_400)),
        plan(FlowKind::Datagrams, near, far, Sizes::Between(8, 1_400)),
        plan(FlowKind::Stream, far, near, Sizes::Full),
    ];
    Scene { topology, flows, seed: 5, ..Scene::default() }
}

/// A host, a router of this kind, and a host on a link with a smaller MTU. Datagrams of both hosts may be
/// fragmented.
fn routed(kind: Router) -> Scene {
    let mut topology = Topology::default();
    let one = topology.node("one", Kind::Host { dont_fragment: false });
    let router = topology.node("router", Kind::Router(kind));
    let other = topology.node("other", Kind::Host { dont_fragment: false });
    topology.link([one, router], 1_500, LinkShape::default());
    topology.link([router, other], 700, LinkShape::default());
    let flows = vec![plan(FlowKind::Datagrams, one, other, Sizes::Between(1, 5_000))];
    Scene { topology, flows, seed: 2, ..Scene::default() }
}

/// The same network, with one connection between these two hosts.
fn talking(mut scene: Scene, [from, to]: [usize; 2]) -> Scene {
    let talk = Talk { reply_len: 100_000, ..Talk::default() };
    scene.flows = vec![Plan { talk, ..plan(FlowKind::Tcp, from, to, Sizes::Fixed(1_000)) }];
    scene
}

const SEEDS: [u64; 8] = [0, 1, 2, 4, 5, 8, 9, 11];
/// The expected trace hash of the test `a_trace_is_the_same_in_every_build`.
const TRACE: &str = "0c4d40ef21fe088f";
