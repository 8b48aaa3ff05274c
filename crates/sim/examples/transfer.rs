//! Loss rate and number of seeds -> median durations of simulated transfers, for several MTUs and round trips.
//! Usage: `transfer LOSS SEEDS`.

use packet::Time;
use std::time::Duration;
use wideload_sim::tcp::Settings;
use wideload_sim::tcp::path::{PathDirection, Transfer, run};
use wideload_sim::tcp::settings::{Algorithm, Memory, SlowStartExit};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let loss: f64 = words.first().map_or(0.0, |word| word.parse().expect("a share"));
    let seeds: u64 = words.get(1).map_or(1, |word| word.parse().expect("a count"));
    let mut packets = 0;
    for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
        for mtu in [1_500, 9_000] {
            for trip in [10, 100] {
                for len in [30_000, 300_000, 1_000_000, 50_000_000] {
                    let mut times = Vec::new();
                    for seed in 0..seeds {
                        let outcome =
                            run(&transfer(algorithm, mtu, trip, len, loss, seed), TIMEOUT, |_: Time, _| {});
                        packets += outcome.packets;
                        times.extend(outcome.complete.map(|time| time.as_secs_f64() * 1e3));
                    }
                    times.sort_by(f64::total_cmp);
                    println!("{algorithm:?} MTU {mtu} {trip} ms {len} B: {:.1} ms", times[times.len() / 2]);
                }
            }
        }
    }
    println!("{packets} packets");
}

fn transfer(algorithm: Algorithm, mtu: u32, trip: u64, len: u64, loss: f64, seed: u64) -> Transfer {
    let memory = Memory::Growing { first: 65_535, limit: 16 << 20 };
    let slow_start_exit = match algorithm {
        Algorithm::Reno => SlowStartExit::Loss,
        Algorithm::Cubic => SlowStartExit::HyStart,
    };
    let end = Settings { algorithm, slow_start_exit, mtu, memory, ..Settings::linux() };
    let direction = PathDirection {
        delay: Duration::from_millis(trip) / 2,
        queue_len: 64 << 20,
        loss,
        mtu,
        ..PathDirection::default()
    };
    Transfer { sender: end.clone(), receiver: end, there: direction, back: direction, lens: [len, 0], seed }
}

const TIMEOUT: Duration = Duration::from_secs(600);
