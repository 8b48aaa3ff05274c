//! A configuration's file in, a gateway that keeps running out: the process with rights, which touches no packet.
//!
//! The keeper opens what takes rights (ports, listeners, what the host gives up meanwhile), and keeps it. A worker process,
//! which has no rights, works on it; when that dies or hangs, another goes on with the same sockets, in which packets have waited.
//! A restart is the keeper becoming another program in the same process: the old worker process works on until its successor
//! stands, and leaves it what it holds.
//!
//! An AF_XDP port cannot be kept, as its memory is one process's own: each worker process opens it, so what comes between
//! two of them is lost there.

use crate::claims::Claims;
pub use crate::kept::VERSION;
use config::{Config, Fail, Problems, Role};

use crate::gro::Gro;
use crate::interface_watch::InterfaceWatch;
use crate::kept::{self, Doors, Estate, Inherited, KeptPort};
use crate::messages::{Begin, Done, Heard, ToKeeper, ToWorker, Wish, hear, say};
use crate::notify::{self, Notify};
use crate::own_addresses;
use crate::roles::Seized;
use crate::service::{may_reload, stays};
use crate::trial;
use crate::voice::Voice;
use gateway::orders::Farewell;
use gateway::worker::FAREWELL_PATIENCE;
use linux::descriptors::{self, Signals, Stay};
use offload::pulse::{Pulse, Watched};
use port::Offloads;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The process that keeps a gateway running.
#[derive(Debug)]
pub struct Keeper {
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
    ports: Vec<KeptPort>,
    doors: Doors,
    seized: Option<Seized>,
    /// The interfaces at which GRO was switched on.
    gro: Gro,
    /// Where workers say that they work, and what has packets pass without them: where the configuration says so.
    pulse: Option<Arc<Pulse>>,
    watched: Vec<Watched>,
    /// What the program before this one had seized, where it could not be seized again.
    left: Option<Inherited>,
    worker: Option<Child>,
    heir: Option<Heir>,
    /// When worker processes died.
    deaths: VecDeque<Instant>,
    /// No other is started before.
    pauses_until: Instant,
    is_careful: bool,
    /// What a worker process is trying to go on with, and the number under which one that it serves waits for the outcome.
    reload: Option<(String, Config, Waiter)>,
    /// Who waits for the outcome of a restart.
    awaited: Waiter,
    /// What is to be done, and who waits for the outcome.
    wanted: VecDeque<(Wish, Waiter)>,
    interfaces: InterfaceWatch,
}

/// The number of a wish whose outcome somebody waits for whom the worker process serves.
type Waiter = Option<u64>;

/// A worker process.
#[derive(Debug)]
struct Child {
    pid: Pid,
    process: OwnedFd,
    socket: OwnedFd,
    /// It has prepared all.
    is_ready: bool,
    /// It works.
    beats: bool,
    /// When it last spoke, or began.
    heard_at: Instant,
}

/// A worker process that comes up while another works, and the pipe by which it inherits.
#[derive(Debug)]
struct Heir {
    child: Child,
    pipe: Option<OwnedFd>,
}

