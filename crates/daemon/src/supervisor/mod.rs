//! A configuration's file in, a gateway that keeps running out: the process with rights, which touches no packet.
//!
//! The keeper opens what takes rights (ports, listeners, what the host gives up meanwhile), and keeps it. A worker
//! process, which has no rights, works on it; when that dies or hangs, another goes on with the same sockets, in
//! which packets have waited. A restart is the keeper becoming another program in the same process: the old worker
//! process works on until its successor stands, and leaves it what it holds.
//!
//! An AF_XDP port cannot be kept, as its memory is one process's own: each worker process opens it, so what comes
//! between two of them is lost there.

mod child;
mod end;
mod ports;
mod reload;
mod restart;
mod start;

use crate::claims::Claims;
pub use crate::fd_store::VERSION;
use crate::fd_store::{self, Doors, InheritedFds, RestartState, StoredPort};
use crate::gro::Gro;
use crate::interface_watch::InterfaceWatch;
use crate::messages::{Begin, Done, Heard, ToKeeper, ToWorker, Wish, receive, say};
use crate::notify::Notify;
use crate::own_addresses;
use crate::roles::HostChanges;
use crate::stderr_log::Voice;
pub use child::WORK;
use child::{Child, ENDED, State};
use config::{Config, Problems};
use gateway::snapshot::Losses;
use linux::descriptors::Signals;
use offload::heartbeat::{FailOpen, Heartbeat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The process that keeps a gateway running.
#[derive(Debug)]
pub struct Supervisor {
    /// The configuration's file, and what stood in it.
    path: PathBuf,
    text: String,
    config: Config,
    /// The program that a restart becomes.
    program: PathBuf,
    signals: Signals,
    notify: Notify,
    voice: Voice,
    /// The interfaces that no other gateway may serve.
    claims: Claims,
    ports: Vec<StoredPort>,
    doors: Doors,
    seized: Option<HostChanges>,
    /// The interfaces at which GRO was switched on.
    gro: Gro,
    /// Where workers say that they work, and what has packets pass without them: where the configuration says so.
    pulse: Option<Arc<Heartbeat>>,
    watched: Vec<FailOpen>,
    /// What the program before this one had seized, where it could not be seized again.
    left: Option<InheritedFds>,
    worker: Option<Child>,
    heir: Option<Successor>,
    /// When worker processes died.
    deaths: VecDeque<Instant>,
    /// No other is started before.
    pauses_until: Instant,
    is_careful: bool,
    /// What a worker process is trying to go on with, and the number under which one that it serves waits for the
    /// outcome.
    reload: Option<(String, Config, Waiter)>,
    /// Who waits for the outcome of a restart.
    awaited: Waiter,
    /// What is to be done, and who waits for the outcome.
    wanted: VecDeque<(Wish, Waiter)>,
    interfaces: InterfaceWatch,
    /// What worker processes lost so far.
    losses: Losses,
}

/// The number of a wish whose outcome somebody waits for whom the worker process serves.
type Waiter = Option<u64>;

/// A worker process that comes up while another works, and the pipe by which it inherits.
#[derive(Debug)]
struct Successor {
    child: Child,
    pipe: Option<OwnedFd>,
}

/// What is wrong before a gateway runs.
#[derive(Debug)]
pub enum Failure {
    /// The configuration.
    Config(Problems),
    /// Its surroundings.
    Surroundings(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Surroundings(error)
    }
}

/// Keeps a gateway running as the file says, until it is told to end.
///
/// # Errors
/// What is wrong with the file, or missing; what was changed is put back.
pub fn run(path: &Path) -> Result<(), Failure> {
    let estate = RestartState::find()?;
    let signals = Signals::take(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR2])?;
    let mut keeper = match estate {
        Some((estate, inherited)) => Supervisor::succeed(path, estate, inherited, signals)?,
        None => Supervisor::start(path, signals)?,
    };
    keeper.keep();
    keeper.end();
    Ok(())
}

/// What a file says, and its configuration, without anything being opened.
///
/// # Errors
/// What is wrong with it.
pub fn read(path: &Path) -> Result<(String, Config), Problems> {
    let text = Config::text(path)?;
    let config = Config::parse(&text, &path.to_string_lossy())?;
    Ok((text, config))
}

