//! Number of seeds -> the first broken law. Runs the named attacks first, then seeds of the swarm, on one thread.
//!
//! The runs target no particular bug. Each attack and each seed is printed before it starts, so that the last line
//! of an aborted program names the unfinished one. The exit status is 1 if a law was violated.

use std::process::ExitCode;
use wideload_sim::attacks::{ATTACKS, End, Extent};
use wideload_sim::swarm::Case;

fn main() -> ExitCode {
    let seeds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    // A failed assertion is a violation. Its message is in the result, so the panic itself prints nothing.
    std::panic::set_hook(Box::new(|_| {}));
    match attacked().or_else(|| swarmed(seeds)) {
        Some(found) => {
            println!("broken: {found}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// Runs all attacks with few repetitions. Returns the description of the first violation.
fn attacked() -> Option<String> {
    ATTACKS.iter().filter(|attack| attack.is_judged()).find_map(|attack| {
        println!("attack {}, seed {SEED}", attack.id);
        let report = attack.run(SEED, Extent::Short);
        let End::Broken(what) = report.end else { return None };
        Some(what)
    })
}

/// Runs the swarm seed by seed. Returns the description of the first violation.
fn swarmed(seeds: u64) -> Option<String> {
    (0..seeds).map(Case::of).find_map(|case| {
        println!("swarm, seed {}", case.seed);
        case.run().err()
    })
}

const SEED: u64 = 1;
