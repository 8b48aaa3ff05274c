//! A configuration file -> a gateway that keeps running: the privileged process, which processes no packet itself.
//!
//! The supervisor opens and keeps all resources that need privileges: ports, listeners and changes to the host. A
//! worker process without privileges uses them. When a worker process dies or hangs, the next one continues with
//! the same sockets. In the meantime, packets wait in the sockets.
//!
//! A restart replaces the supervisor's program within the same process. The old worker process works until its
//! successor is ready. It then hands over its held packets.
//!
//! An AF_XDP port cannot be kept, as its memory belongs to one process. Each worker process opens its own AF_XDP
//! ports. Packets that arrive between two worker processes are lost.

mod child;
mod end;
mod ports;
mod reload;
mod restart;
mod start;

use crate::claims::Claims;
pub use crate::fd_store::VERSION;
use crate::fd_store::{self, InheritedFds, ListeningSockets, RestartState, StoredPort};
use crate::gro::Gro;
use crate::interface_watch::InterfaceWatch;
use crate::messages::{Begin, Done, Received, SupervisorRequest, ToSupervisor, ToWorker, receive, say};
use crate::notify::Notify;
use crate::own_addresses;
use crate::roles::HostChanges;
use crate::service::ROUTE_MTUS_MAX;
use crate::stderr_log::StderrLog;
pub use child::WORK;
use child::{Child, ENDED, State};
use config::{Config, Problems};
use engine::Toggle;
use gateway::snapshot::Losses;
use linux::descriptors::Signals;
use offload::heartbeat::{FailOpen, Heartbeat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The privileged process that keeps a gateway running.
#[derive(Debug)]
pub struct Supervisor {
    /// Path of the configuration file.
    path: PathBuf,
    text: String,
    config: Config,
    /// Path of the program that a restart executes.
    program: PathBuf,
    signals: Signals,
    notify: Notify,
    log: StderrLog,
    /// Claims on the interfaces, so that no other gateway serves them.
    claims: Claims,
    ports: Vec<StoredPort>,
    sockets: ListeningSockets,
    host_changes: Option<HostChanges>,
    /// The interfaces whose GRO was switched on.
    gro: Gro,
    /// The workers' heartbeat; `None` if no program in the kernel watches it.
    heartbeat: Option<Arc<Heartbeat>>,
    watched: Vec<FailOpen>,
    /// Descriptors of the predecessor's programs, which stay attached because new programs could not be attached;
    /// `None` otherwise.
    left: Option<InheritedFds>,
    worker: Option<Child>,
    successor: Option<Successor>,
    /// Times at which worker processes died, oldest first.
    deaths: VecDeque<Instant>,
    /// Time before which no other worker process is started.
    pauses_until: Instant,
    is_degraded: bool,
    /// The configuration that the worker process is adopting: its text, the configuration itself, and the client
    /// that waits. `None` if no reload is under way.
    reload: Option<(String, Config, Waiter)>,
    /// The client that waits for the result of a restart; `None` if there is none.
    awaited: Waiter,
    /// Requests to carry out, and the clients that wait for their results.
    wanted: VecDeque<(SupervisorRequest, Waiter)>,
    interfaces: InterfaceWatch,
    /// Losses of all worker processes so far.
    losses: Losses,
}

/// Number of a client's request; `None` if no client waits for the result.
type Waiter = Option<u64>;

/// A worker process that starts while another one works. `pipe` is the writing end of the pipe for held packets;
/// `None` from the hand-over on.
#[derive(Debug)]
struct Successor {
    child: Child,
    pipe: Option<OwnedFd>,
}

/// The reason why a gateway cannot start.
#[derive(Debug)]
pub enum Failure {
    /// Mistakes in the configuration.
    Config(Problems),
    /// A missing resource or privilege of the host.
    Surroundings(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Surroundings(error)
    }
}

/// Keeps a gateway running as configured in the file, until told to end.
///
/// # Errors
/// The file has a mistake, or a resource is missing. All changes to the host are reverted.
pub fn run(path: &Path) -> Result<(), Failure> {
    let restart_state = RestartState::find()?;
    let signals = Signals::take(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR2])?;
    let mut supervisor = match restart_state {
        Some((restart_state, inherited)) => Supervisor::succeed(path, restart_state, inherited, signals)?,
        None => Supervisor::start(path, signals)?,
    };
    supervisor.keep();
    supervisor.end();
    Ok(())
}

/// Reads a configuration file. Returns its text and the configuration. Opens no ports and no sockets.
///
/// # Errors
/// The mistakes in the file.
pub fn read(path: &Path) -> Result<(String, Config), Problems> {
    let text = Config::text(path)?;
    let config = Config::parse(&text, &path.to_string_lossy())?;
    Ok((text, config))
}

