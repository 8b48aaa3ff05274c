//! A seed -> a random network with traffic and faults. A failing seed -> the smallest failing case.
//!
//! Each seed first decides which kinds of features exist (rel:4.2), and then draws their details. All draws depend
//! only on the seed. If a case excludes a feature, all other draws remain equal.

mod text;

use crate::coverage::Fault;
use crate::flow::{Kind as FlowKind, Plan, Reply, Sizes, Talk};
use crate::injected_bug::InjectedBug;
use crate::link::{Burst, LinkShape, QueueLimit, Red, RedMode, Reorder};
use crate::rng::Rng;
use crate::scene::Scene;
use crate::simulation::{Change, Outcome, Simulation, To};
use crate::tcp::Settings;
use crate::tcp::settings::{
    Algorithm, Belief, Detection, InitialWindow, Memory, Nagle, PathChoice, Probing, Reduction, SlowStartExit,
};
use crate::topology::{Gateway, GatewayRole, Kind, Lateness, Router, Topology};
use core::time::Duration;
use engine::{AckPolicy, Hold, Mode, PlacementMode, SegmentPolicy};
use packet::Split;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A simulation of the swarm: a seed, and the parts of its scene that are excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// The seed of all random choices.
    pub seed: u64,
    /// Excluded faults.
    pub without: Vec<Fault>,
    /// Numbers of the flows to run; `None` = all flows.
    pub flows: Option<Vec<usize>>,
    /// Maximum number of messages or segments per flow; `None` = no limit.
    pub count_max: Option<u64>,
    /// The bug injected into the gateways; `None` = none.
    pub bug: Option<InjectedBug>,
}

/// The smallest case that still fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The smallest failing case that was found.
    pub case: Case,
    /// The error message of the failure.
    pub what: String,
}

impl Case {
    /// The case of a seed without exclusions.
    pub fn of(seed: u64) -> Case {
        Case { seed, ..Case::default() }
    }

    /// Draws the network, its traffic and its faults.
    pub fn scene(&self) -> Scene {
        let mut scene = Drawing::new(self.seed).draw();
        for link in &mut scene.topology.links {
            for shape in &mut link.shapes {
                self.without.iter().for_each(|fault| leave_out(*fault, shape));
            }
        }
        if self.without.contains(&Fault::Mark) {
            scene.topology.links.iter_mut().for_each(|link| link.marks_above = None);
        }
        scene.changes.retain(|change| !self.without.contains(&fault_of(change)));
        if self.without.contains(&Fault::SmallPool) {
            for node in &mut scene.topology.nodes {
                if let Kind::Gateway(gateway) = &mut node.kind {
                    (gateway.limit, gateway.pool) = (LIMIT, POOL);
                }
            }
        }
        if let Some(kept) = &self.flows {
            let numbered = std::mem::take(&mut scene.flows).into_iter().enumerate();
            scene.flows = numbered.filter(|(number, _)| kept.contains(number)).map(|(_, flow)| flow).collect();
        }
        scene.flows.retain(|flow| flow.kind != FlowKind::Malformed || !self.without.contains(&Fault::Malformed));
        if let Some(most) = self.count_max {
            scene.flows.iter_mut().for_each(|flow| flow.count = flow.count.min(most));
        }
        scene.bug = self.bug;
        scene
    }

    /// Simulates the case.
    ///
    /// # Errors
    /// The violated law, or the message of a failed assertion.
    pub fn run(&self) -> Result<Outcome, String> {
        let scene = self.scene();
        let outcome = catch_unwind(AssertUnwindSafe(|| Simulation::new(&scene).run())).map_err(crate::said)?;
        match &outcome.broken {
            Some(broken) => Err(broken.to_string()),
            None => Ok(outcome),
        }
    }

