//! A gateway with 50 TCP connections -> the effects of stops, restarts and kills on the connections and on the
//! gateway's host.
//!
//! Each gateway has a network of its own and is run by the command `wideload run`. While data is sent both ways,
//! the gateway is stopped, drained, reloaded, restarted or killed. Then the same gateway continues, or the kernel
//! or another gateway takes over. All settings of the gateway's host are listed before and after, and must be
//! equal.

mod flows;
mod network;
mod table;

use self::network::Network;
use super::running::{Running, spelled};
use super::{Conditions, Role};
use crate::inventory::{Difference, Inventory};
use daemon::control::{Client, Direction, Request, Toggle};
use flows::{Flows, Mark};
use rustix::process::Signal;
use serde::Serialize;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub use self::flows::Outcome;

/// Stop, change or crash of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifecycleEvent {
    /// SIGTERM to the supervisor.
    Stop,
    /// SIGINT to the supervisor's process group, as a terminal sends it.
    Interrupt,
    /// The stages that hold packets are switched off through the control socket. Then the gateway is stopped
    /// through the control socket.
    Drain,
    /// SIGHUP, with a changed configuration.
    Reload,
    /// `wideload restart`.
    Restart,
    /// `wideload restart`, where the new program does not start.
    BadProgram,
    /// `wideload restart` and SIGUSR2, with a faulty new configuration.
    BadConfiguration,
    /// SIGKILL to the worker process.
    KillWorker,
    /// SIGKILL to the supervisor.
    KillSupervisor,
    /// SIGKILL to both processes at one moment.
    KillBoth,
}

/// Measure that restores the host after the supervisor was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// `wideload undo`.
    Undo,
    /// The start of another gateway, which is stopped later.
    Successor,
    /// No remedy until the connections continue by themselves; then `wideload undo`.
    Time,
}

/// Roles and events to test, and the load.
#[derive(Clone, Debug)]
pub struct LifecycleSettings {
    /// Path of the `wideload` program.
    pub program: PathBuf,
    /// Roles to test, in this order.
    pub roles: Vec<Role>,
    /// Events to test, in this order, each with a gateway of its own.
    pub events: Vec<LifecycleEvent>,
    /// Number of connections, half of them in each direction.
    pub flow_count: usize,
    /// Time that the connections run before an event, and again after it.
    pub stretch: Duration,
    /// Longest time without an arrival; a connection with a longer one has stalled.
    pub stall: Duration,
    /// Number of rounds that run concurrently, each in its own network.
    pub at_once: usize,
    /// Whether `wideload undo` is the only remedy tested after a kill.
    pub is_short: bool,
}

/// Results of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Lifecycle {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Longest time without an arrival, in milliseconds; a connection with a longer one has stalled.
    pub stall_ms: f64,
    /// One row for each role and event.
    pub rows: Vec<LifecycleRow>,
    /// Faults, one sentence each; empty if there are none.
    pub faults: Vec<String>,
    /// Total duration, in seconds.
    pub seconds: f64,
}

/// Effects of one event on the connections and on the gateway's host.
#[derive(Clone, Debug, Serialize)]
pub struct LifecycleRow {
    /// The gateway's role.
    pub role: Role,
    /// The event during the connections.
    pub event: LifecycleEvent,
    /// Remedy after the supervisor was killed; `None` for other events.
    pub remedy: Option<Remedy>,
    /// Exit status of the gateway, or of `wideload restart`; `None` if neither ended.
    pub exit: Option<String>,
    /// Duration of the event, in milliseconds.
    pub took_ms: f64,
    /// Number of connections.
    pub flow_count: usize,
    /// Number of connections that stalled.
    pub stalled: usize,
    /// Number of connections that were reset.
    pub reset: usize,
    /// Number of connections that timed out, or whose bytes did not all arrive.
    pub timed_out: usize,
    /// Number of stalled connections that continued after the wide host's route was set by hand; `None` if no route
    /// was set.
    pub mended_by_hand: Option<usize>,
    /// Longest gap between arrivals of any connection before the event, in milliseconds.
    pub usual_gap_ms: f64,
    /// Longest gap between arrivals of any connection from the event on, in milliseconds.
    pub longest_gap_ms: f64,
    /// Median of the connections' longest gaps, in milliseconds.
    pub median_gap_ms: f64,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of bytes that arrived.
    pub bytes: u64,
    /// Number of bytes that arrived changed.
    pub wrong_bytes: u64,
    /// Number of the host's settings that the running gateway had changed.
    pub changed_while_running: usize,
    /// Changes that a killed gateway left, before any remedy.
    pub left_behind: Vec<Change>,
    /// Differences from the original settings that remained at the end of the round.
    pub differences: Vec<Change>,
}