/// How a look at a worker process ended.
#[derive(Debug)]
enum State {
    Lives,
    /// In this manner.
    Died(String),
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
    let estate = Estate::find()?;
    let signals = Signals::take(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR2])?;
    let mut keeper = match estate {
        Some((estate, inherited)) => Keeper::succeed(path, estate, inherited, signals)?,
        None => Keeper::start(path, signals)?,
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

/// Coming up.
impl Keeper {
    fn start(path: &Path, signals: Signals) -> Result<Keeper, Failure> {
        let (text, config) = read(path).map_err(Failure::Config)?;
        let doors = Doors::open(&config)?;
        let mut claims = Claims::default();
        let (unseen, claimed) = claims.renew(&config);
        claimed?;
        let (trusted, doubts) = match trial::try_offloads(&config) {
            Ok(proofs) => (proofs.each_ref().map(|proof| proof.offloads), trial::doubts(&proofs)),
            Err(error) => {
                let said = format!("what the kernel could do is done here, for it cannot be tried: {error}");
                ([Offloads::default(); 2], Some(said))
            }
        };
        let ports = KeptPort::open_all(&config, trusted)?;
        let mut keeper = Keeper::new(path, text, config, signals, ports, doors)?;
        keeper.claims = claims;
        keeper.warn();
        unseen.iter().chain(&doubts).for_each(|doubt| keeper.say(doubt));
        keeper.suit_gro();
        if keeper.config.fail == Fail::Open || keeper.config.is_beside_kernel() {
            keeper.pulse = Some(Arc::new(Pulse::new(keeper.config.workers)?));
        }
        keeper.seized = Some(Seized::start(&keeper.config, keeper.pulse.clone(), Vec::new())?);
        keeper.watch()?;
        keeper.worker = Some(keeper.spawn(None)?);
        match keeper.first_beat() {
            Ok(()) => Ok(keeper),
            Err(error) => {
                keeper.end();
                Err(error.into())
            }
        }
    }

    /// Takes the place of the program before this one.
    fn succeed(path: &Path, estate: Estate, mut inherited: Inherited, signals: Signals) -> Result<Keeper, Failure> {
        let before = Config::parse(&estate.text, &path.to_string_lossy());
        let (text, config) = match (read(path), before) {
            (Ok(fresh), Ok(before)) if stays(&before, &fresh.1).is_ok() => fresh,
            (_, Ok(before)) => (estate.text.clone(), before),
            // What was right to the program before may be wrong to this one.
            (fresh, Err(_)) => fresh.map_err(Failure::Config)?,
        };
        let ports = inherited.ports(&estate.ports)?;
        let doors = inherited.doors(&estate)?;
        let mut keeper = Keeper::new(path, text, config, signals, ports, doors)?;
        keeper.suit_doors(&estate.text);
        if keeper.text != estate.text {
            keeper.warn();
        }
        (keeper.awaited, keeper.wanted) = (estate.awaited, estate.wanted);
        keeper.claims = inherited.claims(&estate.claims);
        // A program that claimed nothing is not ended by who does.
        if let Err(error) = keeper.claim() {
            keeper.say(&error.to_string());
        }
        if let Some((pid, process, socket)) = estate.worker {
            keeper.worker = Some(Child::adopt(pid, inherited.take(process)?, inherited.take(socket)?)?);
        }
        if let Some(number) = estate.pulse {
            keeper.pulse = Some(Arc::new(Pulse::adopt(inherited.take(number)?, keeper.config.workers)?));
        }
        keeper.suit_gro();
        // What the program before had seized goes with the rest of what it left, once the same is seized here.
        let before = inherited.links(&estate.links);
        match Seized::start(&keeper.config, keeper.pulse.clone(), before) {
            Ok(seized) => keeper.seized = Some(seized),
            Err(error) => {
                keeper.say(&error.to_string());
                // Beside a kernel, routes without programs would lead nowhere.
                keeper.left = (!keeper.config.is_beside_kernel()).then_some(inherited);
            }
        }
        keeper.set_targets();
        if let Err(error) = keeper.watch() {
            keeper.say(&format!("while no worker works, nothing passes: {error}"));
        }
        keeper.bring_up_heir();
        Ok(keeper)
    }

    /// Listens where the configuration says. Where that cannot be any more, goes on by the configuration before.
    fn suit_doors(&mut self, text_before: &str) {
        let Err(error) = self.doors.suit(&self.config) else { return };
        match Config::parse(text_before, &self.path.to_string_lossy()) {
            Ok(before) => {
                self.say(&format!("goes on by the configuration before: {error}"));
                let own_addresses = self.config.own_addresses;
                (self.text, self.config) = (text_before.to_owned(), Config { own_addresses, ..before });
            }
            Err(_) => self.say(&format!("goes on without it: {error}")),
        }
    }

    fn new(
        path: &Path,
        text: String,
        mut config: Config,
        signals: Signals,
        ports: Vec<KeptPort>,
        doors: Doors,
    ) -> io::Result<Keeper> {
        let path = path::absolute(path)?;
        own_addresses::find(&mut config);
        let (program, notify) = (std::env::current_exe()?, Notify::from_environment());
        Ok(Keeper {
            path,
            text,
            config,
            program,
            signals,
            notify,
            voice: Voice::standard_error(),
            claims: Claims::default(),
            ports,
            doors,
            seized: None,
            gro: Gro::recorded(),
            pulse: None,
            watched: Vec::new(),
            left: None,
            worker: None,
            heir: None,
            deaths: VecDeque::new(),
            pauses_until: Instant::now(),
            is_careful: false,
            reload: None,
            awaited: None,
            wanted: VecDeque::new(),
            interfaces: InterfaceWatch::default(),
        })
    }

    /// Has no other gateway serve the interfaces that are there.
    fn claim(&mut self) -> io::Result<()> {
        let (doubts, claimed) = self.claims.renew(&self.config);
        doubts.iter().for_each(|doubt| self.say(doubt));
        claimed
    }

    /// Has GRO on at the interfaces where the configuration says so.
    fn suit_gro(&mut self) {
        self.gro.suit(&self.config).iter().for_each(|doubt| self.say(doubt));
    }

    /// Waits until the first worker process works.
    fn first_beat(&mut self) -> io::Result<()> {
        let until = Instant::now() + START_PATIENCE;
        while let Some(mut child) = self.worker.take() {
            self.wait(&[child.process.as_fd(), child.socket.as_fd()]);
            let state = self.attend(&mut child);
            let beats = child.beats;
            self.worker = Some(child);
            match state {
                State::Died(how) => {
                    self.worker = None;
                    return Err(io::Error::other(format!("the worker process did not begin: {how}")));
                }
                State::Lives if beats => break,
                State::Lives if Instant::now() > until => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the worker process does not begin"));
                }
                State::Lives => {}
            }
        }
        self.notify.ready();
        self.say("works");
        Ok(())
    }

    /// Starts a worker process of this program, which inherits by this pipe.
    fn spawn(&self, pipe: Option<&OwnedFd>) -> io::Result<Child> {
        let [ours, theirs] = descriptors::pair()?;
        let said =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot start a worker process: {error}"));
        let child = Command::new(OWN_PROGRAM)
            .arg0("wideload")
            .arg(WORK)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            // What a terminal sends to all of a group is for the keeper.
            .process_group(0)
            .env_remove(notify::SOCKET)
            .env_remove(kept::VARIABLE)
            // It may open no file to read one from.
            .env("RUST_BACKTRACE", "0")
            .spawn()
            .map_err(said)?;
        let child = Child::new(child.id() as i32, ours)?;
        let begin = ToWorker::Begin(Begin {
            file: self.path.to_string_lossy().into_owned(),
            text: self.text.clone(),
            is_careful: self.is_careful,
            ports: self.ports.iter().map(|port| port.told.clone()).collect(),
            has_control: true,
            has_metrics: self.doors.metrics.is_some(),
            has_pulse: self.pulse.is_some(),
            has_heritage: pipe.is_some(),
            own_addresses: self.config.own_addresses,
        });
        let mut descriptors = kept::handed(&self.ports, &self.doors, self.pulse.as_deref());
        descriptors.extend(pipe.map(AsFd::as_fd));
        match say(&child.socket, &begin, &descriptors) {
            Ok(()) => Ok(child),
            Err(error) => {
                child.kill();
                Err(said(error))
            }
        }
    }

    /// Starts another worker process beside the one that works, which goes on until the other stands.
    fn bring_up_heir(&mut self) {
        let heir = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(|(read, write)| Ok(Heir { child: self.spawn(Some(&read))?, pipe: Some(write) }));
        match heir {
            Ok(heir) => self.heir = Some(heir),
            Err(error) => {
                let said = format!("the restart is given up, all goes on as it was: {error}");
                self.say(&said);
                self.answer_restart(Err(said));
            }
        }
    }

    /// Tells who waits for the outcome of a restart.
    fn answer_restart(&mut self, said: Result<String, String>) {
        let waiter = self.awaited.take();
        self.answer(waiter, said);
    }
}

