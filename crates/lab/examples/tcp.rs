//! A loss and sizes in, the kernel's TCP beside the simulator's out: `tcp LOSS ROUNDS ALGORITHM LEN…`.

use sim::tcp::settings::Algorithm;
use std::time::Duration;
use wideload_lab::experiments::{TcpSettings, tcp};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [loss, rounds, algorithm, lens @ ..] = words.as_slice() else {
        eprintln!("tcp LOSS ROUNDS reno|cubic LEN…");
        return Ok(());
    };
    let settings = TcpSettings {
        lens: lens.iter().map(|len| len.parse().expect("a length in bytes")).collect(),
        trips: [10, 100].map(Duration::from_millis).to_vec(),
        algorithms: vec![if algorithm == "reno" { Algorithm::Reno } else { Algorithm::Cubic }],
        mtus: vec![1_500, 9_000],
        loss: loss.parse().expect("a share"),
        rate_bits_per_second: 100_000_000,
        rounds: rounds.parse().expect("a count"),
        seeds: if loss == "0" { 1 } else { 301 },
    };
    let comparison = tcp(&settings, |row| eprintln!("{row}"))?;
    println!("{comparison}");
    Ok(())
}
