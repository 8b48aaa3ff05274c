//! Transfer times of the kernel's TCP and of the simulator's -> the report of `lab tcp`.

use crate::{compare, conditions, spread};
use wideload_lab::experiments::{TcpComparison, TcpRow};

#[test]
fn the_comparison_of_tcp_reports_large_differences_and_late_measurements() {
    let without_loss = TcpComparison {
        conditions: conditions(),
        loss: 0.0,
        rate_bits_per_second: 100_000_000,
        rows: vec![
            row(Some(104.0), 0, true),
            row(Some(140.0), 2, true),
            TcpRow { len: 50_000_000, trip_ms: 100.0, algorithm: "reno", mtu: 9_000, ..row(Some(80.0), 7, false) },
            row(None, 0, true),
        ],
    };
    let with_loss = TcpComparison {
        loss: 0.001,
        rows: vec![TcpRow { kernel_ms: None, ..row(Some(104.0), 0, true) }, row(Some(120.0), 0, true)],
        ..without_loss.clone()
    };
    compare("tcp.txt", &[without_loss, with_loss]);
}

fn row(simulator_ms: Option<f64>, late_count: usize, is_valid: bool) -> TcpRow {
    TcpRow {
        len: 300_000,
        trip_ms: 10.0,
        algorithm: "cubic",
        mtu: 1_500,
        kernel_ms: Some(spread(100.0)),
        simulator_ms: simulator_ms.map(spread),
        in_time_count: 5,
        late_count,
        is_valid,
    }
}