impl Supervisor {
    /// Until it is told to end.
    fn keep(&mut self) {
        let mut looked_at = Instant::now();
        loop {
            let children = [self.worker.as_ref(), self.heir.as_ref().map(|heir| &heir.child)];
            let children = children.into_iter().flatten();
            let fds: Vec<_> = children.flat_map(|child| [child.process.as_fd(), child.socket.as_fd()]).collect();
            self.wait(&fds);
            if looked_at.elapsed() > LATE {
                // It was this process that stood still.
                self.excuse();
            }
            looked_at = Instant::now();
            while let Some(signal) = self.signals.next() {
                match signal {
                    libc::SIGHUP => self.wanted.push_back((Wish::Reload, None)),
                    libc::SIGUSR2 => self.wanted.push_back((Wish::Restart, None)),
                    _ => return,
                }
            }
            self.look_at_worker();
            self.look_at_heir();
            self.interfaces.news(&self.config).iter().for_each(|news| self.say(news));
            if let Some(trouble) = self.seized.as_ref().and_then(HostChanges::trouble) {
                self.say(&trouble);
            }
            if self.fulfil() == Go::End {
                return;
            }
        }
    }

    /// Fulfils the wish that has waited longest, once nothing else is under way.
    fn fulfil(&mut self) -> Go {
        let is_settled = self.heir.is_none() && self.reload.is_none();
        if !is_settled || !self.worker.as_ref().is_some_and(|worker| worker.beats) {
            return Go::On;
        }
        match self.wanted.pop_front() {
            None => {}
            Some((Wish::Reload, waiter)) => self.reload(waiter),
            Some((Wish::Restart, waiter)) => self.restart(waiter),
            Some((Wish::Stop, waiter)) => {
                self.answer(waiter, Ok("it ends".to_owned()));
                return Go::End;
            }
        }
        Go::On
    }