    /// Searches for a failing variant of the case with as few faults, flows and packets as possible. `what` is the
    /// error message of the case itself.
    pub fn shrink(&self, what: String) -> Failure {
        let mut best = Failure { case: self.clone(), what };
        let mut tries = TRIES;
        let mut try_case = |case: Case, best: &mut Failure| {
            tries -= 1;
            let broken = if tries > 0 { case.run().err() } else { None };
            let is_smaller = broken.is_some();
            if let Some(what) = broken {
                *best = Failure { case, what };
            }
            is_smaller
        };
        for fault in Fault::ALL {
            let mut case = best.case.clone();
            case.without.push(fault);
            try_case(case, &mut best);
        }
        let flow_count = self.scene().flows.len();
        for flow in 0..flow_count {
            let mut case = best.case.clone();
            let kept = case.flows.get_or_insert_with(|| (0..flow_count).collect());
            kept.retain(|number| *number != flow);
            if !kept.is_empty() {
                try_case(case, &mut best);
            }
        }
        let longest = best.case.scene().flows.iter().map(|flow| flow.count).max().unwrap_or(0);
        let (mut good, mut bad) = (0, best.case.count_max.unwrap_or(longest));
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            let case = Case { count_max: Some(middle), ..best.case.clone() };
            if try_case(case, &mut best) { bad = middle } else { good = middle }
        }
        // The original case may list faults in any order.
        best.case.without.sort_by_key(|fault| *fault as usize);
        best
    }
}

fn fault_of(change: &Change) -> Fault {
    match change.to {
        To::Down | To::Up => Fault::Carrier,
        To::Mtu(_) => Fault::MtuChange,
    }
}

fn leave_out(fault: Fault, shape: &mut LinkShape) {
    match fault {
        Fault::Loss => shape.loss = 0.0,
        Fault::Burst => shape.burst = None,
        Fault::ByteLoss => shape.byte_loss = 0.0,
        Fault::BitErrors => shape.bit_errors = 0.0,
        Fault::Reorder => shape.reorder = None,
        Fault::Duplicate => shape.duplicates = 0.0,
        Fault::Jitter => shape.jitter = Duration::ZERO,
        Fault::Rate => shape.rate_bits_per_second = None,
        Fault::Red => shape.red = None,
        Fault::Carrier | Fault::MtuChange | Fault::SmallPool | Fault::Malformed | Fault::Mark => {}
    }
}

/// The state during the drawing of a scene.
struct Drawing {
    rng: Rng,
    seed: u64,
    /// The seed's position in a tour. [`TOUR`] consecutive seeds cover every fault and role.
    stop: u64,
    faults: Vec<Fault>,
    topology: Topology,
    /// Number of links on the path between the left hosts and the right hosts.
    link_count: u64,
    /// Minimum MTU of the path, in bytes.
    least_mtu: u16,
}

