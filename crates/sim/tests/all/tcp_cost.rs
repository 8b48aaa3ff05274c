//! A long transfer -> the cost of each segment: no heap allocation, and no growth of the steps.

use std::time::Duration;
use wideload_sim::tcp::Settings;
use wideload_sim::tcp::path::{PathDirection, Transfer, run};
use wideload_sim::tcp::settings::Memory;

#[test]
fn ten_times_the_segments_take_no_more_memory_from_the_heap() {
    let count = |len| allocation_counter::measure(|| send(len, 0.001)).count_total;
    let (few, many) = (count(20_000_000), count(200_000_000));
    // The segment store grows by doubling, up to the longest flight.
    assert!(many < few + 40, "{few} times for 20 MB, {many} times for 200 MB");
}

fn send(len: u64, loss: f64) {
    let memory = Memory::Fixed(4 << 20);
    let end = Settings { memory, ..Settings::linux() };
    let direction =
        PathDirection { loss, rate_bits_per_second: Some(1_000_000_000), mtu: 1_500, ..PathDirection::default() };
    let transfer =
        Transfer { sender: end.clone(), receiver: end, there: direction, back: direction, lens: [len, 0], seed: 1 };
    let outcome = run(&transfer, Duration::from_secs(3_600), |_, _| {});
    assert_eq!(outcome.arrived[1], len);
}
