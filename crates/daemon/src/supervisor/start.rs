//! A configuration file -> a supervisor with a working worker process; or the successor of the program before.

use super::child::{Child, State};
use super::{Failure, START_PATIENCE, Supervisor, read};
use crate::claims::Claims;
use crate::fd_store::{Doors, InheritedFds, RestartState, StoredPort};
use crate::gro::Gro;
use crate::interface_watch::InterfaceWatch;
use crate::notify::Notify;
use crate::offload_probe;
use crate::own_addresses;
use crate::reopen;
use crate::roles::HostChanges;
use crate::service::stays;
use crate::stderr_log::Voice;
use config::{Config, Fail};
use gateway::snapshot::Losses;
use linux::descriptors::Signals;
use offload::heartbeat::Heartbeat;
use port::Offloads;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::{self, Path};
use std::sync::Arc;
use std::time::Instant;

impl Supervisor {
    pub(super) fn start(path: &Path, signals: Signals) -> Result<Supervisor, Failure> {
        let (text, config) = read(path).map_err(Failure::Config)?;
        let doors = Doors::open(&config)?;
        let mut claims = Claims::default();
        let (unseen, claimed) = claims.refresh(&config);
        claimed?;
        let (trusted, doubts) = match offload_probe::try_offloads(&config) {
            Ok(proofs) => (proofs.each_ref().map(|proof| proof.offloads), offload_probe::doubts(&proofs)),
            Err(error) => {
                let said = format!("what the kernel could do is done here, for it cannot be tried: {error}");
                ([Offloads::default(); 2], Some(said))
            }
        };
        let ports = StoredPort::open_all(&config, trusted)?;
        let mut keeper = Supervisor::new(path, text, config, signals, ports, doors)?;
        keeper.claims = claims;
        keeper.warn();
        unseen.iter().chain(&doubts).for_each(|doubt| keeper.say(doubt));
        keeper.say_offload_doubt(&keeper.ports);
        keeper.suit_gro();
        if keeper.config.fail == Fail::Open || keeper.config.is_beside_kernel() {
            keeper.pulse = Some(Arc::new(Heartbeat::new(keeper.config.workers)?));
        }
        keeper.seized = Some(HostChanges::start(&keeper.config, keeper.pulse.clone(), Vec::new())?);
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

    /// Takes over from the program before this one.
    pub(super) fn succeed(
        path: &Path,
        estate: RestartState,
        mut inherited: InheritedFds,
        signals: Signals,
    ) -> Result<Supervisor, Failure> {
        let before = Config::parse(&estate.text, &path.to_string_lossy());
        let (text, config) = match (read(path), before) {
            (Ok(fresh), Ok(before)) if stays(&before, &fresh.1).is_ok() => fresh,
            (_, Ok(before)) => (estate.text.clone(), before),
            // A configuration that the predecessor accepted may be invalid for this program.
            (fresh, Err(_)) => fresh.map_err(Failure::Config)?,
        };
        let ports = inherited.ports(&estate.ports)?;
        let doors = inherited.doors(&estate)?;
        let mut keeper = Supervisor::new(path, text, config, signals, ports, doors)?;
        keeper.suit_doors(&estate.text);
        if keeper.text != estate.text {
            keeper.warn();
        }
        (keeper.awaited, keeper.wanted) = (estate.awaited, estate.wanted);
        keeper.losses = estate.losses;
        keeper.claims = inherited.claims(&estate.claims);
        // A predecessor without claims must not be ended by another gateway that has them.
        if let Err(error) = keeper.claim() {
            keeper.say(&error.to_string());
        }
        if let Some((pid, process, socket)) = estate.worker {
            keeper.worker = Some(Child::adopt(pid, inherited.take(process)?, inherited.take(socket)?)?);
        }
        if let Some(number) = estate.pulse {
            keeper.pulse = Some(Arc::new(Heartbeat::adopt(inherited.take(number)?, keeper.config.workers)?));
        }
        keeper.suit_gro();
        // The predecessor's programs are detached with its other descriptors, once this program has attached the
        // same ones.
        let before = inherited.links(&estate.links);
        match HostChanges::start(&keeper.config, keeper.pulse.clone(), before) {
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

    /// Listens at the configured addresses. If that fails, continues with the previous configuration.
    pub(super) fn suit_doors(&mut self, text_before: &str) {
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

    pub(super) fn new(
        path: &Path,
        text: String,
        mut config: Config,
        signals: Signals,
        ports: Vec<StoredPort>,
        doors: Doors,
    ) -> io::Result<Supervisor> {
        let path = path::absolute(path)?;
        own_addresses::find(&mut config);
        let (program, notify) = (std::env::current_exe()?, Notify::from_environment());
        Ok(Supervisor {
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
            losses: Losses::default(),
        })
    }

    /// Claims the present interfaces, so that no other gateway serves them.
    pub(super) fn claim(&mut self) -> io::Result<()> {
        let (doubts, claimed) = self.claims.refresh(&self.config);
        doubts.iter().for_each(|doubt| self.say(doubt));
        claimed
    }

    /// Prints why flows that come in by these ports are not offloaded.
    pub(super) fn say_offload_doubt(&self, ports: &[StoredPort]) {
        let reasons = ports.iter().map(|port| port.why_no_offload.as_deref());
        reopen::offload_doubt(reasons).iter().for_each(|doubt| self.say(doubt));
    }

    /// Switches GRO on at the interfaces that the configuration names.
    pub(super) fn suit_gro(&mut self) {
        self.gro.suit(&self.config).iter().for_each(|doubt| self.say(doubt));
    }

    /// Waits until the first worker process works.
    pub(super) fn first_beat(&mut self) -> io::Result<()> {
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
}