impl Drawing {
    fn new(seed: u64) -> Drawing {
        let mut dice = Rng::new(seed);
        let stop = seed % TOUR;
        let is_plain = dice.one_in(4);
        let mut faults: Vec<Fault> = Fault::ALL.into_iter().filter(|_| dice.one_in(4) && !is_plain).collect();
        let forced: &[Fault] = match stop {
            EVICTING => &[Fault::Malformed, Fault::SmallPool],
            UNENDING_HEADERS | RETIRING => &[Fault::Malformed],
            _ => Fault::ALL.get(stop as usize).map_or(&[], std::slice::from_ref),
        };
        faults.extend(forced.iter().copied().filter(|fault| !faults.contains(fault)).collect::<Vec<_>>());
        Drawing { rng: dice, seed, stop, faults, topology: Topology::default(), link_count: 2, least_mtu: u16::MAX }
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn draw(mut self) -> Scene {
        let narrow_mtu = self.narrow_mtu();
        let role = match self.stop {
            SPENT_IDS | UNENDING_HEADERS | EVICTING | RETIRING => GatewayRole::WideInterface,
            NARROW_PATH | TINY_PATH => GatewayRole::Border,
            stop => {
                [GatewayRole::Border, GatewayRole::WideInterface, GatewayRole::ReceiveOffload][stop as usize % 3]
            }
        };
        let wide_mtu = match role {
            GatewayRole::Border => self.rng.one_of(&[9_000, 9_000, 4_000, 1_500, 9_216, 65_535]).max(narrow_mtu),
            GatewayRole::WideInterface | GatewayRole::ReceiveOffload => 65_535,
        };
        let left_count = self.rng.one_of(&[1, 1, 1, 1, 1, 1, 2, 3]);
        let left = self.hosts("left", left_count);
        let gateway = self.gateway(role, "gateway");
        self.cluster(&left, gateway, wide_mtu);
        let mut at = gateway;
        let mut mtus = vec![narrow_mtu];
        for _ in 0..self.middle_count() {
            let router = self.router();
            let mtu = match (self.stop, mtus.len()) {
                (NARROW_PATH | TINY_PATH, 1) => narrow_mtu,
                (NARROW_PATH, _) => 1_280,
                (TINY_PATH, _) => TINY_MTU,
                _ => self.next_mtu(narrow_mtu),
            };
            mtus.push(mtu);
            let shape = self.shape();
            self.topology.link([at, router], mtu, shape);
            at = router;
            self.link_count += 1;
        }
        if self.stop == MESH {
            at = self.mesh(at, narrow_mtu);
            self.link_count += MESH_DIRECTION_LEN;
        }
        let right_count = self.rng.one_of(&[1, 1, 1, 1, 1, 1, 2, 3]);
        let right = self.hosts("right", right_count);
        let far_mtu = if self.rng.one_in(5) {
            let far = self.gateway(role, "far gateway");
            let shape = self.shape();
            self.topology.link([at, far], narrow_mtu, shape);
            self.cluster(&right, far, wide_mtu);
            self.link_count += 2;
            wide_mtu
        } else {
            self.join_all(&right, at, narrow_mtu);
            narrow_mtu
        };
        self.least_mtu = mtus.into_iter().min().unwrap_or(narrow_mtu).min(far_mtu);
        let changes = self.changes();
        let marks_above = self.rng.one_of(&[0, 4, 20]);
        if self.has(Fault::Mark) {
            self.topology.links.iter_mut().for_each(|link| link.marks_above = Some(marks_above));
        }
        let flows = self.flows(&left, &right, far_mtu);
        let Drawing { seed, topology, .. } = self;
        Scene { topology, flows, changes, bug: None, seed, is_thorough: false }
    }

    fn narrow_mtu(&mut self) -> u16 {
        let drawn = self.rng.one_of(&[1_500, 1_500, 1_500, 1_500, 1_400, 1_280, 4_000, 576, 296, 68]);
        match self.stop {
            SPENT_IDS => 68,
            UNENDING_HEADERS | RETIRING => 1_280,
            NARROW_PATH | TINY_PATH => 1_500,
            _ => drawn,
        }
    }

    fn next_mtu(&mut self, narrow_mtu: u16) -> u16 {
        let smaller = self.rng.one_of(&[narrow_mtu, narrow_mtu, 1_500, 1_280, 1_300, 576]);
        smaller.min(narrow_mtu)
    }

    fn middle_count(&mut self) -> u64 {
        let count = self.rng.one_of(&[0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        match self.stop {
            stop if (FIRST_ROUTER..FIRST_ROUTER + 5).contains(&stop) => count.max(1),
            NARROW_PATH | TINY_PATH => 2,
            _ => count,
        }
    }

    fn hosts(&mut self, name: &str, count: u64) -> Vec<usize> {
        let mut hosts = Vec::new();
        for number in 0..count {
            let dont_fragment = self.rng.one_in(2);
            hosts.push(self.topology.node(format!("{name} {number}"), Kind::Host { dont_fragment }));
        }
        hosts
    }

    fn router(&mut self) -> usize {
        let kinds = [Router::Fragments, Router::Refuses, Router::Silent, Router::ReassemblesByHop, Router::Merges];
        let drawn = self.rng.one_of(&kinds);
        let forced = self.stop.checked_sub(FIRST_ROUTER).and_then(|at| kinds.get(at as usize)).copied();
        let forced = match self.stop {
            NARROW_PATH => Some(Router::Refuses),
            // A host may send no shorter packets without DF.
            TINY_PATH => Some(Router::Fragments),
            _ => forced,
        };
        let name = format!("router {}", self.topology.nodes.len());
        self.topology.node(name, Kind::Router(forced.unwrap_or(drawn)))
    }

    /// Adds hosts at the wide side of a gateway, behind a router if there are several.
    fn cluster(&mut self, hosts: &[usize], gateway: usize, mtu: u16) {
        let wide = match hosts {
            [host] => *host,
            _ => {
                let hub = self.topology.node(format!("hub of {gateway}"), Kind::Router(Router::Fragments));
                self.join_all(hosts, hub, mtu);
                hub
            }
        };
        self.topology.link([wide, gateway], mtu, LinkShape::default());
        if let Kind::Gateway(config) = &mut self.topology.nodes[gateway].kind {
            config.wide = wide;
        }
    }

    fn join_all(&mut self, hosts: &[usize], to: usize, mtu: u16) {
        let is_gateway = matches!(self.topology.nodes[to].kind, Kind::Gateway(_));
        let hub = match hosts {
            [_, _, ..] if is_gateway => {
                let hub = self.topology.node(format!("hub {to}"), Kind::Router(Router::Fragments));
                let shape = self.shape();
                self.topology.link([to, hub], mtu, shape);
                hub
            }
            _ => to,
        };
        for host in hosts {
            let shape = if hub == to { self.shape() } else { LinkShape::default() };
            self.topology.link([hub, *host], mtu, shape);
        }
    }

    fn mesh(&mut self, at: usize, mtu: u16) -> usize {
        let mut members = vec![at];
        for _ in 0..MESH_LEN {
            let member = self.router();
            let other = self.rng.one_of(&members);
            let other = if other == at && members.len() > 1 { members[1] } else { other };
            self.topology.link([other, member], mtu, LinkShape::default());
            members.push(member);
        }
        for _ in 0..MESH_LEN / 3 {
            let ends = [self.rng.one_of(&members[1..]), self.rng.one_of(&members[1..])];
            if ends[0] != ends[1] {
                self.topology.link(ends, mtu, LinkShape::default());
            }
        }
        members[MESH_LEN]
    }

    fn gateway(&mut self, role: GatewayRole, name: &str) -> usize {
        let dice = &mut self.rng;
        let mut config = Gateway::new(role, 0);
        config.reassemble |= role == GatewayRole::ReceiveOffload && dice.one_in(2) || dice.one_in(8);
        config.merge = !config.reassemble && dice.one_in(2);
        config.coalesce = dice.one_of(&[Some(Mode::Resize), Some(Mode::Reversible), config.coalesce, None]);
        config.datagrams = dice.one_in(3);
        config.split = dice.one_of(&[Split::Max, Split::Max, Split::Balanced]);
        config.hold = dice.one_of(&[
            None,
            None,
            Some(Hold::Adaptive),
            Some(Hold::Fixed(Duration::from_micros(200))),
            Some(Hold::Fixed(Duration::from_millis(5))),
        ]);
        config.timeout =
            dice.one_of(&[None, None, Some(Duration::from_millis(50)), Some(Duration::from_millis(500))]);
        config.late = dice.one_of(&[Lateness::Release, Lateness::Release, Lateness::Retire]);
        config.guessing = dice.one_of(&[PlacementMode::Always, PlacementMode::WherePays]);
        (config.limit, config.pool) = (LIMIT, POOL);
        let small = [dice.one_of(&[20_000, 100_000, 300_000]), dice.one_of(&[70_000, 200_000, 400_000])];
        if self.faults.contains(&Fault::SmallPool) {
            [config.limit, config.pool] = small;
        }
        // Drawn by turns: an additional draw would change all later ones.
        config.is_fair = (self.stop + self.seed / TOUR) % 3 == 1;
        if role == GatewayRole::WideInterface {
            config.segments = SegmentPolicy::NAMES[(self.seed / TOUR) as usize % SegmentPolicy::NAMES.len()].1;
        }
        if role == GatewayRole::Border {
            let turn = self.stop / 3 + self.seed / TOUR;
            config.acks = AckPolicy::NAMES[turn as usize % AckPolicy::NAMES.len()].1;
        }
        if matches!(self.stop, EVICTING | RETIRING) {
            (config.late, config.timeout) = (Lateness::Retire, Some(Duration::from_millis(50)));
        }
        if self.stop == EVICTING {
            config.limit = 20_000;
        }
        self.topology.node(name, Kind::Gateway(config))
    }

    fn shape(&mut self) -> LinkShape {
        let dice = &mut self.rng;
        // Never zero: a sender distinguishes retransmissions from originals by time.
        let delay = Duration::from_micros(dice.one_of(&[1, 5, 20, 100, 1_000]));
        let jitter = delay / dice.from(1, 4) as u32;
        let loss = dice.one_of(&[0.001, 0.01, 0.1]);
        let burst = Burst { begins: dice.one_of(&[0.001, 0.01]), ends: dice.one_of(&[0.1, 0.5]) };
        let byte_loss = dice.one_of(&[1e-6, 1e-5]);
        let bit_errors = dice.one_of(&[1e-7, 1e-6, 1e-5]);
        let reorder = Reorder { share: dice.one_of(&[0.001, 0.05, 0.3]), displacement: dice.from(1, 20) as usize };
        let duplicates = dice.one_of(&[0.001, 0.05]);
        let rate = dice.one_of(&[20_000_000, 200_000_000, 2_000_000_000]);
        let queue = dice.one_of(&[
            QueueLimit::Packets(5),
            QueueLimit::Packets(60),
            QueueLimit::Bytes(30_000),
            QueueLimit::Bytes(200_000),
        ]);
        let mode = dice.one_of(&[RedMode::Packets, RedMode::Bytes]);
        let unit = if mode == RedMode::Packets { 1 } else { 1_000 };
        let red = Red { mode, min: 2 * unit, max: 30 * unit, share: 0.2 };
        let seed = dice.number();
        let mut shape = LinkShape { delay, seed, ..LinkShape::default() };
        let is_there = |fault| self.faults.contains(&fault);
        shape.jitter = if is_there(Fault::Jitter) { jitter } else { Duration::ZERO };
        shape.loss = if is_there(Fault::Loss) { loss } else { 0.0 };
        shape.burst = is_there(Fault::Burst).then_some(burst);
        shape.byte_loss = if is_there(Fault::ByteLoss) { byte_loss } else { 0.0 };
        shape.bit_errors = if is_there(Fault::BitErrors) { bit_errors } else { 0.0 };
        shape.reorder = is_there(Fault::Reorder).then_some(reorder);
        shape.duplicates = if is_there(Fault::Duplicate) { duplicates } else { 0.0 };
        shape.rate_bits_per_second = (is_there(Fault::Rate) || is_there(Fault::Red)).then_some(rate);
        shape.queue = if is_there(Fault::Rate) { queue } else { QueueLimit::Packets(500) };
        shape.red = is_there(Fault::Red).then_some(red);
        shape
    }

    fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let shaped = self.topology.links.len();
        let (from, stretch) = (self.rng.from(1, 3_000), self.rng.from(10, 3_000));
        let link = self.rng.below(shaped as u64) as usize;
        if self.has(Fault::Carrier) {
            changes.push(Change { at: Duration::from_micros(from), link, to: To::Down });
            changes.push(Change { at: Duration::from_micros(from + stretch), link, to: To::Up });
        }
        for _ in 0..if self.has(Fault::MtuChange) { 3 } else { 0 } {
            let link = self.rng.below(shaped as u64) as usize;
            let mtu = self.topology.links[link].mtu;
            let other = self.rng.from(u64::from(self.least_mtu.min(mtu)), u64::from(mtu)) as u16;
            let at = Duration::from_micros(self.rng.from(1, 5_000));
            changes.push(Change { at, link, to: To::Mtu(other) });
        }
        changes
    }

    fn flows(&mut self, left: &[usize], right: &[usize], far_mtu: u16) -> Vec<Plan> {
        if self.stop == SPENT_IDS {
            return vec![many_fragments(left[0], right[0])];
        }
        let takes_v6 = self.least_mtu >= V6_MTU_MIN;
        let count = self.rng.from(1, 6);
        let mut flows: Vec<Plan> = (0..count).map(|_| self.flow(left, right, far_mtu, count)).collect();
        if self.has(Fault::Malformed) {
            for is_v6 in [false, true].into_iter().filter(|is_v6| !is_v6 || takes_v6) {
                let from_left = (self.rng.one_in(4) || self.stop == UNENDING_HEADERS)
                    && !matches!(self.stop, EVICTING | RETIRING);
                let (from, to) = if from_left { (left[0], right[0]) } else { (right[0], left[0]) };
                let plan = self.flow(left, right, far_mtu, count);
                flows.push(Plan { kind: FlowKind::Malformed, from, to, is_v6, count: 1_000, burst: 1, ..plan });
            }
        }
        flows
    }

    fn flow(&mut self, left: &[usize], right: &[usize], far_mtu: u16, among: u64) -> Plan {
        let is_silent = self.topology.nodes.iter().any(|node| node.kind == Kind::Router(Router::Silent));
        let is_lossy = LOSSES.iter().any(|fault| self.has(*fault));
        let (least_mtu, link_count) = (self.least_mtu, self.link_count);
        let dice = &mut self.rng;
        let (one, other) = (dice.one_of(left), dice.one_of(right));
        let is_narrow = self.stop == NARROW_PATH || self.stop == TINY_PATH;
        let (from, to) = if dice.one_in(2) || is_narrow { (one, other) } else { (other, one) };
        let drawn =
            dice.one_of(&[FlowKind::Tcp, FlowKind::Tcp, FlowKind::Tcp, FlowKind::Datagrams, FlowKind::Stream]);
        let drawn = if is_narrow { FlowKind::Tcp } else { drawn };
        let kind = if drawn == FlowKind::Tcp && least_mtu < TCP_MTU_MIN { FlowKind::Stream } else { drawn };
        let talk = talk(dice, is_silent);
        // If full segments are lost, a sender with path MTU probing shortens its segments repeatedly. The number of
        // segments may grow a hundredfold.
        let is_probing = talk.ends.iter().any(|end| end.path.probing != Probing::Off);
        let tcp_share = if is_lossy && is_probing { TCP_SHARE / 25 } else { TCP_SHARE };
        let sizes = match kind {
            FlowKind::Tcp => dice.one_of(&[
                Sizes::Full,
                Sizes::Between(1, 40_000),
                Sizes::Between(1, 40_000),
                Sizes::Between(1, 3_000),
                Sizes::Mixed(200, 20),
            ]),
            FlowKind::Stream => dice.one_of(&[
                Sizes::Full,
                Sizes::Fixed(536),
                Sizes::Fixed(100),
                Sizes::Between(1, 200),
                Sizes::Between(1, 1_460),
                Sizes::Mixed(100, 40),
            ]),
            _ => dice.one_of(&[
                Sizes::Fixed(18),
                Sizes::Between(1, 64),
                Sizes::Between(1, 1_600),
                Sizes::Mixed(200, 60),
                Sizes::Between(1, 9_000),
                // Datagrams of equal size and fragmentation make placement predictable.
                Sizes::Fixed(4_000),
                Sizes::Fixed(9_000),
                Sizes::Full,
            ]),
        };
        let room = u64::from(least_mtu - TCP_HEADERS_LEN.min(least_mtu / 2));
        let mean_len = match kind {
            // The MTU of the receiver's link limits a segment.
            FlowKind::Stream => sizes.mean_len().min(u64::from(far_mtu)),
            _ => sizes.mean_len(),
        };
        let count = match kind {
            // A third of a connection's packets carry no payload.
            FlowKind::Tcp => tcp_share * room * 2 / 3 / mean_len,
            // A datagram of many fragments counts as many packets.
            _ => SHARE / mean_len.div_ceil(room),
        };
        let burst =
            if kind == FlowKind::Tcp { dice.one_of(&[1, 2, 8]) } else { dice.one_of(&[1, 16, 64, 64, 64, 64]) };
        // Long messages come in shorter bursts, so that few bytes are in flight at once.
        let burst = burst.min((BURST_LEN_MAX / mean_len) as u32).max(1);
        Plan {
            kind,
            from,
            to,
            is_v6: least_mtu >= V6_MTU_MIN && dice.one_in(3),
            sizes,
            // Each link of the path costs time, but only one gateway counts a packet. A longer path therefore gets
            // fewer packets.
            count: count * 4 / (link_count * link_count) / among + 1,
            burst,
            // At most one packet of each flow per microsecond, so that few are in flight at once.
            gap: Duration::from_micros(u64::from(burst) * dice.one_of(&[1, 1, 4, 20])),
            start: Duration::from_micros(dice.below(200)),
            disorder: dice.one_of(&[0, 0, 0, 100, 10]),
            has_timestamps: dice.one_in(2),
            acks_every: dice.one_of(&[0, 2, 8]),
            talk,
        }
    }
}

/// Draws the settings of two TCP hosts. Each starts from the settings of Linux or of the standards, and most
/// settings may be drawn anew.
fn talk(dice: &mut Rng, is_silent: bool) -> Talk {
    let ends = [(); 2].map(|()| end(dice, is_silent));
    let reply_len = dice.one_of(&[0, 0, 1, 3_000, 100_000]);
    Talk { ends, reply_len, reply: dice.one_of(&[Reply::AtLast, Reply::AtOnce]), may_end_early: false }
}

fn end(dice: &mut Rng, is_silent: bool) -> Settings {
    let probings: &[Probing] = match is_silent {
        true => &[Probing::AfterBlackHole, Probing::Always],
        // Where all routers send ICMP errors, black-hole probing mistakes some losses for black holes. The host
        // then sends short segments for a long time.
        false => &[Probing::Off, Probing::Off, Probing::Off, Probing::AfterBlackHole, Probing::Always],
    };
    let usual = if dice.one_in(3) { Settings::standard() } else { Settings::linux() };
    Settings {
        algorithm: dice.one_of(&[Algorithm::Cubic, Algorithm::Reno]),
        slow_start_exit: dice.one_of(&[
            usual.slow_start_exit,
            SlowStartExit::Loss,
            SlowStartExit::HyStart,
            SlowStartExit::HyStartPlusPlus,
        ]),
        detection: dice.one_of(&[usual.detection, Detection::DuplicateAcks, Detection::Rack]),
        reduction: dice.one_of(&[usual.reduction, Reduction::AtOnce, Reduction::Proportional]),
        initial_window: dice.one_of(&[usual.initial_window, InitialWindow::Rfc5681, InitialWindow::Rfc6928]),
        sack: !dice.one_in(4),
        timestamps: !dice.one_in(3),
        window_scale: !dice.one_in(4),
        ecn: dice.one_in(2),
        nagle: dice.one_of(&[usual.nagle, Nagle::Off, Nagle::AnyOutstanding]),
        memory: dice.one_of(&[
            Memory::Fixed(30_000),
            Memory::Fixed(65_535),
            Memory::Fixed(200_000),
            Memory::Fixed(1 << 20),
            Memory::Growing { first: 65_535, limit: 1 << 20 },
        ]),
        path: PathChoice {
            belief: dice.one_of(&[Belief::AtOnce, Belief::AfterTimeout]),
            probing: dice.one_of(probings),
            ..usual.path
        },
        // No connection gives up, so all data has to arrive.
        retry_count_max: RETRIES_MAX,
        syn_retry_count_max: RETRIES_MAX,
        ..usual
    }
}

/// A flow with more fragmented datagrams than there are IPv4 identifications.
fn many_fragments(from: usize, to: usize) -> Plan {
    Plan {
        kind: FlowKind::Datagrams,
        from,
        to,
        is_v6: false,
        sizes: Sizes::Fixed(60),
        count: 67_000,
        burst: 64,
        gap: Duration::from_micros(1),
        start: Duration::ZERO,
        disorder: 0,
        has_timestamps: false,
        acks_every: 0,
        talk: Talk::default(),
    }
}

/// This number of consecutive seeds covers every fault and every role.
pub const TOUR: u64 = 64;
/// First position in a tour that forces a kind of router. The earlier positions belong to one fault each. The
/// positions after the kinds of routers belong to rare conditions.
const FIRST_ROUTER: u64 = 14;
const SPENT_IDS: u64 = 20;
const UNENDING_HEADERS: u64 = 21;
const EVICTING: u64 = 22;
const RETIRING: u64 = 23;
const MESH: u64 = 24;
/// A border whose path is narrower behind a router, and one whose path is narrower than any ICMP error may state.
const NARROW_PATH: u64 = 25;
const TINY_PATH: u64 = 26;
const TINY_MTU: u16 = 540;
/// Number of routers in a mesh.
const MESH_LEN: usize = 90;
/// Maximum number of simulations during minimisation.
const TRIES: usize = 80;
/// Approximate number of links between two routers of a mesh.
const MESH_DIRECTION_LEN: u64 = 6;
/// Approximate number of messages or segments of all flows of a seed together, if the path has two links.
const SHARE: u64 = 24_000;
/// Approximate limit of bytes per burst.
const BURST_LEN_MAX: u64 = 1 << 18;
/// Approximate number of packets of all connections of a seed together.
const TCP_SHARE: u64 = 60_000;
/// Faults that cause TCP retransmissions.
const LOSSES: [Fault; 9] = [
    Fault::Loss,
    Fault::Burst,
    Fault::ByteLoss,
    Fault::BitErrors,
    Fault::Rate,
    Fault::Red,
    Fault::Carrier,
    Fault::MtuChange,
    Fault::SmallPool,
];
/// Minimum MTU for connections, in bytes. With a smaller MTU, headers and options leave less than the minimum MSS
/// of Linux.
const TCP_MTU_MIN: u16 = 296;
/// Length of IPv6 and TCP headers in bytes, with timestamps.
const TCP_HEADERS_LEN: u16 = 72;
/// Maximum number of retransmissions of a segment. The limit exceeds any loss burst.
const RETRIES_MAX: u32 = 1_000;
/// Memory limit of each stage of a gateway, in bytes.
const LIMIT: usize = 4 << 20;
/// Limit of each buffer pool of a gateway, in bytes.
const POOL: usize = 64 << 20;
/// Minimum MTU of an IPv6 link, in bytes (RFC 8200 section 5).
const V6_MTU_MIN: u16 = 1_280;
