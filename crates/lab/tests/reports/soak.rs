//! Figures of gateways under load -> the report of `lab soak`.

use crate::{compare, conditions};
use wideload_lab::experiments::{Arrived, Changes, Kills, Mixed, Soak, Usage};

#[test]
fn the_soak_test_reports_changes_kills_mixed_traffic_and_faults() {
    let stream = Arrived { len: 4_000, sent: 61_234, came: 61_234, overtaken: 0, wrong: 0, longest_gap_ms: 12.5 };
    let beside = Arrived { len: 1_000, came: 61_194, longest_gap_ms: 310.0, ..stream };
    let changes = |what: &str| Changes { what: what.to_owned(), count: 100, seconds: 31.0, stream };
    let mixed = Mixed {
        transfers: 240,
        intact: 240,
        bytes: 1_234_000_000,
        messages_sent: 50_000,
        messages: 49_876,
        wrong: 0,
    };
    let watched = Usage {
        seconds: 600.0,
        fetched: 598,
        unexplained: 0,
        missing: Vec::new(),
        mixed,
        fates: vec![
            ("to-wide".to_owned(), [1_000_000, 400_000, 0, 12]),
            ("to-narrow".to_owned(), [500_000, 900_000, 3, 0]),
        ],
        most_held: 77,
        passed: 1_234,
        joined: 600_000,
        fragments: 400_000,
        sorted: 4_321,
        wire: [2_000_000, 2_012],
    };
    let good = Soak {
        conditions: conditions(),
        changes: vec![changes("reload"), changes("restart")],
        kills: vec![Kills { count: 3, streams: 50, intact: 50, beside }],
        watched: Some(watched),
        faults: Vec::new(),
    };
    let faults = vec![
        "49 of 50 streams arrived complete".to_owned(),
        "the counter wideload_frames_total is missing".to_owned(),
    ];
    let bad = Soak { changes: Vec::new(), kills: Vec::new(), watched: None, faults, ..good.clone() };
    compare("soak.txt", &[good, bad]);
}