/// Keeping it running.
impl Keeper {
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
            if let Some(trouble) = self.seized.as_ref().and_then(Seized::trouble) {
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

    /// Hears what a worker process says, and looks whether it lives.
    fn attend(&mut self, child: &mut Child) -> State {
        loop {
            match hear(&child.socket) {
                Ok(Heard::Said(said, _)) => self.hear(child, said),
                Ok(Heard::Nothing) => break,
                Ok(Heard::Gone) => break,
                Err(error) => {
                    child.kill();
                    return State::Died(format!("spoke nonsense and was ended: {error}"));
                }
            }
        }
        child.state()
    }

    fn hear(&mut self, child: &mut Child, said: ToKeeper) {
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
        }
        child.heard_at = Instant::now();
    }

    /// Opens the ports of an end anew where their interface is another one than it was, and hands them over. Who asks by the
    /// number of an older interface has not been handed what is open already.
    fn reopen(&mut self, end: usize, index: Option<u32>, child: &Child) {
        let Some(first) = self.ports.get(end).filter(|_| end < SIDE_COUNT) else { return };
        let is_kept = !first.descriptors.is_empty();
        let ports = match first.open_again(&self.config, end) {
            Ok(None) if is_kept && index != first.told.index => Ok(()),
            Ok(None) => return,
            Ok(Some(ports)) => self.take_up(end, ports),
            Err(error) => Err(error),
        };
        if !is_kept && ports.is_ok() {
            // Its ports are opened by who works on them, with rights that this one has given up.
            if self.heir.is_none() {
                self.bring_up_heir();
            }
            return;
        }
        let of_end = || self.ports.iter().skip(end).step_by(SIDE_COUNT);
        let descriptors: Vec<_> = of_end().flat_map(|port| &port.descriptors).map(AsFd::as_fd).collect();
        let ports = ports.map(|()| of_end().map(|port| port.told.clone()).collect());
        let handed = if ports.is_ok() { &descriptors[..] } else { &[] };
        let said = ToWorker::Reopened { end, ports: ports.map_err(|error| error.to_string()) };
        // Who does not listen asks again.
        let _ = say(&child.socket, &said, handed);
    }

