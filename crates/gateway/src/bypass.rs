//! A stage and a switch in, ways through running workers that leave it out, or have it again, out (X7).
//!
//! A stage that is switched off lets go of what it holds first, through all that follows it; one that is switched on begins anew.
//! A new configuration says anew which stages work.

use crate::build::{self, Secrets};
use crate::config::{Config, SideConfig, Stage};
use crate::figures::named;
use crate::orders::{Order, Reins};
use crate::worker::Way;
use engine::{Join, Side, Switch, Toward, Trains, Widening};
use packet::Time;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Which of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// What leaves by the narrow side.
    ToNarrow,
    /// What leaves by the wide side.
    ToWide,
    /// Both, as far as they have the stage.
    Both,
}

/// Switches a stage in all workers, and says on which ways.
///
/// # Errors
/// The configuration has no such stage there; or a worker is gone.
pub fn switch(
    config: &Config,
    crew: &[Reins],
    stage: Stage,
    ways: Ways,
    switch: Switch,
) -> io::Result<Vec<&'static str>> {
    let sides = [(Ways::ToNarrow, &config.narrow), (Ways::ToWide, &config.wide)];
    let chosen = sides.map(|(way, side)| stages(side, stage).filter(|_| ways == way || ways == Ways::Both));
    if chosen.iter().all(Option::is_none) {
        let stage = named(&Stage::NAMES, stage);
        let said = format!("{stage}: the configuration has no such stage there; give it one, and reload");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    let (to, done) = mpsc::channel();
    for worker in crew {
        let fresh = fresh(config, switch)?;
        let to = to.clone();
        let change = move |now: Time, ways: &mut [Way; 2]| {
            for ((way, fresh), chosen) in ways.iter_mut().zip(fresh).zip(chosen) {
                if let Some(stages) = chosen {
                    turn(way, stages, switch, fresh, now);
                }
            }
            // Who asked may be gone.
            let _ = to.send(());
        };
        if !worker.give(Order::Change(Box::new(change))) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "a worker has ended"));
        }
    }
    drop(to);
    for _ in crew {
        done.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "a worker does not answer"),
            RecvTimeoutError::Disconnected => io::Error::new(io::ErrorKind::BrokenPipe, "a worker has ended"),
        })?;
    }
    Ok(NAMES.into_iter().zip(chosen).filter_map(|(name, chosen)| chosen.map(|_| name)).collect())
}

/// What is switched on one way.
#[derive(Clone, Copy, Debug)]
enum Stages {
    Joining { reassembler: bool, joiner: bool },
    Coalescing,
    Segmenting,
    Fragmenting,
}

/// What a stage is on a side, left out or not; none where the side has no such stage.
fn stages(side: &SideConfig, stage: Stage) -> Option<Stages> {
    let joins = [Join::Destination, Join::Hop].iter().any(|join| side.joins_as(*join));
    let reassembler = joins && build::rejoins_by(side) == stage;
    let joiner = stage == Stage::Join && side.joins_as(Join::Graceful);
    let (stages, has) = match stage {
        Stage::Reassemble | Stage::Join => (Stages::Joining { reassembler, joiner }, reassembler || joiner),
        Stage::Coalesce => (Stages::Coalescing, side.coalesce.is_some()),
        Stage::Segment => (Stages::Segmenting, side.segment == Switch::On),
        Stage::Fragment => (Stages::Fragmenting, side.fragment == Switch::On),
        // No side has it: it is about both.
        Stage::Mss | Stage::Lease => return None,
    };
    has.then_some(stages)
}

/// What a stage that is switched is given.
struct Fresh {
    /// New stages, with none left out.
    widening: Widening,
    /// How long the segments of trains leave if coalescing is switched.
    trains: Trains,
}