impl Supervisor {
    /// Runs until told to end.
    fn keep(&mut self) {
        let mut looked_at = Instant::now();
        loop {
            let children = [self.worker.as_ref(), self.successor.as_ref().map(|successor| &successor.child)];
            let children = children.into_iter().flatten();
            let fds: Vec<_> = children.flat_map(|child| [child.process.as_fd(), child.socket.as_fd()]).collect();
            self.wait(&fds);
            if looked_at.elapsed() > LATE {
                // This process itself was suspended, so the worker processes are not late.
                self.excuse();
            }
            looked_at = Instant::now();
            while let Some(signal) = self.signals.next() {
                match signal {
                    libc::SIGHUP => self.wanted.push_back((SupervisorRequest::Reload, None)),
                    libc::SIGUSR2 => self.wanted.push_back((SupervisorRequest::Restart, None)),
                    _ => return,
                }
            }
            self.look_at_worker();
            self.poll_successor();
            self.interfaces.new_mismatches(&self.config).iter().for_each(|news| self.say(news));
            if let Some(trouble) = self.host_changes.as_ref().and_then(HostChanges::trouble) {
                self.say(&trouble);
            }
            if self.fulfil() == Next::Exit {
                return;
            }
        }
    }

    /// Carries out the oldest request, unless a reload or restart is under way.
    fn fulfil(&mut self) -> Next {
        let is_settled = self.successor.is_none() && self.reload.is_none();
        if !is_settled || !self.worker.as_ref().is_some_and(|worker| worker.beats) {
            return Next::Continue;
        }
        match self.wanted.pop_front() {
            None => {}
            Some((SupervisorRequest::Reload, waiter)) => self.reload(waiter),
            Some((SupervisorRequest::Restart, waiter)) => self.restart(waiter),
            Some((SupervisorRequest::Stop, waiter)) => {
                self.answer(waiter, Ok("the gateway is stopping".to_owned()));
                return Next::Exit;
            }
        }
        Next::Continue
    }

