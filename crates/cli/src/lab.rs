//! An experiment's name -> its table: `wideload lab`.
//!
//! The crate `lab` runs the experiments. This module only shows their results.

use crate::args::{
    self, AttacksArgs, Congestion, DifferentialArgs, Event, Experiment, GatewayRole, Lab as Args, LifecycleArgs,
    LinkArgs, NetworkArgs, SwarmArgs, TcpArgs, TransparencyArgs, TransparencyLinks, TransparencyPort,
};
use crate::command::{Status, complain, unless_closed, watch_for_interrupt};
use crate::demo::progress;
use daemon::json;
use indicatif::ProgressBar;
use lab::chart::Chart;
use lab::emulator::{CalibrationRun, Outcome, Scheduling};
use lab::experiments::{
    self, AcksSettings, Algorithm, AttacksSettings, BorderSettings, Differential, DifferentialSettings,
    DipsSettings, FairnessSettings, FloodsSettings, HoldSettings, LifecycleEvent, LifecycleSettings,
    PathChangeSettings, PathMiddle, PingPongSettings, ReceiveOffloadSettings, Receiving, Scene,
    SegmentSizesSettings, SoakSettings, SwarmSettings, TcpSettings, TransparencySettings, WideInterfaceSettings,
    WorkersSettings,
};
use lab::traffic::Writes;
use linux::namespace::become_own_root;
use serde::Serialize;
use std::fmt::{Display, Write};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

/// Runs `wideload lab`. Call this while the process has only one thread.
pub fn lab(args: &Args) -> Status {
    let outcome = match &args.experiment {
        Experiment::Link(link) => self::link(link, args.json),
        Experiment::Swarm(swarm) => self::swarm(swarm, args.json),
        Experiment::Attacks(attacks) => self::attacks(attacks, args.json),
        Experiment::Network(network) => self::network(network, args.json),
        experiment => become_own_root().and_then(|()| measure(experiment, args.json)),
    };
    outcome.unwrap_or_else(|error| {
        complain(&error.to_string());
        Status::Failed
    })
}

