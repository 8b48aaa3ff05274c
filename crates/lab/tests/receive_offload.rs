//! Goodput by number of connections: the simulated NIC has the paper's figures, and coalescing saves a border's worker work.

use std::time::Duration;
use wideload_lab::experiments::{ReceiveOffloadSettings, receive_offload};

#[test]
fn the_papers_figures_are_reproduced_and_a_border_sends_fewer_packets() {
    let settings = ReceiveOffloadSettings {
        connections: vec![1, 64],
        live_connections: vec![1, 64],
        rounds: 1,
        stretch: Duration::from_secs(1),
    };
    let outcome = receive_offload(&settings, |_| ()).unwrap();
    println!("{outcome}");
    assert!(outcome.is_good(), "{outcome}");
    let [one, many] = &outcome.nic[..] else { panic!("two numbers of connections") };
    assert!(many.with_offload > 10.0 * one.with_offload, "{outcome}");
    assert!(many.without_offload < 1.05 * one.without_offload, "{outcome}");
    for row in &outcome.border {
        assert!(row.segments_per_packet.median > 1.5, "{outcome}");
        // Two packets for each segment without coalescing, and fewer with it.
        assert!((1.2..=2.0).contains(&row.packet_ratio.median), "{outcome}");
        // The CPU time of one second on a busy machine.
        assert!(row.worker_ratio.median > 0.8, "{outcome}");
    }
}