/// For both ways.
fn fresh(config: &Config, switch: Switch) -> io::Result<[Fresh; 2]> {
    let config = Config { bypass: Vec::new(), ..config.clone() };
    let secrets = Secrets::draw()?;
    Ok([Toward::Narrow, Toward::Wide].map(|toward| Fresh {
        widening: build::widening(&config, build::of(&config, toward), secrets),
        trains: build::trains(&config, toward, switch),
    }))
}

fn turn(way: &mut Way, stages: Stages, switch: Switch, fresh: Fresh, now: Time) {
    let Fresh { widening: fresh, trains } = fresh;
    if matches!((stages, switch), (Stages::Joining { reassembler: true, .. }, Switch::Off)) {
        way.keep_guesses();
    }
    let Way { side, out, .. } = way;
    let Side { widening, narrowing } = side;
    match (stages, switch) {
        (Stages::Segmenting, _) => narrowing.segment = switch,
        (Stages::Fragmenting, _) => narrowing.fragment = switch,
        (Stages::Joining { reassembler, joiner }, Switch::On) => {
            begin(&mut widening.reassembler, fresh.reassembler.filter(|_| reassembler));
            begin(&mut widening.joiner, fresh.joiner.filter(|_| joiner));
        }
        (Stages::Joining { reassembler, joiner }, Switch::Off) => {
            let stays = (widening.reassembler.take_if(|_| !reassembler), widening.joiner.take_if(|_| !joiner));
            side.flush(now, out);
            (side.widening.reassembler, side.widening.joiner) = stays;
        }
        (Stages::Coalescing, Switch::On) => {
            begin(&mut widening.coalescer, fresh.coalescer);
            narrowing.trains = trains;
        }
        (Stages::Coalescing, Switch::Off) => {
            side.release(now, out);
            side.widening.coalescer = None;
            side.narrowing.trains = trains;
        }
    }
}

/// One that works goes on as it is.
fn begin<T>(stage: &mut Option<T>, fresh: Option<T>) {
    if stage.is_none() {
        *stage = fresh;
    }
}

/// The ways, in the order of workers.
const NAMES: [&str; 2] = ["to-narrow", "to-wide"];
/// How long a worker may take.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use port::Offloads;

    #[test]
    fn coalescing_that_is_switched_leaves_trains_as_a_side_that_was_built_so_does() {
        let wide_interface = "role = \"wide-interface\"\n[wide]\nmtu = 9000\n";
        let border = "role = \"border\"\n[wide]\nport = \"packet:w0\"\nmtu = 9000\n";
        for text in [wide_interface, border] {
            let text = format!("{text}coalesce = \"resize\"\n[narrow]\nport = \"packet:n0\"\nmtu = 1500\n");
            let config = Config::parse(&text, "test.toml").expect("it is a configuration");
            let left_out = Config { bypass: vec![Stage::Coalesce], ..config.clone() };
            let secrets = Secrets::draw().expect("the kernel gives random numbers");
            for (toward, at) in [(Toward::Narrow, 0), (Toward::Wide, 1)] {
                let way = |config| build::way(config, toward, Offloads::default(), secrets);
                let Some(stages) = stages(build::of(&config, toward), Stage::Coalesce) else { continue };
                let wanted = [&config, &left_out].map(|config| way(config).side.narrowing.trains);
                assert_ne!(wanted[0], wanted[1], "{text}");
                for began in [&config, &left_out] {
                    let mut way = way(began);
                    for (switch, wanted) in [(Switch::Off, wanted[1]), (Switch::On, wanted[0])] {
                        let fresh =
                            fresh(began, switch).expect("the kernel gives random numbers").into_iter().nth(at);
                        let fresh = fresh.expect("there are two ways");
                        turn(&mut way, stages, switch, fresh, Time::from_nanos(1));
                        assert_eq!(way.side.narrowing.trains, wanted, "{switch:?}: {text}");
                        assert_eq!(way.side.widening.coalescer.is_some(), switch == Switch::On);
                    }
                }
            }
        }
    }
}