    /// Keeps these ports of an end, and has the host give up for them what it gave up for those before.
    fn take_up(&mut self, end: usize, ports: Vec<KeptPort>) -> io::Result<()> {
        // First, so that it is tried again with the ports where it fails.
        self.claim()?;
        match &mut self.seized {
            Some(seized) => seized.renew(&self.config)?,
            None => self.seized = Some(Seized::start(&self.config, self.pulse.clone(), Vec::new())?),
        }
        self.suit_gro();
        for (place, port) in self.ports.iter_mut().skip(end).step_by(SIDE_COUNT).zip(ports) {
            *place = port;
        }
        self.set_targets();
        if let Err(error) = self.watch() {
            self.say(&format!("packets do not pass without workers: {error}"));
        }
        Ok(())
    }

    /// Has flows that the kernel passes on leave by the interfaces that the ports are on; [`Keeper::watch`] does so
    /// where packets are to pass without workers.
    fn set_targets(&self) {
        if self.pulse.is_some() || self.config.role != Role::Border {
            return;
        }
        if let Err(error) = kept::set_targets(&self.ports) {
            self.say(&format!("flows are not offloaded to an interface that is new: {error}"));
        }
    }

    /// Has packets pass without workers where they are silent, if it is to be so: in front of what keeps them from the host.
    fn watch(&mut self) -> io::Result<()> {
        if let Some(pulse) = self.pulse.as_ref().filter(|_| self.config.role == Role::Border) {
            self.watched = kept::watch(&self.ports, pulse)?;
        }
        Ok(())
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

/// Another configuration.
impl Keeper {
    /// Reads the file anew and has the worker process go on by it. Where it is wrong, all goes on as it was.
    fn reload(&mut self, waiter: Waiter) {
        self.notify.reloading();
        if let Err(error) = self.begin_reload(waiter) {
            self.say(&format!("not reloaded, all goes on as it was: {error}"));
            self.notify.ready();
            self.answer(waiter, Err(error));
        }
    }

    fn begin_reload(&mut self, waiter: Waiter) -> Result<(), String> {
        let (text, mut config) = read(&self.path).map_err(|problems| problems.to_string())?;
        own_addresses::find(&mut config);
        may_reload(&self.config, &config).map_err(|error| error.to_string())?;
        let worker = self.worker.as_ref().ok_or("no worker process is there; try again")?;
        say(&worker.socket, &ToWorker::Reload(text.clone(), config.own_addresses), &[])
            .map_err(|error| error.to_string())?;
        self.reload = Some((text, config, waiter));
        Ok(())
    }

    fn reloaded(&mut self, outcome: Result<(), String>, child: &Child) {
        let Some((text, config, waiter)) = self.reload.take() else { return };
        match &outcome {
            Ok(()) => {
                (self.text, self.config, self.is_careful) = (text, config, false);
                self.deaths.clear();
                self.warn();
                if let Some(Err(error)) = self.seized.as_mut().map(|seized| seized.suit(&self.config)) {
                    self.say(&format!("the kernel still goes by the configuration before: {error}"));
                }
                self.suit_gro();
                self.say("reloaded");
            }
            Err(error) => self.say(&format!("not reloaded, all goes on as it was: {error}")),
        }
        self.notify.ready();
        self.answer_by(child, waiter, outcome.map(|()| "reloaded".to_owned()));
    }
}

/// Another program.
impl Keeper {
    /// Becomes the program that stands at the same path, which takes over all that is open. Where that program or the
    /// configuration is no good, all goes on as it was.
    fn restart(&mut self, waiter: Waiter) {
        self.awaited = waiter;
        if let Err(error) = self.check_restart().and_then(|()| self.become_successor()) {
            self.say(&format!("not restarted, all goes on as it was: {error}"));
            self.answer_restart(Err(format!("not restarted, all goes on as it was: {error}")));
        }
    }

    fn check_restart(&self) -> Result<(), String> {
        let (_, config) = read(&self.path).map_err(|problems| problems.to_string())?;
        stays(&self.config, &config).map_err(|error| error.to_string())?;
        self.doors.could_suit(&config).map_err(|error| error.to_string())?;
        self.try_program()
    }

    /// Has the program say that it knows what it would be left, and the configuration.
    fn try_program(&self) -> Result<(), String> {
        let program = self.program.display();
        let mut trial = Command::new(&self.program)
            .args(["run", "--check", "--after", &kept::VERSION.to_string()])
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_remove(notify::SOCKET)
            .env_remove(kept::VARIABLE)
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let until = Instant::now() + START_PATIENCE;
        loop {
            match trial.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{program} does not take over: {status}")),
                Ok(None) if Instant::now() < until => std::thread::sleep(TRIAL_LOOK),
                Ok(None) | Err(_) => {
                    let _ = trial.kill();
                    let _ = trial.wait();
                    return Err(format!("{program} does not say within {START_PATIENCE:?} that it takes over"));
                }
            }
        }
    }

    /// Returns only where it cannot be.
    fn become_successor(&self) -> Result<(), String> {
        let open = |worker: &Child| {
            (
                worker.pid.as_raw_nonzero().get(),
                descriptors::number(&worker.process),
                descriptors::number(&worker.socket),
            )
        };
        let metrics = self.doors.metrics.as_ref();
        let estate = Estate {
            version: kept::VERSION,
            process: process::id(),
            text: self.text.clone(),
            ports: kept::numbers(&self.ports),
            control: (self.doors.control.path().to_owned(), descriptors::number(self.doors.control.listener())),
            control_file: Some(self.doors.control.identity()),
            metrics: metrics.map(|(address, listener)| (*address, descriptors::number(listener))),
            pulse: self.pulse.as_ref().map(|pulse| descriptors::number(pulse.fd())),
            worker: self.worker.as_ref().map(open),
            claims: self.claims.numbers(),
            links: self.seized.as_ref().map(Seized::links).unwrap_or_default(),
            awaited: self.awaited,
            wanted: self.wanted.clone(),
        };
        let (_memory, number) = estate.leave().map_err(|error| error.to_string())?;
        let mut variables: Vec<(OsString, OsString)> =
            std::env::vars_os().filter(|(name, _)| name != kept::VARIABLE).collect();
        variables.push((kept::VARIABLE.into(), number.into()));
        let variables: Vec<(&OsStr, &OsStr)> =
            variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
        let arguments = [OsStr::new("run"), self.path.as_os_str()];
        let error = descriptors::become_program(self.program.as_os_str(), &arguments, &variables);
        descriptors::stay_all(Stay::InThisProgram).map_err(|error| error.to_string())?;
        Err(error.to_string())
    }

    /// An heir that stands gets what the other holds, and works; one that does not come up is given up.
    fn look_at_heir(&mut self) {
        let Some(mut heir) = self.heir.take() else { return };
        let state = self.attend(&mut heir.child);
        if let State::Died(how) = state {
            return self.give_up_heir(&how);
        }
        let has_begun = heir.pipe.is_none();
        if has_begun && self.worker.is_none() && heir.child.beats {
            self.worker = Some(heir.child);
            self.notify.ready();
            self.say("restarted");
            return;
        }
        if heir.child.is_ready
            && let Some(pipe) = heir.pipe.take()
        {
            // Before it hands over, for then it answers no more.
            self.answer_restart(Ok("it hands over to the next".to_owned()));
            self.wanted.iter_mut().for_each(|(_, waiter)| *waiter = None);
            if let Some(pulse) = &self.pulse {
                // What comes meanwhile waits: pieces of one datagram meet.
                pulse.excuse(HAND_OVER_PATIENCE);
            }
            if let Some(worker) = &mut self.worker {
                worker.heard_at = Instant::now();
                // One that does not listen is ended when its patience is.
                let _ = say(&worker.socket, &ToWorker::HandOver, &[pipe.as_fd()]);
            }
        } else if heir.child.heard_at.elapsed() > START_PATIENCE {
            heir.child.kill();
            return self.give_up_heir("did not come up in time, and was ended");
        }
        self.heir = Some(heir);
    }

    fn give_up_heir(&mut self, how: &str) {
        let then = if self.worker.is_some() { "all goes on as it was" } else { "another goes on" };
        let said = format!("the restart is given up, {then}: the new worker process {how}");
        self.say(&said);
        self.answer_restart(Err(said));
        self.notify.ready();
    }
}

/// The end.
impl Keeper {
    /// Has the worker process let go of what it holds; with what is dropped here goes what was changed.
    fn end(mut self) {
        self.notify.stopping();
        if let Some(seized) = &self.seized {
            seized.stop_taking();
        }
        match self.heir.take() {
            Some(heir) if heir.pipe.is_some() => heir.child.kill(),
            Some(heir) => self.let_go(heir.child),
            None => {}
        }
        if let Some(worker) = self.worker.take() {
            self.let_go(worker);
        }
    }