/// A changed setting of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Name of the setting.
    pub item: String,
    /// The former value; `None` if the setting did not exist.
    pub before: Option<String>,
    /// The later value; `None` if the setting does not exist.
    pub after: Option<String>,
}

impl Default for LifecycleSettings {
    fn default() -> LifecycleSettings {
        LifecycleSettings {
            program: PathBuf::from("wideload"),
            roles: ROLES.into(),
            events: EVENTS.into(),
            flow_count: 50,
            stretch: Duration::from_secs(1),
            stall: Duration::from_secs(3),
            at_once: 1,
            is_short: false,
        }
    }
}

impl LifecycleSettings {
    /// Returns settings with few connections and few events. Four rounds run concurrently, and the test takes a few
    /// seconds.
    pub fn short() -> LifecycleSettings {
        LifecycleSettings {
            events: vec![LifecycleEvent::Stop, LifecycleEvent::Restart, LifecycleEvent::KillBoth],
            flow_count: 8,
            stretch: Duration::from_millis(250),
            stall: Duration::from_millis(1_200),
            at_once: 4,
            is_short: true,
            ..LifecycleSettings::default()
        }
    }
}

/// Runs each event on gateways of each role, and passes a description of each step to `tell`.
///
/// # Errors
/// A missing privilege or kernel feature; a gateway that does not respond.
pub fn lifecycle(settings: &LifecycleSettings, tell: impl FnMut(&str) + Send) -> io::Result<Lifecycle> {
    let began = Instant::now();
    let mut outcome = Lifecycle {
        conditions: Conditions::here(1),
        stall_ms: settings.stall.as_secs_f64() * 1e3,
        rows: Vec::new(),
        faults: Vec::new(),
        seconds: 0.0,
    };
    let rounds = rounds(settings);
    let (next, tell) = (AtomicUsize::new(0), Mutex::new(tell));
    let play = || {
        let mut played = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(role, event, remedy)) = rounds.get(number) else { return Ok(played) };
            let what = format!("{} {}", table::name(role), table::label(event, remedy));
            (tell.lock().unwrap_or_else(PoisonError::into_inner))(&format!(
                "{} of {}: {what}",
                number + 1,
                rounds.len()
            ));
            let said = |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
            let (row, faults) = Round::play(settings, role, event, remedy).map_err(said)?;
            played.push((number, row, faults.into_iter().map(|fault| format!("{what}: {fault}")).collect()));
        }
    };
    let mut played: Vec<(usize, LifecycleRow, Vec<String>)> = thread::scope(|scope| {
        let players: Vec<_> = (0..settings.at_once).map(|_| scope.spawn(play)).collect();
        let played = players.into_iter().map(|player| player.join().expect("a round that panics has said why"));
        Ok::<_, io::Error>(played.collect::<io::Result<Vec<_>>>()?.concat())
    })?;
    played.sort_by_key(|(number, ..)| *number);
    for (_, row, faults) in played {
        outcome.rows.push(row);
        outcome.faults.extend(faults);
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    Ok(outcome)
}