fn measure(experiment: &Experiment, json: bool) -> io::Result<Status> {
    let progress = progress(json);
    let tell = |step: &str| told(&progress, step);
    match experiment {
        Experiment::Link(args) => link(args, json),
        Experiment::Swarm(args) => swarm(args, json),
        Experiment::Attacks(args) => attacks(args, json),
        Experiment::Network(args) => network(args, json),
        Experiment::Differential(args) => {
            let outcome = differential(args, &progress)?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::Floods { seconds, seed } => {
            let settings = FloodsSettings { live: *seconds, seed: *seed, ..FloodsSettings::default() };
            let outcome = experiments::floods(&settings, tell)?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::Transparency(args) if args.list => {
            progress.finish_and_clear();
            io::stdout().write_all(experiments::transparency_list().as_bytes())?;
            Ok(Status::Done)
        }
        Experiment::Transparency(args) => {
            let outcome = experiments::transparency(&transparency_settings(args), tell)?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::Tcp(args) => {
            let outcome = experiments::tcp(&tcp_settings(args), |row| tell(&row.to_string()))?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::Calibrate => {
            tell("probing wires");
            let outcome = experiments::calibration(&CalibrationRun::standard(), Scheduling::Realtime)?;
            shown(&progress, json, &outcome, outcome.calibration.faults.is_empty())
        }
        Experiment::Border { rounds, bytes, write, scene } => {
            let timed_len = *bytes as usize;
            let writes = write.map_or(Writes::Drawn, |len| Writes::Of(len as usize));
            let usual = BorderSettings { rounds: *rounds, timed_len, writes, ..BorderSettings::default() };
            let scenes = scene.as_ref().map(|scenes| scenes.iter().copied().map(played).collect());
            let settings = BorderSettings { scenes: scenes.unwrap_or(usual.scenes), ..usual };
            let border = experiments::border(&settings, tell)?;
            shown(&progress, json, &border, border.intact && border.broken.is_empty())
        }
        Experiment::WideInterface { rounds, mtu, len } => {
            let usual = WideInterfaceSettings { rounds: *rounds, ..WideInterfaceSettings::default() };
            let mtus = mtu.clone().unwrap_or(usual.mtus);
            let lens = len.as_ref().map(|lens| lens.iter().map(|len| *len as usize).collect());
            let settings = WideInterfaceSettings { mtus, lens: lens.unwrap_or(usual.lens), ..usual };
            let outcome = experiments::wide_interface(&settings, tell)?;
            shown(&progress, json, &outcome, outcome.intact && outcome.broken.is_empty())
        }
        Experiment::Dips => {
            let outcome = experiments::dips(&DipsSettings::default(), tell)?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::Workers { rounds } => {
            let settings = WorkersSettings { rounds: *rounds, ..WorkersSettings::default() };
            let outcome = experiments::workers(&settings, tell)?;
            shown(&progress, json, &outcome, outcome.intact && outcome.broken.is_empty())
        }
        Experiment::Hold { rounds } => {
            let outcome = experiments::hold(&HoldSettings { rounds: *rounds, ..HoldSettings::default() }, tell)?;
            shown(&progress, json, &outcome, outcome.intact)
        }
        Experiment::Fairness(args) => {
            let settings = FairnessSettings { rounds: args.rounds, flows: args.flows, stretch: args.seconds };
            let outcome = experiments::fairness(&settings, tell)?;
            draw(args.svg.as_deref(), || outcome.chart())?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::ReceiveOffload(args) => {
            let usual = ReceiveOffloadSettings::default();
            let flows: Vec<_> = args.flows.iter().map(|count| *count as usize).collect();
            let settings = ReceiveOffloadSettings {
                live_connections: if flows.is_empty() { usual.live_connections } else { flows },
                rounds: args.live,
                stretch: args.seconds,
                ..usual
            };
            let outcome = experiments::receive_offload(&settings, tell)?;
            draw(args.svg.as_deref(), || outcome.chart())?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::PingPong { rounds } => {
            let settings = PingPongSettings { rounds: *rounds, ..PingPongSettings::default() };
            let outcome = experiments::ping_pong(&settings, tell)?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::PathChange { mtu, border_only } => {
            let usual = PathChangeSettings::default();
            let is_wanted = |middle: &PathMiddle| !border_only || matches!(middle, PathMiddle::Border { .. });
            let middles = usual.middles.iter().copied().filter(is_wanted).collect();
            let mtus = mtu.clone().unwrap_or(usual.mtus);
            let settings = PathChangeSettings { mtus, middles, ..usual };
            let outcome = experiments::path_change(&settings, tell)?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::Acks { delay, mtu, bytes } => {
            let usual = AcksSettings::default();
            let trips = delay.iter().map(|trip| Duration::from_millis(*trip)).collect();
            let settings = AcksSettings {
                trips: if delay.is_empty() { usual.trips } else { trips },
                wide_mtus: if mtu.is_empty() { usual.wide_mtus } else { mtu.clone() },
                bytes: *bytes,
            };
            let outcome = experiments::acks(&settings, tell);
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::SegmentSizes(args) => {
            let usual = SegmentSizesSettings::default();
            let trips = args.delay.iter().map(|trip| Duration::from_millis(*trip)).collect();
            let settings = SegmentSizesSettings {
                trips: if args.delay.is_empty() { usual.trips } else { trips },
                losses: if args.loss.is_empty() { usual.losses } else { args.loss.clone() },
                wide_mtu: args.mtu,
                seeds: args.seeds,
                rounds: args.live,
                cost_rounds: args.cost,
                ..usual
            };
            let outcome = experiments::segment_sizes(&settings, tell)?;
            draw(args.svg.as_deref(), || outcome.chart())?;
            shown(&progress, json, &outcome, outcome.is_good())
        }
        Experiment::Lifecycle(args) => {
            let outcome = experiments::lifecycle(&lifecycle_settings(args)?, tell)?;
            shown(&progress, json, &outcome, outcome.faults.is_empty())
        }
        Experiment::Soak(args) => {
            let settings = SoakSettings {
                program: std::env::current_exe()?,
                reloads: args.reloads,
                restarts: args.restarts,
                kill_rounds: args.kill_rounds,
                streams: args.streams,
                stretch: Duration::from_secs_f64(args.minutes * 60.0),
                wire: args.wire.clone(),
            };
            let outcome = experiments::soak(&settings, tell)?;
            shown(&progress, json, &outcome, outcome.faults.is_empty())
        }
    }
}

/// Writes a picture, if one was asked for.
fn draw(path: Option<&Path>, chart: impl FnOnce() -> Chart) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, chart().svg())
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Returns the scene of the border experiment that an argument names.
fn played(scene: args::Scene) -> Scene {
    match scene {
        args::Scene::NoGro => Scene::Wires(Receiving::ThreadWithoutCopy),
        args::Scene::Gro => Scene::Wires(Receiving::ThreadWithGro),
        args::Scene::Plain => Scene::Wires(Receiving::Plain),
        args::Scene::MiddleGro => Scene::GroBetween,
        args::Scene::Tso => Scene::Tso,
    }
}

fn transparency_settings(args: &TransparencyArgs) -> TransparencySettings {
    let usual = if args.short { TransparencySettings::short() } else { TransparencySettings::default() };
    let roles = args.role.iter().copied().map(role);
    let ports = args.port.iter().map(|port| match port {
        TransparencyPort::Packet => experiments::PortKind::Packet,
        TransparencyPort::Xdp => experiments::PortKind::Xdp,
    });
    let links = args.links.iter().map(|links| match links {
        TransparencyLinks::Plain => experiments::LinkKind::Plain,
        TransparencyLinks::Offloads => experiments::LinkKind::Offloads,
    });
    TransparencySettings {
        kinds: args.kind.clone(),
        roles: Some(roles.collect::<Vec<_>>()).filter(|list| !list.is_empty()).unwrap_or(usual.roles),
        ports: Some(ports.collect::<Vec<_>>()).filter(|list| !list.is_empty()).unwrap_or(usual.ports),
        links: Some(links.collect::<Vec<_>>()).filter(|list| !list.is_empty()).unwrap_or(usual.links),
        is_short: usual.is_short,
    }
}

fn role(role: GatewayRole) -> experiments::Role {
    match role {
        GatewayRole::Border => experiments::Role::Border,
        GatewayRole::Router => experiments::Role::Router,
        GatewayRole::WideInterface => experiments::Role::WideInterface,
    }
}

fn lifecycle_settings(args: &LifecycleArgs) -> io::Result<LifecycleSettings> {
    let usual = if args.short { LifecycleSettings::short() } else { LifecycleSettings::default() };
    let events = args.event.iter().map(|event| match event {
        Event::Stop => LifecycleEvent::Stop,
        Event::Interrupt => LifecycleEvent::Interrupt,
        Event::Drain => LifecycleEvent::Drain,
        Event::Reload => LifecycleEvent::Reload,
        Event::Restart => LifecycleEvent::Restart,
        Event::BadProgram => LifecycleEvent::BadProgram,
        Event::BadConfiguration => LifecycleEvent::BadConfiguration,
        Event::KillWorker => LifecycleEvent::KillWorker,
        Event::KillSupervisor => LifecycleEvent::KillSupervisor,
        Event::KillBoth => LifecycleEvent::KillBoth,
    });
    let roles = args.role.iter().copied().map(role);
    Ok(LifecycleSettings {
        program: std::env::current_exe()?,
        roles: Some(roles.collect::<Vec<_>>()).filter(|list| !list.is_empty()).unwrap_or(usual.roles),
        events: Some(events.collect::<Vec<_>>()).filter(|list| !list.is_empty()).unwrap_or(usual.events),
        flow_count: args.flows.unwrap_or(usual.flow_count),
        ..usual
    })
}

fn tcp_settings(args: &TcpArgs) -> TcpSettings {
    let usual = TcpSettings::default();
    let algorithms = args.congestion.iter().map(|congestion| match congestion {
        Congestion::Cubic => Algorithm::Cubic,
        Congestion::Reno => Algorithm::Reno,
    });
    let mut lens: Vec<usize> = args.lens.iter().map(|len| *len as usize).collect();
    if lens.is_empty() {
        // With loss, the results of long transfers depend on chance, even if they are repeated for minutes.
        lens = usual.lens.into_iter().filter(|len| args.loss == 0.0 || *len <= LOSSY_LEN_MAX).collect();
    }
    TcpSettings { lens, algorithms: algorithms.collect(), loss: args.loss, rounds: args.rounds, ..usual }
}

/// Runs the swarm of simulations. No privileges and no namespace are needed, as all hosts are simulated.
fn swarm(args: &SwarmArgs, json: bool) -> io::Result<Status> {
    let progress = progress(json);
    // A panic in a case counts as a violated law, which is shown with the seed. The panic messages themselves are
    // suppressed, because minimising the case repeats them.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = match &args.case {
        Some(case) => experiments::replay(case),
        None => {
            let usual = SwarmSettings::default();
            let threads = args.threads.unwrap_or(usual.threads);
            let settings = SwarmSettings { packets: args.packets, seed: args.seed, threads, ..usual };
            experiments::swarm(&settings, |so_far| {
                let (done, of) = (so_far.packets as f64 / 1e6, so_far.of as f64 / 1e6);
                told(
                    &progress,
                    &format!("{done:.1} of {of:.1} million packets, {:.2} million a second", so_far.rate / 1e6),
                );
            })
        }
    };
    std::panic::set_hook(hook);
    let is_good = if args.case.is_some() { outcome.failures.is_empty() } else { outcome.is_good() };
    shown(&progress, json, &outcome, is_good)
}

/// Runs the attacks. No privileges and no namespace are needed.
fn attacks(args: &AttacksArgs, json: bool) -> io::Result<Status> {
    let progress = progress(json);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let settings = AttacksSettings { ids: args.ids.clone(), seed: args.seed, ..AttacksSettings::default() };
    let outcome = experiments::attacks(&settings, |row| told(&progress, &format!("{} {}", row.id, row.attack)));
    std::panic::set_hook(hook);
    shown(&progress, json, &outcome, outcome.is_good())
}

fn differential(args: &DifferentialArgs, progress: &ProgressBar) -> io::Result<Differential> {
    let usual = DifferentialSettings::default();
    let threads = args.threads.unwrap_or(usual.threads);
    let DifferentialArgs { datagrams, gso_packets, bursts, seed, .. } = *args;
    match args.case {
        Some(cases) => experiments::repeat(seed, cases),
        None => experiments::differential(
            &DifferentialSettings { datagrams, gso_packets, bursts, seed, threads },
            |step| told(progress, step),
        ),
    }
}

fn told(progress: &ProgressBar, step: &str) {
    progress.set_message(step.to_owned());
}

fn link(args: &LinkArgs, json: bool) -> io::Result<Status> {
    let stop = watch_for_interrupt();
    let shapes = [args.shape.clone(), args.back.clone().unwrap_or_else(|| args.shape.clone())];
    crate::command::tell(&format!("connecting {} and {}; press Ctrl-C to stop", args.a, args.b));
    let outcome = experiments::link([&args.a, &args.b], shapes, args.stretch, &stop, Scheduling::Realtime)?;
    let text = if json { json::indented(&outcome)? } else { directions(&outcome) };
    unless_closed(io::stdout().write_all(text.as_bytes()))?;
    Ok(if outcome.is_valid { Status::Done } else { Status::Failed })
}

/// Returns the result of `wideload lab link` as text for people.
fn directions(outcome: &Outcome) -> String {
    let mut text = format!("{:.1} s, scheduling: {}\n", outcome.time_ns as f64 / 1e9, outcome.scheduling);
    for direction in &outcome.directions {
        let counters = &direction.counters;
        let lost = counters.offered.frames.saturating_sub(counters.delivered.frames + direction.inside.frames);
        let shape =
            if direction.shape.to_string().is_empty() { "plain".to_owned() } else { direction.shape.to_string() };
        let _ = writeln!(
            text,
            "{} to {} ({shape}): {} frames received, {} sent, {lost} lost on the link, {} still inside; {}",
            direction.from,
            direction.to,
            counters.offered.frames,
            direction.sent_count,
            direction.inside.frames,
            direction.lateness,
        );
    }
    outcome.faults.iter().for_each(|fault| {
        let _ = writeln!(text, "not valid: {fault}");
    });
    if outcome.is_valid {
        text.push_str("valid: the links had the requested shape\n");
    }
    text
}

/// Simulates the network that a file describes. No privileges and no namespace are needed.
fn network(args: &NetworkArgs, json: bool) -> io::Result<Status> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| io::Error::new(error.kind(), format!("{file}: cannot read: {error}")))?;
    let progress = progress(json);
    told(&progress, "simulating");
    match experiments::network(&text, args.seed) {
        Ok(outcome) => shown(&progress, json, &outcome, outcome.is_good()),
        Err(bad) => {
            progress.finish_and_clear();
            complain(&format!("{file}: {bad}"));
            Ok(Status::Usage)
        }
    }
}

fn shown<T: Serialize + Display>(
    progress: &ProgressBar,
    json: bool,
    outcome: &T,
    is_good: bool,
) -> io::Result<Status> {
    progress.finish_and_clear();
    let text = if json { json::indented(outcome)? } else { outcome.to_string() };
    unless_closed(io::stdout().write_all(text.as_bytes()))?;
    Ok(if is_good { Status::Done } else { Status::Failed })
}

/// Longest transfer that is compared under packet loss by default, in bytes.
const LOSSY_LEN_MAX: usize = 1_000_000;
