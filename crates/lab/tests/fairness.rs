//! Saturating connections through a border: the fair order shares fairly, and SYNs do not wait behind other flows.

use std::time::Duration;
use wideload_lab::experiments::{FairnessSettings, fairness};

#[test]
fn a_fair_order_shares_fairly_and_lets_syns_pass() {
    let settings = FairnessSettings { rounds: 1, stretch: Duration::from_secs(2), ..FairnessSettings::default() };
    let outcome = fairness(&settings, |_| ()).unwrap();
    println!("{outcome}");
    assert!(outcome.broken.is_empty(), "{outcome}");
    let [fifo, fair] = &outcome.rows[..] else { panic!("two orders") };
    // On a busy machine, the slowest SYNs of two seconds wait for a processor. So only the medians are compared.
    assert!(fair.syn_median_ms.median < fifo.syn_median_ms.median / 2.0, "{outcome}");
    assert!(fair.jain.median > fifo.jain.median.min(0.9), "{outcome}");
    let [stack, queue, turns] = &outcome.dma[..] else { panic!("three orders") };
    assert!(stack.late_share > 0.1 && queue.late_share == 0.0 && turns.late_share == 0.0, "{outcome}");
    assert!(turns.syn_p99_ms.unwrap() < queue.syn_median_ms.unwrap() / 10.0, "{outcome}");
}
