//! A border with a path on either side that becomes narrower during a transfer: no transfer stalls for long.

use std::time::Duration;
use wideload_lab::experiments::{PathChangeSettings, PathMiddle, path_change};

#[test]
fn no_transfer_stalls_when_the_path_behind_a_border_becomes_narrower() {
    check(PathMiddle::Border { offloads: false });
}

#[test]
fn no_offloaded_transfer_stalls_either() {
    check(PathMiddle::Border { offloads: true });
}

fn check(middle: PathMiddle) {
    let settings = PathChangeSettings {
        mtus: vec![1_400],
        wide_mtus: vec![4_000],
        middles: vec![middle],
        after: Duration::from_millis(3_500),
    };
    let outcome = path_change(&settings, |_| ()).unwrap();
    println!("{outcome}");
    assert!(outcome.is_good(), "{outcome}");
    for row in &outcome.rows {
        // With ICMP errors, the first one decides; without, only losses can.
        let [by_icmp, by_loss] = [row.lowered_icmp, row.lowered_loss].map(|count| count > 0);
        assert_eq!((by_icmp, by_loss), (row.icmp, !row.icmp), "{row:?}");
    }
}
