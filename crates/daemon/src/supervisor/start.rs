//! A configuration file -> a supervisor with a working worker process.
//!
//! A supervisor starts without state. After a restart by `exec`, it takes over the restart state of the previous
//! program.

use super::child::{Child, State};
use super::{Failure, START_TIMEOUT, Supervisor, read};
use crate::claims::Claims;
use crate::fd_store::{InheritedFds, ListeningSockets, RestartState, StoredPort};
use crate::gro::Gro;
use crate::interface_watch::InterfaceWatch;
use crate::notify::Notify;
use crate::offload_probe;
use crate::own_addresses;
use crate::reopen;
use crate::roles::HostChanges;
use crate::service::stays;
use crate::stderr_log::StderrLog;
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
        let sockets = ListeningSockets::open(&config)?;
        let mut claims = Claims::default();
        let (unseen, claimed) = claims.refresh(&config);
        claimed?;
        let (trusted, doubts) = match offload_probe::try_offloads(&config) {
            Ok(proofs) => (proofs.each_ref().map(|proof| proof.offloads), offload_probe::doubts(&proofs)),
            Err(error) => {
                let said = format!("kernel offloads cannot be tested and are done in software: {error}");
                ([Offloads::default(); 2], Some(said))
            }
        };
        let ports = StoredPort::open_all(&config, trusted)?;
        let mut supervisor = Supervisor::new(path, text, config, signals, ports, sockets)?;
        supervisor.claims = claims;
        supervisor.warn();
        unseen.iter().chain(&doubts).for_each(|doubt| supervisor.say(doubt));
        supervisor.say_offload_doubt(&supervisor.ports);
        supervisor.apply_gro();
        if supervisor.config.fail == Fail::Open || supervisor.config.is_beside_kernel() {
            supervisor.heartbeat = Some(Arc::new(Heartbeat::new(supervisor.config.workers)?));
        }
        supervisor.host_changes =
            Some(HostChanges::start(&supervisor.config, supervisor.heartbeat.clone(), Vec::new())?);
        supervisor.watch()?;
        supervisor.worker = Some(supervisor.spawn(None)?);
        match supervisor.first_beat() {
            Ok(()) => Ok(supervisor),
            Err(error) => {
                supervisor.end();
                Err(error.into())
            }
        }
    }

    /// Takes over from the predecessor program.
    pub(super) fn succeed(
        path: &Path,
        restart_state: RestartState,
        mut inherited: InheritedFds,
        signals: Signals,
    ) -> Result<Supervisor, Failure> {
        let before = Config::parse(&restart_state.text, &path.to_string_lossy());
        let (text, config) = match (read(path), before) {
            (Ok(fresh), Ok(before)) if stays(&before, &fresh.1).is_ok() => fresh,
            (_, Ok(before)) => (restart_state.text.clone(), before),
            // A configuration that the predecessor accepted may be invalid for this program.
            (fresh, Err(_)) => fresh.map_err(Failure::Config)?,
        };
        let ports = inherited.ports(&restart_state.ports)?;
        let sockets = inherited.sockets(&restart_state)?;
        let mut supervisor = Supervisor::new(path, text, config, signals, ports, sockets)?;
        supervisor.apply_listeners(&restart_state.text);
        if supervisor.text != restart_state.text {
            supervisor.warn();
        }
        (supervisor.awaited, supervisor.wanted) = (restart_state.awaited, restart_state.wanted);
        supervisor.losses = restart_state.losses;
        supervisor.claims = inherited.claims(&restart_state.claims);
        // A failed claim does not end this gateway, which already runs: a predecessor of an older version had no
        // claims.
        if let Err(error) = supervisor.claim() {
            supervisor.say(&error.to_string());
        }
        if let Some((pid, process, socket)) = restart_state.worker {
            supervisor.worker = Some(Child::adopt(pid, inherited.take(process)?, inherited.take(socket)?)?);
        }
        if let Some(number) = restart_state.heartbeat {
            supervisor.heartbeat =
                Some(Arc::new(Heartbeat::adopt(inherited.take(number)?, supervisor.config.workers)?));
        }
        supervisor.apply_gro();
        // The predecessor's programs are detached with its other descriptors, once this program has attached the
        // same ones.
        let before = inherited.links(&restart_state.links);
        match HostChanges::start(&supervisor.config, supervisor.heartbeat.clone(), before) {
            Ok(seized) => supervisor.host_changes = Some(seized),
            Err(error) => {
                supervisor.say(&error.to_string());
                // Beside a kernel, packets on the wide routes would be lost without new programs.
                supervisor.left = (!supervisor.config.is_beside_kernel()).then_some(inherited);
            }
        }
        supervisor.set_targets();
        if let Err(error) = supervisor.watch() {
            supervisor.say(&format!(
                "fail-open is not set up, so no packets are forwarded while no worker runs: {error}"
            ));
        }
        supervisor.start_successor();
        Ok(supervisor)
    }

    /// Listens at the configured addresses. On failure, continues with the previous configuration.
    pub(super) fn apply_listeners(&mut self, text_before: &str) {
        let Err(error) = self.sockets.apply(&self.config) else { return };
        match Config::parse(text_before, &self.path.to_string_lossy()) {
            Ok(before) => {
                self.say(&format!("continues with the previous configuration: {error}"));
                let own_addresses = self.config.own_addresses;
                (self.text, self.config) = (text_before.to_owned(), Config { own_addresses, ..before });
            }
            Err(_) => self.say(&format!("continues without this listener: {error}")),
        }
    }

    pub(super) fn new(
        path: &Path,
        text: String,
        mut config: Config,
        signals: Signals,
        ports: Vec<StoredPort>,
        sockets: ListeningSockets,
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
            log: StderrLog::standard_error(),
            claims: Claims::default(),
            ports,
            sockets,
            host_changes: None,
            gro: Gro::recorded(),
            heartbeat: None,
            watched: Vec::new(),
            left: None,
            worker: None,
            successor: None,
            deaths: VecDeque::new(),
            pauses_until: Instant::now(),
            is_degraded: false,
            reload: None,
            awaited: None,
            wanted: VecDeque::new(),
            interfaces: InterfaceWatch::default(),
            losses: Losses::default(),
        })
    }

    /// Claims the existing interfaces, so that no other gateway serves them.
    pub(super) fn claim(&mut self) -> io::Result<()> {
        let (doubts, claimed) = self.claims.refresh(&self.config);
        doubts.iter().for_each(|doubt| self.say(doubt));
        claimed
    }

    /// Prints the reason why flows that arrive at these ports are not offloaded.
    pub(super) fn say_offload_doubt(&self, ports: &[StoredPort]) {
        let reasons = ports.iter().map(|port| port.why_no_offload.as_deref());
        reopen::offload_doubt(reasons).iter().for_each(|doubt| self.say(doubt));
    }

    /// Switches GRO on at the configured interfaces, and restores it at all others.
    pub(super) fn apply_gro(&mut self) {
        self.gro.apply(&self.config).iter().for_each(|doubt| self.say(doubt));
    }

    /// Waits for the heartbeat of the first worker process.
    pub(super) fn first_beat(&mut self) -> io::Result<()> {
        let until = Instant::now() + START_TIMEOUT;
        while let Some(mut child) = self.worker.take() {
            self.wait(&[child.process.as_fd(), child.socket.as_fd()]);
            let state = self.attend(&mut child);
            let beats = child.beats;
            self.worker = Some(child);
            match state {
                State::Died(how) => {
                    self.worker = None;
                    return Err(io::Error::other(format!("the worker process did not start: {how}")));
                }
                State::Lives if beats => break,
                State::Lives if Instant::now() > until => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the worker process did not start in time",
                    ));
                }
                State::Lives => {}
            }
        }
        self.notify.ready();
        self.say("works");
        Ok(())
    }
}