    fn let_go(&mut self, mut child: Child) {
        // One that does not listen is ended when its patience is.
        let _ = say(&child.socket, &ToWorker::Finish, &[]);
        let until = Instant::now() + FAREWELL_PATIENCE + DRAIN_PATIENCE;
        while let State::Lives = self.attend(&mut child) {
            if Instant::now() > until {
                child.kill();
                return self.say("the worker process did not end by itself; what it held is lost");
            }
            let mut fds = [PollFd::from_borrowed_fd(child.process.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&LOOK));
        }
        // What it said last.
        let _ = self.attend(&mut child);
    }
}

/// What is said of hosts that were told, where there are any.
impl Keeper {
    fn say_farewell(&self, farewell: Farewell) {
        let Farewell { told, untold, forgotten } = farewell;
        let mtu = self.config.narrow.mtu;
        let of = |count: u64| format!("{count} connection{}", if count == 1 { "" } else { "s" });
        if told > 0 {
            self.say(&format!(
                "told the wide hosts of {} that packets of at most {mtu} bytes pass from here on",
                of(told)
            ));
        }
        if untold + forgotten > 0 {
            let all = of(untold + forgotten);
            self.say(&format!(
                "{all} may hang, as their wide hosts could not be told: {untold} not reached, {forgotten} forgotten"
            ));
        }
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    End,
}

impl Child {
    fn new(pid: i32, socket: OwnedFd) -> io::Result<Child> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Child { pid, process, socket, is_ready: false, beats: false, heard_at: Instant::now() })
    }

