//! A stage, and on or off -> running workers that use or bypass the stage (X7).
//!
//! The control socket switches stages in a running gateway. A stage that is switched off first releases its held
//! packets through all later stages. A stage that is switched on starts empty. A reload sets all stages to the new
//! configuration.

use crate::build;
use crate::commands::{Command, WorkerHandle};
use config::{Config, Stage};
use engine::{Gateway, Toggle, Toward};
use packet::Time;
use port::Offloads;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The directions in which a stage is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Packets toward the narrow side.
    ToNarrow,
    /// Packets toward the wide side.
    ToWide,
    /// Both directions. A direction without the stage is unchanged.
    Both,
}

/// Switches a stage in all workers. Returns the names of the changed directions.
///
/// # Errors
/// The configuration has no such stage in these directions, or a worker has ended.
pub fn switch(
    config: &Config,
    crew: &[WorkerHandle],
    stage: Stage,
    wanted: Directions,
    switch: Toggle,
) -> io::Result<Vec<&'static str>> {
    let chosen = directions(config, stage, wanted);
    let (Some(of_side), false) = (build::side_stage(stage), chosen.is_empty()) else {
        let stage = stage.name();
        let said = format!("{stage}: the configuration has no such stage in this direction; add it, and reload");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    };
    let (to, done) = mpsc::channel();
    for worker in crew {
        let (to, chosen) = (to.clone(), chosen.clone());
        let change = move |now: Time, gateway: &mut Gateway| {
            chosen.iter().for_each(|direction| gateway.switch(now, *direction, of_side, switch));
            // The caller may have ended.
            let _ = to.send(());
        };
        if !worker.give(Command::Change(Box::new(change))) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "a worker has ended"));
        }
    }
    drop(to);
    for _ in crew {
        done.recv_timeout(TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "a worker does not answer"),
            RecvTimeoutError::Disconnected => io::Error::new(io::ErrorKind::BrokenPipe, "a worker has ended"),
        })?;
    }
    Ok(chosen.into_iter().filter_map(|direction| NAMES.get(direction).copied()).collect())
}

/// Returns the chosen directions that have this stage.
fn directions(config: &Config, stage: Stage, directions: Directions) -> Vec<usize> {
    let Some(stage) = build::side_stage(stage) else { return Vec::new() };
    let sides = build::settings(config, [Offloads::default(); 2]).sides;
    let all = [(Directions::ToNarrow, Toward::Narrow), (Directions::ToWide, Toward::Wide)];
    let chosen =
        all.into_iter().filter(|(direction, _)| directions == *direction || directions == Directions::Both);
    let directions = chosen.map(|(_, toward)| toward.direction());
    directions.filter(|direction| sides.get(*direction).is_some_and(|side| side.has(stage))).collect()
}

/// Names of the directions, in the order of their numbers.
const NAMES: [&str; 2] = ["to-narrow", "to-wide"];
/// Longest wait for a worker's answer.
const TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switching_coalescing_handles_gso_packets_like_building_without_it() {
        let wide_interface = "role = \"wide-interface\"\n[wide]\nmtu = 9000\n";
        let border = "role = \"border\"\n[wide]\nport = \"packet:w0\"\nmtu = 9000\n";
        for text in [wide_interface, border] {
            let text = format!("{text}coalesce = \"resize\"\n[narrow]\nport = \"packet:n0\"\nmtu = 1500\n");
            let config = Config::parse(&text, "test.toml").expect("it is a configuration");
            let left_out = Config { bypass: vec![Stage::Coalesce], ..config.clone() };
            let secrets = build::draw_secrets().expect("the kernel gives random numbers");
            let gateway = |config| build::gateway(config, [Offloads::default(); 2], secrets);
            for direction in directions(&config, Stage::Coalesce, Directions::Both) {
                let gso_packets = |gateway: &Gateway| gateway.side(direction).sizing.gso_packets;
                let wanted = [&config, &left_out].map(|config| gso_packets(&gateway(config)));
                assert_ne!(wanted[0], wanted[1], "{text}");
                for began in [&config, &left_out] {
                    let mut gateway = gateway(began);
                    for (switch, wanted) in [(Toggle::Off, wanted[1]), (Toggle::On, wanted[0])] {
                        let stage = build::side_stage(Stage::Coalesce).expect("a side has it");
                        gateway.switch(Time::from_nanos(1), direction, stage, switch);
                        assert_eq!(gso_packets(&gateway), wanted, "{switch:?}: {text}");
                        let works = gateway.side(direction).aggregation.coalescer.is_some();
                        assert_eq!(works, switch == Toggle::On);
                    }
                }
            }
        }
    }
}
