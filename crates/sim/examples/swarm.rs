//! Seeds in, packets per second and broken laws out: one thread, to see what the simulator itself takes.

use std::time::Instant;
use wideload_sim::Hits;
use wideload_sim::swarm::Case;

#[expect(clippy::disallowed_methods, reason = "it measures how long a run takes, from outside")]
fn main() {
    if let Ok(case) = std::env::var("CASE") {
        let case: Case = case.parse().unwrap();
        println!("{:#?}", case.scene());
        println!("{:?}", case.run());
        return;
    }
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (first, count) = (arguments.next().unwrap_or(0), arguments.next().unwrap_or(64));
    let (mut hits, mut packets, begun) = (Hits::new(), 0, Instant::now());
    for seed in first..first + count {
        let seed_begun = Instant::now();
        match Case::of(seed).run() {
            Ok(outcome) => {
                packets += outcome.packets;
                hits.add(&outcome.hits);
                if count <= 64 {
                    let rate = outcome.packets as f64 / seed_begun.elapsed().as_secs_f64() / 1e6;
                    let ms = seed_begun.elapsed().as_secs_f64() * 1e3;
                    println!(
                        "{seed}: {} packets, {ms:.1} ms, {rate:.2} M/s, {} events, trace {:016x}",
                        outcome.packets, outcome.event_count, outcome.trace
                    );
                }
            }
            Err(what) => println!("{}", Case::of(seed).shrink(what)),
        }
    }
    let rate = packets as f64 / begun.elapsed().as_secs_f64() / 1e6;
    println!("{packets} packets, {rate:.2} million a second");
    hits.rows().filter(|row| row.2 == 0).for_each(|row| println!("never met: {} {}", row.0, row.1));
}
