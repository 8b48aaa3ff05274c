//! Small messages through a border and a wide interface: none waits for a hold time.

use wideload_lab::experiments::{PingHolding, PingPath, PingPongSettings, PingTransport, ping_pong};

#[test]
fn no_small_message_waits_for_the_hold_time() {
    let settings = PingPongSettings { rounds: 1, messages: 100 };
    let outcome = ping_pong(&settings, |_| {}).unwrap();
    println!("{outcome}");
    assert!(outcome.lost == 0 && outcome.broken.is_empty(), "{outcome}");
    for path in [PingPath::Border, PingPath::WideInterface] {
        for transport in [PingTransport::Tcp, PingTransport::Udp] {
            let rows: Vec<_> =
                outcome.rows.iter().filter(|row| (row.path, row.transport) == (path, transport)).collect();
            assert_eq!(rows.len(), 4, "{outcome}");
            for row in rows {
                assert!(row.median.median <= row.p99.median, "{outcome}");
                // The hold time is ten milliseconds.
                let limit = if row.holding == PingHolding::Long { 5_000.0 } else { f64::INFINITY };
                assert!(row.median.median < limit, "{outcome}");
            }
        }
    }
}