fn rounds(settings: &LifecycleSettings) -> Vec<(Role, LifecycleEvent, Option<Remedy>)> {
    let remedies = |role, event| match (role, event) {
        (_, LifecycleEvent::KillSupervisor | LifecycleEvent::KillBoth) if settings.is_short => {
            vec![Some(Remedy::Undo)]
        }
        // The host state that a killed wide interface leaves disappears by itself after some time.
        (Role::WideInterface, LifecycleEvent::KillBoth) => {
            vec![Some(Remedy::Undo), Some(Remedy::Successor), Some(Remedy::Time)]
        }
        (_, LifecycleEvent::KillSupervisor | LifecycleEvent::KillBoth) => {
            vec![Some(Remedy::Undo), Some(Remedy::Successor)]
        }
        _ => vec![None],
    };
    let mut rounds = Vec::new();
    for role in &settings.roles {
        for event in &settings.events {
            rounds.extend(remedies(*role, *event).into_iter().map(|remedy| (*role, *event, remedy)));
        }
    }
    rounds
}

/// A gateway and its network for one event.
struct Round {
    network: Network,
    folder: TempDir,
    /// The running gateway; `None` while no gateway runs.
    gateway: Option<Running>,
    event: LifecycleEvent,
    faults: Vec<String>,
}

