//! Figures of floods and attacks -> the reports of `lab floods` and `lab attacks`.

use crate::{compare, conditions};
use wideload_lab::experiments::{AttackRow, Attacks, Flood, FloodRow, Floods, ReassembledBy};

#[test]
fn floods_reports_shares_and_shares_below_the_minimum() {
    let row = |flood, version, system, whole| FloodRow {
        flood,
        version,
        system,
        rate: 812_345.0,
        sent: 20_000,
        whole,
        set_aside: 12,
        held_max: Some(4_194_304),
        wanted: Some(0.999),
    };
    let kernel =
        FloodRow { held_max: None, wanted: None, ..row(Flood::FirstFragments, 4, ReassembledBy::Kernel, 310) };
    let rows = vec![
        kernel,
        row(Flood::FirstFragments, 4, ReassembledBy::Engine, 19_998),
        row(Flood::ThousandSources, 6, ReassembledBy::Engine, 19_000),
        FloodRow { wanted: Some(1.0), set_aside: 0, ..row(Flood::Drip, 6, ReassembledBy::Simulated, 20_000) },
    ];
    compare("floods.txt", &[Floods { conditions: conditions(), rows }]);
}

#[test]
fn attacks_reports_each_verdict() {
    let row = |id, attack, verdict, what: &str| AttackRow {
        id,
        attack,
        packets: 65_536,
        verdict,
        what: what.to_owned(),
        repeat: None,
        seconds: 1.25,
    };
    let broken = AttackRow {
        repeat: Some("wideload lab attacks A02 --seed 7".to_owned()),
        ..row("A02", "teardrop and its variants", "broken", "law 2 (conservation) is broken: 1 packet is missing")
    };
    let good = vec![
        row("A01", "ping of death", "held", ""),
        row("A40", "flood of probes", "waiting", "for path MTU discovery"),
        row("A41", "spoofed ICMP errors", "live", "crates/lab/tests/icmp_errors.rs: forged_errors_change_nothing"),
    ];
    let bad = vec![good[0].clone(), broken];
    compare("attacks.txt", &[good, bad].map(|rows| Attacks { seed: 7, rows, seconds: 12.0 }));
}
