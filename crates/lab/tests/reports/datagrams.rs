//! Figures of UDP messages -> the reports of `lab wide-interface` and `lab dips`.

use crate::{compare, conditions, spread};
use wideload_lab::experiments::{
    Delivery, Dip, Dips, Disorder, Latency, Pings, Received, Stack, Sweeps, System, WideInterface, WideInterfaceRow,
};

#[test]
fn the_wide_interface_reports_costs_deliveries_and_round_trips() {
    let stock = System { receiver: Stack::Stock, far: Stack::Stock };
    let wide = System { receiver: Stack::Wide, far: Stack::Stock };
    let versus = |mtu, len| WideInterfaceRow {
        worker_micros: 12.5,
        worker_wakes: 0.75,
        versus_stock: Some(1.31),
        host_versus_stock: Some(0.64),
        ..row(mtu, len, wide)
    };
    let unknown = WideInterfaceRow {
        delivered: 0.875,
        kernel_micros: None,
        micros: None,
        seconds_per_gigabyte: None,
        ..row(9_000, 65_507, wide)
    };
    let delivery = |order, arrived| Delivery {
        mtu: 1_500,
        receiver: Stack::Wide,
        version: "IPv4",
        order,
        len: 20_000,
        sent: 200,
        taken: Received { arrived, wrong: 0, seconds: 0.25, wakes: 190, ended: None },
    };
    let pings = Pings { median: 41.5, p99: 120.25, count: 3_000 };
    let good = WideInterface {
        conditions: conditions(),
        rate: 4e8,
        messages_per_second: 10_000.0,
        rows: vec![row(1_500, 64, stock), versus(1_500, 64), versus(4_000, 9_000), versus(9_000, 9_000), unknown],
        deliveries: vec![delivery(Disorder::Reverse, 200), delivery(Disorder::Random, 199)],
        latencies: vec![Latency { mtu: 1_500, system: wide, pings }],
        intact: true,
        broken: Vec::new(),
    };
    let bad = WideInterface {
        rows: Vec::new(),
        deliveries: Vec::new(),
        latencies: Vec::new(),
        intact: false,
        broken: vec!["to-wide: received 10, forwarded 9, held 0, ended 0".to_owned()],
        ..good.clone()
    };
    compare("wide_interface.txt", &[good, bad]);
}

#[test]
fn dips_reports_goodput_by_length_and_lost_messages() {
    let sweeps = |stack| Sweeps {
        stack,
        lens: vec![64, 1_472, 9_000],
        goodput: vec![vec![51.5, 410.0, 1_250.0], vec![49.0, 398.5, 1_310.0]],
        lost: 0,
        suspects: Vec::new(),
        dips: Vec::new(),
    };
    let good = Dips {
        conditions: conditions(),
        mtu: 1_500,
        systems: vec![sweeps(Stack::Stock), sweeps(Stack::Wide)],
        intact: true,
        broken: Vec::new(),
    };
    let (real, passing) = (Dip { len: 1_472, share: 0.62 }, Dip { len: 9_000, share: 0.79 });
    let low = Sweeps { lost: 3, suspects: vec![real, passing], dips: vec![real], ..sweeps(Stack::Wide) };
    let bad = Dips {
        systems: vec![sweeps(Stack::Stock), low],
        intact: false,
        broken: vec!["to-wide: received 10, forwarded 9, held 0, ended 0".to_owned()],
        ..good.clone()
    };
    compare("dips.txt", &[good, bad]);
}

fn row(mtu: u32, len: usize, system: System) -> WideInterfaceRow {
    WideInterfaceRow {
        mtu,
        len,
        system,
        offered: 400.0,
        goodput: spread(398.5),
        delivered: 1.0,
        worker_micros: 0.0,
        thread_micros: 4.25,
        kernel_micros: Some(9.75),
        micros: Some(14.0),
        seconds_per_gigabyte: Some(1.5),
        worker_wakes: 0.0,
        thread_wakes: 0.95,
        versus_stock: None,
        host_versus_stock: None,
    }
}
