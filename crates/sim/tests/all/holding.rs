//! Receive window, path delay and hold time -> how much longer a transfer through a border takes.
//!
//! The hosts' TCP is the simulator's: slow start, delayed acknowledgements, loss recovery. So this test notices a
//! border that stalls senders whose pauses look different from those of a simple model.

use crate::scenes::{HOSTS, pair, plan, run};
use core::time::Duration;
use engine::Hold;
use wideload_sim::flow::{Kind as FlowKind, Sizes};
use wideload_sim::link::LinkShape;
use wideload_sim::tcp::settings::Memory;
use wideload_sim::{GatewayRole, Kind, Scene};

#[test]
fn a_held_transfer_takes_at_most_a_quarter_longer() {
    for window in [8_192, 16_384, 65_536, 262_144] {
        for delay in [200, 1_000, 5_000].map(Duration::from_micros) {
            let plain = seconds(window, delay, None);
            for hold in [2, 10, 25].map(Duration::from_millis) {
                let held = seconds(window, delay, Some(hold));
                assert!(held <= 1.25 * plain, "{window} bytes, {delay:?}, {hold:?}: {held} s, without {plain} s");
            }
        }
    }
}

/// Returns the duration of a transfer of 4 MB to the wide host, in seconds. `hold`: the hold time of the border;
/// `None` if it does not coalesce.
fn seconds(window: u32, delay: Duration, hold: Option<Duration>) -> f64 {
    let shape = LinkShape { delay, rate_bits_per_second: Some(1_000_000_000), ..LinkShape::default() };
    let mut topology = pair(GatewayRole::Border, shape);
    let Kind::Gateway(gateway) = &mut topology.nodes[1].kind else { unreachable!("it is between the hosts") };
    gateway.hold = hold.map(Hold::Fixed);
    if hold.is_none() {
        gateway.coalesce = None;
    }
    let mut flow = plan(FlowKind::Tcp, HOSTS[1], HOSTS[0], Sizes::Fixed(4_000_000));
    (flow.count, flow.burst) = (1, 1);
    for end in &mut flow.talk.ends {
        end.memory = Memory::Fixed(window);
    }
    let scene = Scene { topology, flows: vec![flow], changes: Vec::new(), bug: None, seed: 1, is_thorough: false };
    let outcome = run(&scene);
    assert_eq!(outcome.broken, None);
    assert_eq!(outcome.flows[0].arrived_len, outcome.flows[0].sent);
    outcome.flows[0].stretch.as_secs_f64()
}