    /// One that the program before this one started.
    fn adopt(pid: i32, process: OwnedFd, socket: OwnedFd) -> io::Result<Child> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Child { pid, process, socket, is_ready: true, beats: true, heard_at: Instant::now() })
    }

    fn state(&self) -> State {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match waitid(WaitId::PidFd(self.process.as_fd()), options) {
            Ok(None) | Err(Errno::INTR) => State::Lives,
            Ok(Some(status)) => State::Died(manner(&status)),
            Err(error) => State::Died(format!("is gone: {}", io::Error::from(error))),
        }
    }

    /// Ends it at once, whatever it does.
    fn kill(&self) {
        // One that has ended needs no end.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
    }
}

fn manner(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => ENDED.to_owned(),
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "is gone".to_owned(),
    }
}

/// How a worker process ends by itself.
const ENDED: &str = "ended";
/// The argument that makes this program a worker process.
pub const WORK: &str = "work";
/// The program of this process, also where its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// How often everything is looked at, at least.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// A look that comes later says that this process stood still.
const LATE: Duration = Duration::from_millis(500);
/// How long a worker process may say nothing: ten of its beats.
const HANG_PATIENCE: Duration = Duration::from_secs(1);
/// How long one may take to begin, or a program to say that it takes over.
const START_PATIENCE: Duration = Duration::from_secs(2);
/// How long one may take to let go of what it holds.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// How long packets wait between two workers where one hands over.
const HAND_OVER_PATIENCE: Duration = Duration::from_millis(500);
/// After so many deaths, within so long, the next one joins nothing.
const DEATHS_MAX: usize = 3;
const DEATHS_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait after one that did not begin to work.
const PAUSE: Duration = Duration::from_millis(500);
/// Ends of a worker, whose ports are kept one after the other.
const SIDE_COUNT: usize = 2;
/// Wishes that are heard at once.
const WISHES_MAX: usize = 16;
const TRIAL_LOOK: Duration = Duration::from_millis(2);