    fn wait(&self, others: &[BorrowedFd<'_>]) {
        let own = [self.signals.as_fd()];
        let mut fds: Vec<_> =
            own.iter().chain(others).map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        // After an error, too, everything is checked.
        let _ = poll(&mut fds, Some(&LOOK));
    }

    fn excuse(&mut self) {
        let children = [self.worker.as_mut(), self.successor.as_mut().map(|successor| &mut successor.child)];
        children.into_iter().flatten().for_each(|child| child.heard_at = Instant::now());
    }

    fn look_at_worker(&mut self) {
        let Some(mut child) = self.worker.take() else { return self.replace() };
        let state = self.attend(&mut child);
        let timeout = if child.beats { HANG_TIMEOUT } else { START_TIMEOUT };
        match state {
            State::Lives if child.heard_at.elapsed() > timeout => {
                child.kill();
                let ms = child.heard_at.elapsed().as_millis();
                self.on_worker_death(&format!("hung, sent no message for {ms} ms, and was killed"), child.beats);
            }
            State::Lives => self.worker = Some(child),
            State::Died(how) => self.on_worker_death(&how, child.beats),
        }
    }

    /// Receives the messages of a worker process, and returns the process's state. The state is read first, as the
    /// last messages of a dead process still arrive.
    fn attend(&mut self, child: &mut Child) -> State {
        let state = child.state();
        loop {
            match receive(&child.socket) {
                Ok(Received::Said(said, _)) => self.receive(child, said),
                Ok(Received::Nothing) => break,
                Ok(Received::Gone) => break,
                Err(error) => {
                    child.kill();
                    return State::Died(format!("sent an invalid message and was killed: {error}"));
                }
            }
        }
        state
    }

    fn receive(&mut self, child: &mut Child, said: ToSupervisor) {
        match said {
            ToSupervisor::Ready => child.is_ready = true,
            ToSupervisor::Beat => {
                child.beats = true;
                self.notify.lives();
            }
            ToSupervisor::Reloaded(outcome) => self.reloaded(outcome, child),
            ToSupervisor::Reopen { end, index } => self.reopen(end, index, child),
            ToSupervisor::SupervisorRequest { number, request: wish } if self.wanted.len() < WISHES_MAX => {
                self.wanted.push_back((wish, Some(number)));
            }
            ToSupervisor::SupervisorRequest { number, .. } => {
                self.answer_by(child, Some(number), Err("too many requests are pending; try again".to_owned()));
            }
            ToSupervisor::ShutdownNotices(farewell) => self.say_farewell(farewell),
            ToSupervisor::RouteMtus(route_mtus) => self.set_route_mtus(route_mtus),
            ToSupervisor::Lost(losses) => self.lose(losses),
        }
        child.heard_at = Instant::now();
    }

    /// Sets the routes to these destinations, as far as the configuration allows: a worker process has no privileges.
    fn set_route_mtus(&self, mut route_mtus: Vec<(IpAddr, u16)>) {
        let narrow = &self.config.narrow;
        if narrow.route_mtu == Toggle::Off {
            route_mtus.clear();
        }
        route_mtus.truncate(ROUTE_MTUS_MAX);
        route_mtus.iter_mut().for_each(|(_, mtu)| *mtu = narrow.mtu.max(*mtu));
        if let Some(host_changes) = &self.host_changes {
            host_changes.set_route_mtus(route_mtus);
        }
    }

    /// Adds the losses of a worker process, which its successors report.
    fn lose(&mut self, losses: Losses) {
        self.losses += losses;
        let Losses { not_received: untaken, truncated: cut, panicked } = losses;
        for (count, how) in [
            (untaken, "that a worker handed over and its successor did not receive"),
            (cut, "that were truncated in the hand-over"),
            (panicked, "that a worker processed when it panicked"),
        ] {
            if count > 0 {
                self.say(&format!("dropped packets {how}: {count}"));
            }
        }
    }

    /// Handles the end of a worker process. `had_begun` tells whether it had begun to process packets.
    fn on_worker_death(&mut self, how: &str, had_begun: bool) {
        if self.successor.is_none() {
            // The next process knows no losses.
            self.set_route_mtus(Vec::new());
        }
        // Clients of the dead process get no answer any more. After a hand-over, the waiting clients are clients of
        // the successor.
        if self.successor.as_ref().is_none_or(|successor| successor.pipe.is_some()) {
            self.awaited = None;
            self.wanted.iter_mut().for_each(|(_, waiter)| *waiter = None);
        }
        if self.reload.take().is_some() {
            self.say("not reloaded, the gateway continues unchanged: the worker process died during the reload");
            self.notify.ready();
        }
        if let Some(successor) = &mut self.successor {
            // Before the hand-over, the successor starts without packets.
            let had_left = successor.pipe.take().is_none();
            if !had_left || how != ENDED {
                self.say(&format!(
                    "the worker process {how}; its successor continues without the packets that it held"
                ));
            }
            return;
        }
        let now = Instant::now();
        self.deaths.push_back(now);
        while self.deaths.front().is_some_and(|death| now.duration_since(*death) > DEATHS_WITHIN) {
            self.deaths.pop_front();
        }
        let was_careful = self.is_degraded;
        self.is_degraded |= self.deaths.len() >= DEATHS_MAX;
        let after = if self.is_degraded && !was_careful {
            ", the third time: the next one bypasses reassembly, merging and coalescing until a reload"
        } else {
            ""
        };
        self.say(&format!("the worker process {how}{after}; a new one starts"));
        self.pauses_until = if had_begun { now } else { now + PAUSE };
        self.replace();
    }

    /// Starts a worker process. If a pipe is given, the process reads handed-over packets from it.
    fn spawn(&self, pipe: Option<&OwnedFd>) -> io::Result<Child> {
        let begin = Begin {
            file: self.path.to_string_lossy().into_owned(),
            text: self.text.clone(),
            is_degraded: self.is_degraded,
            ports: self.ports.iter().map(|port| port.told.clone()).collect(),
            has_control: true,
            has_metrics: self.sockets.metrics.is_some(),
            has_heartbeat: self.heartbeat.is_some(),
            has_handoff: pipe.is_some(),
            own_addresses: self.config.own_addresses,
            losses: self.losses,
        };
        let mut descriptors = fd_store::handed(&self.ports, &self.sockets, self.heartbeat.as_deref());
        descriptors.extend(pipe.map(AsFd::as_fd));
        Child::spawn(begin, &descriptors)
    }

    /// Starts a worker process if there is none.
    fn replace(&mut self) {
        if self.successor.is_some() || Instant::now() < self.pauses_until {
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

    /// Prints the warnings about valid but probably unintended settings.
    fn warn(&self) {
        self.config.warnings.iter().for_each(|warning| self.say(&warning.to_string()));
        own_addresses::doubts(&self.config).iter().for_each(|doubt| self.say(doubt));
    }

    fn answer(&self, waiter: Waiter, said: Result<String, String>) {
        if let Some(worker) = &self.worker {
            self.answer_by(worker, waiter, said);
        }
    }

    /// Sends a result to a waiting client, by the worker process that serves the client.
    fn answer_by(&self, child: &Child, waiter: Waiter, said: Result<String, String>) {
        let Some(number) = waiter else { return };
        let outcome = said.map(|said| Done { said, control: self.sockets.control.path().to_owned() });
        // The client has its own time-out.
        let _ = say(&child.socket, &ToWorker::Said { number, outcome }, &[]);
    }

    /// Prints a sentence on standard error.
    fn say(&self, sentence: &str) {
        // The log never blocks: packets are forwarded even without a reader, or with a full disk.
        self.log.say(&format!("wideload {}: {sentence}", self.config.name));
    }
}

/// Whether the supervisor continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Continue,
    Exit,
}

/// Longest interval between two checks of all resources.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Delay of a check that shows that this process was suspended.
const LATE: Duration = Duration::from_millis(500);
/// Longest time without a message of a worker process before it counts as hanging: ten of its heartbeats.
const HANG_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for a worker process to start, or for a program to report that it can take over.
const START_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of deaths within [`DEATHS_WITHIN`] after which the next worker process starts without the stages that
/// hold packets.
const DEATHS_MAX: usize = 3;
const DEATHS_WITHIN: Duration = Duration::from_secs(10);
/// Pause after a worker process that died before it began to work.
const PAUSE: Duration = Duration::from_millis(500);
/// Largest number of requests that wait.
const WISHES_MAX: usize = 16;