impl Round {
    fn play(
        settings: &LifecycleSettings,
        role: Role,
        event: LifecycleEvent,
        remedy: Option<Remedy>,
    ) -> io::Result<(LifecycleRow, Vec<String>)> {
        let network = Network::new(role)?;
        let mut round = Round { network, folder: tempfile::tempdir()?, gateway: None, event, faults: Vec::new() };
        if fs::hard_link(&settings.program, round.program()).is_err() {
            fs::copy(&settings.program, round.program())?;
        }
        round.configure(false)?;
        let before = round.network.calm_state()?;
        round.start()?;
        round.network.wait_until_forwarding()?;
        let flows = round.network.flows(settings.flow_count)?;
        let opened = flows.mark()?;
        if flows.wait(&opened, OPEN_TIMEOUT) > 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "some connections carry no bytes"));
        }
        let steady = Instant::now();
        thread::sleep(settings.stretch);
        let changed_while_running = before.differences(&round.network.state()?).len();

        let mark = flows.mark()?;
        let exit = round.happen()?;
        let took_ms = mark.at.elapsed().as_secs_f64() * 1e3;
        // The kernel's bridge replaces a killed border, so `wideload undo` does not help the connections and runs
        // at the end.
        let hangs = role == Role::Border && remedy == Some(Remedy::Undo);
        let is_undone_later = hangs || remedy == Some(Remedy::Time);
        let mut left_behind = Vec::new();
        match remedy {
            Some(Remedy::Successor) => round.start()?,
            Some(Remedy::Undo) if !is_undone_later => left_behind = round.undo(&before)?,
            _ if round.gateway.is_none() => round.network.take_over()?,
            _ => {}
        }
        let over = flows.mark()?;
        let missing = flows.wait(&over, settings.stall);
        if missing > 0 && !hangs {
            flows.wait(&over, LATE_TIMEOUT);
        }
        thread::sleep(settings.stretch);
        let until = Instant::now();
        let retransmitted = flows.retransmitted_since(&mark)?;
        let mended_by_hand =
            if hangs && missing > 0 { Some(round.set_narrow_route(&flows, missing)?) } else { None };
        round.stop_what_runs()?;
        let gaps = flows.gaps(mark.at, until);
        let usual = flows.gaps(steady, mark.at);
        let bytes = flows.received();
        let (outcomes, wrong_bytes) = flows.finish(FINISH_TIMEOUT);
        round.network.leave()?;
        if is_undone_later {
            left_behind = round.undo(&before)?;
        }
        let differences = round.differences(&before)?;

        let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
        let stalled = gaps
            .iter()
            .zip(&outcomes)
            .filter(|(gap, outcome)| **gap > settings.stall && **outcome == Outcome::Complete);
        let row = LifecycleRow {
            role,
            event,
            remedy,
            exit,
            took_ms,
            flow_count: settings.flow_count,
            stalled: stalled.count(),
            reset: count(Outcome::Reset),
            timed_out: count(Outcome::TimedOut),
            mended_by_hand,
            usual_gap_ms: longest(&usual),
            longest_gap_ms: longest(&gaps),
            median_gap_ms: median(&gaps),
            retransmitted,
            bytes,
            wrong_bytes,
            changed_while_running,
            left_behind,
            differences,
        };
        round.faults.extend(row.faults(is_undone_later));
        Ok((row, round.faults))
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("wideload")
    }

    fn config(&self) -> PathBuf {
        self.network.config_path(self.folder.path())
    }

    fn configure(&self, is_second: bool) -> io::Result<()> {
        fs::write(self.config(), self.network.config(is_second))
    }

    fn start(&mut self) -> io::Result<()> {
        self.gateway = Some(Running::start(&self.program(), self.network.space(), &self.config())?);
        Ok(())
    }

    /// Performs the event. Returns the exit status of the gateway or of `wideload restart`; `None` if neither
    /// ended.
    fn happen(&mut self) -> io::Result<Option<String>> {
        let mut gateway = self.gateway.take().expect("a gateway runs");
        let ended = match self.event {
            LifecycleEvent::Stop => {
                gateway.tell(Signal::TERM)?;
                gateway.end()?
            }
            LifecycleEvent::Interrupt => {
                gateway.tell_group(Signal::INT)?;
                gateway.end()?
            }
            LifecycleEvent::Drain => {
                self.drain()?;
                gateway.end()?
            }
            LifecycleEvent::KillSupervisor => gateway.kill_supervisor()?,
            LifecycleEvent::KillBoth => gateway.kill_both()?,
            _ => {
                let exit = self.change(&mut gateway)?;
                self.gateway = Some(gateway);
                return Ok(exit);
            }
        };
        Ok(Some(spelled(ended)))
    }

    /// Performs an event that the gateway survives. Returns the exit status of `wideload restart`; `None` for other
    /// events.
    fn change(&self, gateway: &mut Running) -> io::Result<Option<String>> {
        match self.event {
            LifecycleEvent::Reload => {
                self.configure(true)?;
                gateway.tell_and_hear(Signal::HUP, ": reloaded")?;
                Ok(None)
            }
            LifecycleEvent::KillWorker => gateway.kill_worker().map(|()| None),
            LifecycleEvent::BadProgram => {
                let (program, aside) = (self.program(), self.folder.path().join("aside"));
                fs::rename(&program, &aside)?;
                fs::write(&program, "#!/bin/sh\nexit 1\n")?;
                fs::set_permissions(&program, Permissions::from_mode(0o755))?;
                let asked = self.restart(&aside)?;
                fs::rename(&aside, &program)?;
                Ok(Some(spelled(asked.status)))
            }
            LifecycleEvent::BadConfiguration => {
                fs::write(self.config(), "role = \"none\"\n")?;
                let asked = self.restart(&self.program())?;
                gateway.tell_and_hear(Signal::USR2, ": not restarted, the gateway continues unchanged")?;
                self.configure(false)?;
                Ok(Some(spelled(asked.status)))
            }
            _ => Ok(Some(spelled(self.restart(&self.program())?.status))),
        }
    }

    fn restart(&self, program: &Path) -> io::Result<Output> {
        self.command(program, &["restart".as_ref(), &self.config()])
    }

    fn command(&self, program: &Path, arguments: &[&Path]) -> io::Result<Output> {
        self.network.space().enter(|| Command::new(program).args(arguments).output())
    }

    fn drain(&self) -> io::Result<()> {
        let mut client = Client::connect(&self.network.control())?;
        for stage in self.network.holding_stages() {
            let (stage, direction, switch) = ((*stage).to_owned(), Direction::Both, Toggle::Off);
            client.ask(&Request::Bypass { stage, direction, switch })?;
        }
        thread::sleep(DRAIN);
        client.ask(&Request::Stop {}).map(drop)
    }

    /// Sets the route that the user guide recommends for stalled connections. Returns the number of stalled
    /// connections that then continued.
    fn set_narrow_route(&mut self, flows: &Flows, missing: usize) -> io::Result<usize> {
        self.network.tell_wide_host()?;
        let told: Mark = flows.mark()?;
        Ok(missing.saturating_sub(flows.wait(&told, LATE_TIMEOUT)))
    }

    /// Runs `wideload undo`. Returns the differences from the original state that existed before the command.
    fn undo(&mut self, before: &Inventory) -> io::Result<Vec<Change>> {
        let left = before.differences(&self.network.state()?).into_iter().map(Change::from).collect();
        let undone = self.command(&self.program(), &["undo".as_ref()])?;
        if !undone.status.success() {
            let said = String::from_utf8_lossy(&undone.stderr).trim().to_owned();
            self.faults.push(format!("`wideload undo` exited with status {}: {said}", spelled(undone.status)));
        }
        Ok(left)
    }

    /// Stops the gateway if it still runs. The kernel then forwards in its place.
    fn stop_what_runs(&mut self) -> io::Result<()> {
        let Some(gateway) = self.gateway.take() else { return Ok(()) };
        gateway.tell(Signal::TERM)?;
        let exit = spelled(gateway.end()?);
        if exit != "0" {
            self.faults.push(format!("the gateway, stopped later, exited with status {exit}"));
        }
        self.network.take_over()
    }

    /// Returns the differences from the original state. The kernel removes some items only a moment after the
    /// process that created them has ended, so the state is read repeatedly.
    fn differences(&self, before: &Inventory) -> io::Result<Vec<Change>> {
        let until = Instant::now() + CLEANUP_TIMEOUT;
        loop {
            let differences: Vec<Difference> = before.differences(&self.network.state()?);
            if differences.is_empty() || Instant::now() > until {
                return Ok(differences.into_iter().map(Change::from).collect());
            }
            thread::sleep(CLEANUP_LOOK);
        }
    }
}

