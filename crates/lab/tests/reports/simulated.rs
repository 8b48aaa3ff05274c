//! Figures of simulated networks -> the reports of `lab network` and `lab swarm`.

use crate::compare;
use wideload_lab::experiments::{FlowRow, Hit, LinkRow, Network, Swarm};

#[test]
fn the_network_reports_flows_links_counters_and_a_violated_law() {
    let flow = |from: &str, kind, arrived, end| FlowRow {
        from: from.to_owned(),
        to: "server".to_owned(),
        kind,
        sent: 10_000_000,
        arrived,
        seconds: 0.125,
        megabits_per_second: 640.0,
        end,
    };
    let link = |from: &str, to: &str, lost, dropped| LinkRow {
        from: from.to_owned(),
        to: to.to_owned(),
        mtu: 9_000,
        packets: 1_234,
        mean_len: 8_714.4,
        lost,
        dropped,
    };
    let good = Network {
        seed: 7,
        trace: "0123456789abcdef".to_owned(),
        flows: vec![flow("client", "TCP", 10_000_000, "done"), flow("camera", "UDP", 9_999_000, "lost some")],
        links: vec![link("client", "border", 0, 0), link("a-border-with-a-long-name", "server", 12, 3)],
        counters: vec![("merged", 4_321), ("too_big", 2)],
        told_count: 2,
        broken: None,
        simulated_seconds: 1.25,
        gateway_packets: 1_000_000,
        seconds: 0.5,
    };
    let bad = Network {
        flows: Vec::new(),
        links: Vec::new(),
        counters: Vec::new(),
        broken: Some("law 2 (conservation) is broken: 1 packet is missing".to_owned()),
        gateway_packets: 0,
        ..good.clone()
    };
    compare("network.txt", &[good, bad]);
}

#[test]
fn the_swarm_reports_uncovered_cases_and_violated_laws() {
    let hit = |kind, name, count| Hit { kind, name, count };
    let case = Swarm {
        seed: 5,
        seed_count: 1,
        packets: 12_000,
        tcp_packets: 9_000,
        connections: 8,
        tcp_bytes: 7_654_321,
        messages: [120, 118],
        stream_bytes: 65_536,
        events: 98_765,
        trace: 0x0123_4567_89AB_CDEF,
        hits: vec![
            hit("role", "border", 2),
            hit("role", "router", 0),
            hit("fault", "loss", 31),
            hit("law", "conservation", 12_000),
            hit("reason", "too_big", 4),
            hit("frames", "batch", 0),
        ],
        failures: Vec::new(),
        seconds: 0.25,
        threads: 1,
    };
    let tour = Swarm {
        seed_count: 1_000,
        tcp_packets: 5_000,
        failures: vec!["5,bug=drops: law 2 (conservation) is broken: 1 packet is missing".to_owned()],
        threads: 2,
        ..case.clone()
    };
    compare("swarm.txt", &[case, tour]);
}
