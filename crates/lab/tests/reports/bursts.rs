//! Figures of segments and small datagrams through gateways -> the reports of `lab hold`, `lab ping-pong`,
//! `lab workers`, `lab fairness` and `lab receive-offload`.

use crate::{compare, conditions, spread};
use wideload_lab::experiments::{
    DmaRow, Fairness, FairnessRow, Hold, HoldDelay, HoldLen, HoldLoad, OffloadBorderRow, OffloadNicRow,
    OffloadPaperRow, PingHolding, PingPath, PingPong, PingPongRow, PingTransport, ReceiveOffload, Spread, Workers,
    WorkersRow,
};

#[test]
fn hold_reports_lengths_and_delays() {
    let len = |rate, lens: [f64; 3]| HoldLen { rate, mean_len: lens.map(spread).to_vec() };
    let delay = |what, micros: [[f64; 2]; 3]| HoldDelay { what, micros: micros.to_vec() };
    let last = |rate, pushes, micros| delay(HoldLoad::LastSegment { rate, pushes }, micros);
    let good = Hold {
        conditions: conditions(),
        middles: vec!["bridge", "adaptive", "burst"],
        lens: vec![len(2e7, [1_500.0, 1_500.0, 4_300.0]), len(5e8, [1_500.0, 4_200.0, 8_700.0])],
        delays: vec![
            delay(HoldLoad::PingPong, [[41.0, 88.0], [62.0, 120.0], [63.0, 130.0]]),
            last(2e7, true, [[35.0, 80.0], [55.0, 110.0], [58.0, 115.0]]),
            last(5e8, false, [[36.0, 81.0], [156.0, 310.0], [1_060.0, 1_250.0]]),
        ],
        intact: true,
    };
    let bad = Hold { lens: Vec::new(), delays: Vec::new(), intact: false, ..good.clone() };
    compare("hold.txt", &[good, bad]);
}

#[test]
fn ping_pong_reports_round_trips_and_whether_holding_added_to_them() {
    let row = |path, transport, holding, median, versus_off| PingPongRow {
        path,
        transport,
        holding,
        median: spread(median),
        p99: spread(2.0 * median),
        versus_off,
    };
    let good = PingPong {
        conditions: conditions(),
        rows: vec![
            row(PingPath::Border, PingTransport::Tcp, PingHolding::Kernel, 30.0, 0.6),
            row(PingPath::Border, PingTransport::Tcp, PingHolding::Off, 50.0, 1.0),
            row(PingPath::Border, PingTransport::Tcp, PingHolding::Adaptive, 51.0, 1.02),
            row(PingPath::WideInterface, PingTransport::Udp, PingHolding::Off, 40.0, 1.0),
            row(PingPath::WideInterface, PingTransport::Udp, PingHolding::Long, 41.5, 1.04),
        ],
        lost: 0,
        broken: Vec::new(),
    };
    assert!(good.is_good());
    let mut slow = good.clone();
    slow.rows[4] = row(PingPath::WideInterface, PingTransport::Udp, PingHolding::Long, 60.0, 1.5);
    assert!(!slow.is_good());
    let broken = vec!["to-wide: received 10, forwarded 9, held 0, ended 0".to_owned()];
    let bad = PingPong { lost: 3, broken, ..good.clone() };
    assert!(!bad.is_good() && !PingPong { lost: 1, ..good.clone() }.is_good());
    compare("ping_pong.txt", &[good, slow, bad]);
}

#[test]
fn workers_reports_packets_for_each_cpu_second() {
    let row = |workers, per_processor_second, per_second, busiest_share| WorkersRow {
        workers,
        per_processor_second: spread(per_processor_second),
        per_second: spread(per_second),
        busiest_share,
    };
    let good = Workers {
        conditions: conditions(),
        rows: vec![row(1, 412_000.0, 398_000.0, 1.0), row(2, 395_000.0, 611_000.0, 0.53)],
        versus_one: 0.96,
        intact: true,
        broken: Vec::new(),
    };
    let broken = vec!["to-wide: received 10, forwarded 9, held 0, ended 0".to_owned()];
    let bad = Workers { intact: false, broken, ..good.clone() };
    compare("workers.txt", &[good, bad]);
}

#[test]
fn fairness_reports_both_orders_and_the_simulated_nic() {
    let row = |queueing, median: f64, jain| FairnessRow {
        queueing,
        syn_median_ms: spread(median),
        syn_p99_ms: spread(median * 2.0),
        jain: Spread { median: jain, least: jain - 0.01, most: jain + 0.001 },
        bits_per_second: spread(1.5e9),
        missed: spread(10.0),
    };
    let nic = |order, syn_p99_ms, late_share, jain| DmaRow {
        order,
        syn_median_ms: Some(0.02),
        syn_p99_ms,
        late_share,
        jain,
    };
    let good = Fairness {
        conditions: conditions(),
        flows: 64,
        rows: vec![row("fifo", 29.5, 0.71), row("fair", 1.08, 0.998)],
        dma: vec![nic("LIFO", None, 0.16, 0.094), nic("round robin", Some(0.81), 0.0, 1.0)],
        broken: Vec::new(),
    };
    let unfair = Fairness { rows: vec![row("fifo", 29.5, 0.71), row("fair", 1.08, 0.94)], ..good.clone() };
    let slow = Fairness { rows: vec![row("fifo", 1.0, 0.71), row("fair", 1.08, 0.99)], ..good.clone() };
    let broken = Fairness { broken: vec!["a law".to_owned()], ..good.clone() };
    assert!(good.is_good() && !unfair.is_good() && !slow.is_good() && !broken.is_good());
    let svg = good.chart().svg();
    assert!(["fifo", "fair", "LIFO", "round robin", "median"].iter().all(|name| svg.contains(name)), "{svg}");
    compare("fairness.txt", &[good, broken]);
}

#[test]
fn receive_offload_reports_the_simulated_nic_the_paper_and_the_border() {
    let nic = |connections, with_offload| OffloadNicRow {
        connections,
        without_offload: 0.913e9,
        with_offload,
        segments_per_delivery: 45.0,
        threads_used: 13,
    };
    let paper = |figure, paper, here, least| OffloadPaperRow { figure, paper, here, least, most: f64::INFINITY };
    let border = OffloadBorderRow {
        connections: 64,
        without_coalescing: spread(1.5e9),
        with_coalescing: spread(2.1e9),
        goodput_ratio: spread(1.4),
        worker_ratio: spread(1.6),
        packet_ratio: spread(1.85),
        segments_per_packet: spread(5.9),
    };
    let good = ReceiveOffload {
        conditions: conditions(),
        nic: vec![nic(1, 0.365e9), nic(64, 4.75e9)],
        paper: vec![paper("ratio of both", Some(5.2), 5.21, 5.2), paper("Jain's index", None, 0.99, 0.95)],
        border: vec![border],
        broken: Vec::new(),
    };
    let low = ReceiveOffload { paper: vec![paper("ratio of both", Some(5.2), 4.9, 5.2)], ..good.clone() };
    let broken = ReceiveOffload { border: Vec::new(), broken: vec!["a law".to_owned()], ..good.clone() };
    assert!(good.is_good() && !low.is_good() && !broken.is_good());
    let svg = good.chart().svg();
    assert!(["simulated NIC", "border with one worker", "with coalescing"].iter().all(|name| svg.contains(name)));
    compare("receive_offload.txt", &[good, low, broken]);
}