impl LifecycleRow {
    /// Returns the faults of the round, one sentence each.
    fn faults(&self, may_stall: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let (exit, wanted) = (self.exit.as_deref().unwrap_or("none"), self.event.exit().unwrap_or("none"));
        if exit != wanted {
            faults.push(format!("exit status {exit}, expected {wanted}"));
        }
        if self.took_ms > TOOK_MAX.as_secs_f64() * 1e3 {
            faults.push(format!("it took {:.1} s", self.took_ms / 1e3));
        }
        let (count, broken) = (self.flow_count, self.reset + self.timed_out);
        if broken > 0 {
            faults.push(format!("{broken} of {count} flows broke"));
        }
        if self.stalled > 0 && !may_stall {
            faults.push(format!("{} of {count} flows stalled", self.stalled));
        }
        if self.wrong_bytes > 0 {
            faults.push(format!("{} bytes arrived changed", self.wrong_bytes));
        }
        if self.changed_while_running == 0 {
            faults.push("the host's state did not differ while the gateway ran: the check sees nothing".to_owned());
        }
        faults.extend(self.differences.iter().map(|change| format!("not restored: {change}")));
        faults
    }
}

impl LifecycleEvent {
    /// Returns the expected exit status of the gateway or of `wideload restart`; `None` if neither ends.
    fn exit(self) -> Option<&'static str> {
        match self {
            LifecycleEvent::Reload | LifecycleEvent::KillWorker => None,
            LifecycleEvent::BadProgram => Some("1"),
            LifecycleEvent::BadConfiguration => Some("2"),
            LifecycleEvent::KillSupervisor | LifecycleEvent::KillBoth => Some("signal 9"),
            _ => Some("0"),
        }
    }
}

impl From<Difference> for Change {
    fn from(difference: Difference) -> Change {
        let Difference { item, before, after } = difference;
        Change { item, before, after }
    }
}

fn longest(gaps: &[Duration]) -> f64 {
    gaps.iter().max().map_or(0.0, |gap| gap.as_secs_f64() * 1e3)
}

fn median(gaps: &[Duration]) -> f64 {
    super::Spread::of(gaps.iter().map(|gap| gap.as_secs_f64() * 1e3)).map_or(0.0, |spread| spread.median)
}

