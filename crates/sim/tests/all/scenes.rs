//! Gateway role and link shape -> the network that most tests use. Scene -> the outcome of its simulation.

use core::time::Duration;
use wideload_sim::flow::{Kind as FlowKind, Plan, Sizes, Talk};
use wideload_sim::link::LinkShape;
use wideload_sim::{Gateway, GatewayRole, Kind, Outcome, Scene, Simulation, Topology};

/// A host on a wide link, a gateway, and a host on a narrow link with these properties.
pub fn pair(role: GatewayRole, shape: LinkShape) -> Topology {
    let mut topology = Topology::default();
    let far = topology.node("far", Kind::Host { dont_fragment: true });
    let gateway = topology.node("gateway", Kind::Gateway(Gateway::new(role, far)));
    let near = topology.node("near", Kind::Host { dont_fragment: true });
    assert_eq!([far, near], HOSTS);
    topology.link([far, gateway], 9_000, LinkShape::default());
    topology.link([gateway, near], 1_500, shape);
    topology
}

/// A flow of six hundred packets or messages, in bursts of twenty.
pub fn plan(kind: FlowKind, from: usize, to: usize, sizes: Sizes) -> Plan {
    Plan {
        kind,
        from,
        to,
        is_v6: false,
        sizes,
        count: 600,
        burst: 20,
        gap: Duration::from_micros(30),
        start: Duration::ZERO,
        disorder: 0,
        has_timestamps: true,
        acks_every: 4,
        talk: Talk::default(),
    }
}

pub fn run(scene: &Scene) -> Outcome {
    Simulation::new(scene).run()
}

/// The far host and the near one.
pub const HOSTS: [usize; 2] = [0, 2];