    fn wait(&self, others: &[BorrowedFd<'_>]) {
        let own = [self.signals.as_fd()];
        let mut fds: Vec<_> =
            own.iter().chain(others).map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        // However it ends, everything is looked at.
        let _ = poll(&mut fds, Some(&LOOK));
    }

    fn excuse(&mut self) {
        let children = [self.worker.as_mut(), self.heir.as_mut().map(|heir| &mut heir.child)];
        children.into_iter().flatten().for_each(|child| child.heard_at = Instant::now());
    }

    fn look_at_worker(&mut self) {
        let Some(mut child) = self.worker.take() else { return self.replace() };
        let state = self.attend(&mut child);
        let patience = if child.beats { HANG_PATIENCE } else { START_PATIENCE };
        match state {
            State::Lives if child.heard_at.elapsed() > patience => {
                child.kill();
                let ms = child.heard_at.elapsed().as_millis();
                self.mourn(&format!("hung, {ms} ms without a word, and was ended"), child.beats);
            }
            State::Lives => self.worker = Some(child),
            State::Died(how) => self.mourn(&how, child.beats),
        }
    }

    /// Hears what a worker process says, and looks whether it lives: first, so that of one that died the last word
    /// is heard.
    fn attend(&mut self, child: &mut Child) -> State {
        let state = child.state();
        loop {
            match receive(&child.socket) {
                Ok(Heard::Said(said, _)) => self.receive(child, said),
                Ok(Heard::Nothing) => break,
                Ok(Heard::Gone) => break,
                Err(error) => {
                    child.kill();
                    return State::Died(format!("spoke nonsense and was ended: {error}"));
                }
            }
        }
        state
    }

    fn receive(&mut self, child: &mut Child, said: ToKeeper) {
        match said {
            ToKeeper::Ready => child.is_ready = true,
            ToKeeper::Beat => {
                child.beats = true;
                self.notify.lives();
            }
            ToKeeper::Reloaded(outcome) => self.reloaded(outcome, child),
            ToKeeper::Reopen { end, index } => self.reopen(end, index, child),
            ToKeeper::Wish { number, wish } if self.wanted.len() < WISHES_MAX => {
                self.wanted.push_back((wish, Some(number)));
            }
            ToKeeper::Wish { number, .. } => {
                self.answer_by(child, Some(number), Err("too much is asked for at once; try again".to_owned()));
            }
            ToKeeper::Farewell(farewell) => self.say_farewell(farewell),
            ToKeeper::Lost(losses) => self.lose(losses),
        }
        child.heard_at = Instant::now();
    }

    /// Keeps count of what is lost with a worker process, for those after it to tell.
    fn lose(&mut self, losses: Losses) {
        self.losses += losses;
        let Losses { not_received: untaken, truncated: cut, panicked } = losses;
        for (count, how) in [
            (untaken, "that a worker was to hand over, and its successor did not take"),
            (cut, "that a worker handed over and that came cut"),
            (panicked, "that a worker had in hand when it panicked"),
        ] {
            if count > 0 {
                self.say(&format!("lost packets {how}: {count}"));
            }
        }
    }

    /// A worker process is gone, which had begun to work, or not.
    fn mourn(&mut self, how: &str, had_begun: bool) {
        // Whom it served is gone with it; once it has handed over, who waits is served by its successor.
        if self.heir.as_ref().is_none_or(|heir| heir.pipe.is_some()) {
            self.awaited = None;
            self.wanted.iter_mut().for_each(|(_, waiter)| *waiter = None);
        }
        if self.reload.take().is_some() {
            self.say("not reloaded, all goes on as it was: the worker process died over it");
            self.notify.ready();
        }
        if let Some(heir) = &mut self.heir {
            // Where nothing was left to it yet, it begins with nothing.
            let had_left = heir.pipe.take().is_none();
            if !had_left || how != ENDED {
                self.say(&format!("the worker process {how}; its successor goes on without what it held"));
            }
            return;
        }
        let now = Instant::now();
        self.deaths.push_back(now);
        while self.deaths.front().is_some_and(|death| now.duration_since(*death) > DEATHS_WITHIN) {
            self.deaths.pop_front();
        }
        let was_careful = self.is_careful;
        self.is_careful |= self.deaths.len() >= DEATHS_MAX;
        let after = if self.is_careful && !was_careful {
            ", the third time: the next one joins nothing until it is reloaded"
        } else {
            ""
        };
        self.say(&format!("the worker process {how}{after}; another goes on"));
        self.pauses_until = if had_begun { now } else { now + PAUSE };
        self.replace();
    }

    /// Starts a worker process, which inherits by this pipe.
    fn spawn(&self, pipe: Option<&OwnedFd>) -> io::Result<Child> {
        let begin = Begin {
            file: self.path.to_string_lossy().into_owned(),
            text: self.text.clone(),
            is_careful: self.is_careful,
            ports: self.ports.iter().map(|port| port.told.clone()).collect(),
            has_control: true,
            has_metrics: self.doors.metrics.is_some(),
            has_pulse: self.pulse.is_some(),
            has_heritage: pipe.is_some(),
            own_addresses: self.config.own_addresses,
            losses: self.losses,
        };
        let mut descriptors = fd_store::handed(&self.ports, &self.doors, self.pulse.as_deref());
        descriptors.extend(pipe.map(AsFd::as_fd));
        Child::spawn(begin, &descriptors)
    }

    /// Starts a worker process where there is none.
    fn replace(&mut self) {
        if self.heir.is_some() || Instant::now() < self.pauses_until {
            return;
        }
        match self.spawn(None) {
            Ok(child) => self.worker = Some(child),
            Err(error) => {
                self.say(&error.to_string());
                self.pauses_until = Instant::now() + PAUSE;
            }
        }
    }

    /// Says what is right and hardly meant in the configuration.
    fn warn(&self) {
        self.config.warnings.iter().for_each(|warning| self.say(&warning.to_string()));
        own_addresses::doubts(&self.config).iter().for_each(|doubt| self.say(doubt));
    }

    fn answer(&self, waiter: Waiter, said: Result<String, String>) {
        if let Some(worker) = &self.worker {
            self.answer_by(worker, waiter, said);
        }
    }

    /// Tells who waits, by the worker process that serves them.
    fn answer_by(&self, child: &Child, waiter: Waiter, said: Result<String, String>) {
        let Some(number) = waiter else { return };
        let outcome = said.map(|said| Done { said, control: self.doors.control.path().to_owned() });
        // Who asked waits no longer than its patience.
        let _ = say(&child.socket, &ToWorker::Said { number, outcome }, &[]);
    }

    /// Says a sentence to whoever reads what this process writes.
    fn say(&self, sentence: &str) {
        // Where nobody reads it, or the disk is full, packets pass all the same.
        self.voice.say(&format!("wideload {}: {sentence}", self.config.name));
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    End,
}

/// How often everything is looked at, at least.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// A look that comes later says that this process stood still.
const LATE: Duration = Duration::from_millis(500);
/// How long a worker process may say nothing: ten of its beats.
const HANG_PATIENCE: Duration = Duration::from_secs(1);
/// How long one may take to begin, or a program to say that it takes over.
const START_PATIENCE: Duration = Duration::from_secs(2);
/// After so many deaths, within so long, the next one joins nothing.
const DEATHS_MAX: usize = 3;
const DEATHS_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait after one that did not begin to work.
const PAUSE: Duration = Duration::from_millis(500);
/// Wishes that are heard at once.
const WISHES_MAX: usize = 16;