const ROLES: [Role; 3] = [Role::Border, Role::Router, Role::WideInterface];
const EVENTS: [LifecycleEvent; 10] = [
    LifecycleEvent::Stop,
    LifecycleEvent::Interrupt,
    LifecycleEvent::Drain,
    LifecycleEvent::Reload,
    LifecycleEvent::Restart,
    LifecycleEvent::BadProgram,
    LifecycleEvent::BadConfiguration,
    LifecycleEvent::KillWorker,
    LifecycleEvent::KillSupervisor,
    LifecycleEvent::KillBoth,
];
/// Longest allowed duration of an event. An ending border informs the hosts of a few connections in much less time.
const TOOK_MAX: Duration = Duration::from_secs(3);
const OPEN_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest wait for stalled connections; longer than the pause before a sender's next retransmission.
const LATE_TIMEOUT: Duration = Duration::from_secs(15);
const FINISH_TIMEOUT: Duration = Duration::from_secs(15);
/// Time to wait for held segments, longer than any stage holds a segment.
const DRAIN: Duration = Duration::from_millis(100);
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);
const CLEANUP_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_passes_only_without_any_failure() {
        let right = right();
        assert_eq!(right.faults(false), Vec::<String>::new());
        let change =
            Change { item: "interface lan0 feature rx-gro".to_owned(), before: None, after: Some("on".to_owned()) };
        for (wrong, said) in [
            (LifecycleRow { exit: Some("1".to_owned()), ..right.clone() }, "exit status 1, expected 0"),
            (LifecycleRow { exit: None, ..right.clone() }, "exit status none, expected 0"),
            (LifecycleRow { took_ms: 5_100.0, ..right.clone() }, "it took 5.1 s"),
            (LifecycleRow { reset: 1, timed_out: 2, ..right.clone() }, "3 of 50 flows broke"),
            (LifecycleRow { stalled: 1, ..right.clone() }, "1 of 50 flows stalled"),
            (LifecycleRow { wrong_bytes: 7, ..right.clone() }, "7 bytes arrived changed"),
            (
                LifecycleRow { changed_while_running: 0, ..right.clone() },
                "the host's state did not differ while the gateway ran: the check sees nothing",
            ),
            (
                LifecycleRow { differences: vec![change], ..right.clone() },
                "not restored: interface lan0 feature rx-gro: absent before, on after",
            ),
        ] {
            assert_eq!(wrong.faults(false), [said]);
        }
        let killed = LifecycleRow {
            event: LifecycleEvent::KillBoth,
            exit: Some("signal 9".to_owned()),
            stalled: 25,
            ..right
        };
        assert_eq!(killed.faults(true), Vec::<String>::new());
        assert_eq!(killed.faults(false), ["25 of 50 flows stalled"]);
    }

    #[test]
    fn a_table_has_at_most_80_columns() {
        let change = Change { item: "route ".repeat(40), before: None, after: Some("there".repeat(40)) };
        let widest = LifecycleRow {
            event: LifecycleEvent::KillSupervisor,
            remedy: Some(Remedy::Undo),
            exit: Some("signal 9".to_owned()),
            stalled: 25,
            mended_by_hand: Some(25),
            longest_gap_ms: 15_000.0,
            median_gap_ms: 9_999.0,
            retransmitted: 99_999,
            left_behind: vec![change.clone()],
            differences: vec![change],
            ..right()
        };
        let alone = LifecycleRow { role: Role::WideInterface, remedy: Some(Remedy::Time), ..widest.clone() };
        let faults = widest.faults(true);
        let (conditions, rows) = (Conditions::here(1), vec![widest, alone]);
        let outcome = Lifecycle { conditions, stall_ms: 3_000.0, rows, faults, seconds: 171.0 };
        for line in outcome.to_string().lines().filter(|line| !line.starts_with("Linux")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    fn right() -> LifecycleRow {
        LifecycleRow {
            role: Role::Border,
            event: LifecycleEvent::Stop,
            remedy: None,
            exit: Some("0".to_owned()),
            took_ms: 200.0,
            flow_count: 50,
            stalled: 0,
            reset: 0,
            timed_out: 0,
            mended_by_hand: None,
            usual_gap_ms: 20.0,
            longest_gap_ms: 240.0,
            median_gap_ms: 230.0,
            retransmitted: 500,
            bytes: 1 << 20,
            wrong_bytes: 0,
            changed_while_running: 9,
            left_behind: Vec::new(),
            differences: Vec::new(),
        }
    }
}
