//! Nothing -> proofs about the system's clock.

use linux::clock::Clock;
use packet::Time;
use std::time::{Duration, Instant};

#[test]
fn the_clock_starts_at_the_origin_and_never_goes_back() {
    let clock = Clock::start();
    let mut last = clock.now();
    assert!(last.since(Time::ZERO) < Duration::from_millis(500), "{last}");
    for _ in 0..100_000 {
        let now = clock.now();
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
}

#[test]
fn the_clock_counts_nanoseconds() {
    let (clock, outside) = (Clock::start(), Instant::now());
    std::thread::sleep(Duration::from_millis(20));
    let inner = clock.now().since(Time::ZERO);
    assert!(
        inner >= Duration::from_millis(20) && inner <= outside.elapsed() + Duration::from_millis(1),
        "{inner:?}"
    );
}
