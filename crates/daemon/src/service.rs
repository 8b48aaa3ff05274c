//! Configuration -> running workers in this process.
//!
//! A service owns the worker threads, from start to end. Their ports may be opened here or handed over by a
//! supervisor.

use crate::gro::Gro;
use crate::own_addresses;
use crate::privileges;
use crate::reopen::{self, Opener, Reopening, offload_doubt, open};
use crate::roles::HostChanges;
use config::{Config, OwnAddresses, Role};
use gateway::build::{self, draw_secrets, offloads_flows, replacement};
use gateway::commands::{Command, Commands, ShutdownNotices, WorkerHandle, commands};
use gateway::endpoint::{Endpoint, Reopen};
use gateway::handover::{HandedFrame, HandoffWriter};
use gateway::path::Path;
use gateway::peer_handoff::PeerHandoff;
use gateway::snapshot::{Losses, Snapshot};
use gateway::stations::Stations;
use gateway::stats::Watch;
use gateway::worker::{FAREWELL_TIMEOUT, Worker};
use linux::clock::Clock;
use offload::heartbeat::Heartbeat;
use port::{Offloads, Port};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::sync::{Arc, Mutex, Once, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A gateway that runs in this process.
#[derive(Debug)]
pub struct Service {
    config: Config,
    offloads: [Offloads; 2],
    workers: Vec<Member>,
    note: Option<String>,
    /// The host's settings that this process has changed. They are reverted at the end.
    host_changes: Arc<Mutex<HostChanges>>,
    /// The interfaces whose GRO was switched on; `None` if another process switches GRO.
    gro: Option<Gro>,
    /// Losses before this process started.
    losses: Losses,
}

/// A worker and its thread.
#[derive(Debug)]
struct Member {
    handles: WorkerHandle,
    thread: Option<JoinHandle<()>>,
}

/// A function that receives the losses of this process after a worker has panicked.
pub type ReportLosses = Arc<dyn Fn(Losses) + Send + Sync>;

/// Connections of a service to the privileged process.
pub struct SupervisorLinks {
    /// Functions that reopen the ports of the wide endpoint, then of the narrow endpoint.
    pub openers: [Opener; 2],
    /// The workers' heartbeat; `None` if no program in the kernel watches it.
    pub heartbeat: Option<Arc<Heartbeat>>,
    /// Losses before this process started.
    pub losses: Losses,
    /// Reports the losses to the supervisor after a worker has panicked.
    pub tell: ReportLosses,
    /// Frames that another process handed over.
    pub waiting: Waiting,
}

/// Handed-over frames that no worker has taken yet. Frames that are never taken are reported as lost.
pub struct Waiting {
    count: usize,
    tell: ReportLosses,
}

impl Waiting {
    /// Makes a value for these frames, of which none is taken yet.
    pub fn new(handed_frames: &[Vec<HandedFrame>], tell: ReportLosses) -> Waiting {
        Waiting { count: handed_frames.iter().map(Vec::len).sum(), tell }
    }

    /// Notes that a worker has taken `count` frames.
    fn are_taken(&mut self, count: usize) {
        self.count -= count;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.count > 0 {
            (self.tell)(Losses { not_received: self.count as u64, ..Losses::default() });
        }
    }
}

impl fmt::Debug for SupervisorLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ties").field("pulse", &self.heartbeat).finish_non_exhaustive()
    }
}

/// The end of a process after a panic in a worker.
struct Ending {
    tell: ReportLosses,
    workers: Vec<WorkerHandle>,
    once: Once,
}

impl Ending {
    /// Makes the other workers release their packets, reports all losses, and ends the process. Another worker that
    /// panics waits here, after it has reported its own losses.
    fn end(&self) {
        self.once.call_once(|| {
            (self.tell)(WorkerHandle::stop_all(&self.workers, PEERS_TIMEOUT));
            process::exit(PANICKED);
        });
    }
}

/// The values that the thread of a worker takes over at its start.
struct Start {
    ports: [Box<dyn Port>; 2],
    place: Place,
    handed_frames: Vec<HandedFrame>,
    /// The end of the process after a panic; `None` if only the thread ends.
    ending: Option<Arc<Ending>>,
    openers: [Opener; 2],
    stations: Option<Arc<Stations>>,
}

impl Service {
    /// Opens all ports in the calling thread's namespace, and starts the workers.
    ///
    /// # Errors
    /// A resource is missing. The error contains a way to fix it.
    pub fn start(mut config: Config) -> io::Result<Service> {
        own_addresses::find(&mut config);
        let ports = (0..config.workers)
            .map(|number| Ok([open(&config, 0, number)?, open(&config, 1, number)?]))
            .collect::<io::Result<Vec<_>>>()?;
        let doubt = offload_doubt(ports.iter().flatten().map(|port| port.why_no_offload()));
        let seized = Arc::new(Mutex::new(HostChanges::default()));
        let opener = |end| -> io::Result<Opener> {
            let reopening = Reopening::new(&config, end, Arc::clone(&seized))?;
            Ok(Arc::new(move |number| reopening.port(number)))
        };
        let openers = [opener(0)?, opener(1)?];
        let mut service = Service::assemble(config, ports, Vec::new(), openers, None, None)?;
        service.host_changes = seized;
        *reopen::locked(&service.host_changes) = HostChanges::start(&service.config, None, Vec::new())?;
        let gro = service.gro.insert(Gro::default());
        // Without GRO, packets arrive one by one.
        let doubts = gro.apply(&service.config);
        let doubts: Vec<_> = doubts.into_iter().chain(doubt).collect();
        if !doubts.is_empty() {
            service.note.get_or_insert(doubts.join("; "));
        }
        Ok(service)
    }

    /// Starts workers on open ports, in worker order. The workers first process `handed_frames`, which another
    /// process held. The last argument contains the connections to the privileged process.
    ///
    /// # Errors
    /// A resource is missing. The error contains a way to fix it.
    pub fn start_on(
        config: Config,
        ports: Vec<[Box<dyn Port>; 2]>,
        handed_frames: Vec<Vec<HandedFrame>>,
        SupervisorLinks { openers, heartbeat, losses, tell, mut waiting }: SupervisorLinks,
    ) -> io::Result<Service> {
        let told = Some((tell, &mut waiting));
        let mut service = Service::assemble(config, ports, handed_frames, openers, heartbeat, told)?;
        service.losses = losses;
        Ok(service)
    }

    fn assemble(
        config: Config,
        ports: Vec<[Box<dyn Port>; 2]>,
        mut handed_frames: Vec<Vec<HandedFrame>>,
        openers: [Opener; 2],
        heartbeat: Option<Arc<Heartbeat>>,
        told: Option<(ReportLosses, &mut Waiting)>,
    ) -> io::Result<Service> {
        let (tell, mut waiting) = told.unzip();
        let note = reopen::note(&config);
        let offloads =
            ports.last().map_or([Offloads::default(); 2], |ports| ports.each_ref().map(|it| it.offloads()));
        let stations = (config.role == Role::Border).then(Arc::<Stations>::default);
        let places = places(&config, note.is_none(), heartbeat.as_ref())?;
        let crew = places.iter().map(|(handles, ..)| handles.clone()).collect();
        let ending = tell.map(|tell| Arc::new(Ending { tell, workers: crew, once: Once::new() }));
        handed_frames.resize(ports.len(), Vec::new());
        let (crew, seized, losses) = (Vec::new(), Arc::default(), Losses::default());
        let mut service =
            Service { config, offloads, workers: crew, note, host_changes: seized, gro: None, losses };
        for (number, ((ports, place), handed_frames)) in
            ports.into_iter().zip(places).zip(handed_frames).enumerate()
        {
            let start = Start {
                ports,
                place,
                handed_frames,
                ending: ending.clone(),
                openers: openers.clone(),
                stations: stations.clone(),
            };
            let count = start.handed_frames.len();
            service.workers.push(hire(&service.config, number, start)?);
            if let Some(waiting) = &mut waiting {
                waiting.are_taken(count);
            }
        }
        Ok(service)
    }

    /// Returns a warning about a feature that does not work as expected; `None` if all features work.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns the number of rounds that each worker has made since its start.
    pub fn beats(&self) -> Vec<u64> {
        self.workers.iter().map(|member| member.handles.beats()).collect()
    }

    /// Wakes all workers.
    pub fn wake(&self) {
        self.workers.iter().for_each(|member| member.handles.wake());
    }

    /// Makes the workers write their held packets to a pipe and end. Returns the losses.
    pub fn hand_over(&mut self, pipe: OwnedFd) -> Losses {
        for (member, will) in self.workers.iter().zip(HandoffWriter::each(pipe, self.workers.len())) {
            member.handles.give(Command::HandOver(will));
        }
        self.join();
        let mut losses = Losses::default();
        self.workers.iter().filter_map(|member| member.handles.last()).for_each(|last| losses += last.losses);
        losses
    }

    /// Returns the current configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns snapshots of all workers.
    ///
    /// # Errors
    /// A worker does not answer in time.
    pub fn snapshots(&self) -> io::Result<Vec<Snapshot>> {
        self.workers.iter().map(|member| member.handles.ask()).collect()
    }

    /// Returns the destinations with a route MTU of their own, each with the smallest MTU of all workers in bytes. At
    /// most [`ROUTE_MTUS_MAX`].
    pub fn route_mtus(&self) -> BTreeMap<IpAddr, u16> {
        least(self.workers.iter().flat_map(|member| member.handles.route_mtus()))
    }

    /// Returns a handle that reads the statistics from any thread.
    pub fn watch(&self) -> Watch {
        Watch::new(&self.config, self.handles(), self.losses)
    }

    /// Returns the handles of the workers.
    pub fn handles(&self) -> Vec<WorkerHandle> {
        self.workers.iter().map(|member| member.handles.clone()).collect()
    }

    /// Adopts another configuration with the same ports, without packet loss.
    ///
    /// # Errors
    /// The configurations differ in a setting that cannot change while the gateway runs. Nothing has changed then.
    pub fn reload(&mut self, mut config: Config) -> io::Result<()> {
        may_reload(&self.config, &config)?;
        if config.own_addresses == OwnAddresses::default() {
            config.own_addresses = self.config.own_addresses;
        }
        let (done, all_done) = mpsc::channel();
        for member in &self.workers {
            let replacement = replacement(&config, self.offloads, draw_secrets()?, done.clone());
            if !member.handles.give(Command::Replace(Box::new(replacement))) {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "a worker has ended"));
            }
        }
        self.config = config;
        if let Some(gro) = &mut self.gro {
            // Without GRO, packets arrive one by one.
            let _ = gro.apply(&self.config);
        }
        let suited = reopen::locked(&self.host_changes).apply(&self.config);
        // A busy worker adopts the configuration later. A worker process that hangs is replaced, and the next one
        // starts with the new configuration.
        let _ = self.workers.iter().try_for_each(|_| all_done.recv_timeout(TIMEOUT));
        suited
    }

    /// Sends ICMP errors to the hosts whose MSS was raised, as their packets will exceed the path MTU without this
    /// border. Packets are forwarded in the meantime. Returns the results, counted in connections.
    pub fn farewell(&self) -> ShutdownNotices {
        let (done, all_done) = mpsc::channel();
        for member in &self.workers {
            member.handles.give(Command::AnnounceShutdown(done.clone()));
        }
        drop(done);
        let until = Instant::now() + FAREWELL_TIMEOUT + TIMEOUT;
        let told = self
            .workers
            .iter()
            .map_while(|_| all_done.recv_timeout(until.saturating_duration_since(Instant::now())).ok());
        told.fold(ShutdownNotices::default(), ShutdownNotices::and)
    }

    /// Releases all held packets, and ends.
    pub fn stop(mut self) {
        self.end();
    }

    /// Releases all held packets, and ends the workers. In contrast to [`Service::stop`], the service may be
    /// shared.
    pub fn end(&mut self) {
        reopen::locked(&self.host_changes).stop_taking();
        self.workers.iter().for_each(|member| member.handles.stop());
        self.join();
    }

    fn join(&mut self) {
        for member in &mut self.workers {
            if let Some(thread) = member.thread.take() {
                // A worker that panicked has reported the reason.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// Checks that all settings that a reload cannot change are equal.
///
/// # Errors
/// A setting differs. The error names the setting and contains a way to fix it.
pub(crate) fn may_reload(before: &Config, after: &Config) -> io::Result<()> {
    stays(before, after)?;
    let is_same = [
        ("control", before.control == after.control),
        ("metrics", before.metrics == after.metrics),
        ("user", before.user == after.user),
    ];
    match is_same.iter().find(|(_, is_same)| !is_same) {
        None => Ok(()),
        Some((key, _)) => {
            let said = format!("{key} cannot change by a reload; restart the gateway");
            Err(io::Error::new(io::ErrorKind::InvalidInput, said))
        }
    }
}

/// Checks that all settings that cannot change while the gateway runs are equal.
///
/// # Errors
/// A setting differs. The error names the setting and contains a way to fix it.
pub(crate) fn stays(before: &Config, after: &Config) -> io::Result<()> {
    let is_same = [
        ("role", before.role == after.role),
        ("wide.port", before.wide.port == after.wide.port),
        ("narrow.port", before.narrow.port == after.narrow.port),
        ("workers", before.workers == after.workers),
        ("fail", before.fail == after.fail),
        ("priority", before.priority == after.priority),
        ("wide-interface", before.wide_interface == after.wide_interface),
    ];
    match is_same.iter().find(|(_, is_same)| !is_same) {
        None => Ok(()),
        Some((key, _)) => {
            let said = format!("{key} cannot change while the gateway runs; stop it and start it again");
            Err(io::Error::new(io::ErrorKind::InvalidInput, said))
        }
    }
}

/// A worker's handle, the worker's commands, and the worker's hand-off queues to its peers.
type Place = (WorkerHandle, Commands, Option<PeerHandoff>);

fn places(config: &Config, is_steered: bool, heartbeat: Option<&Arc<Heartbeat>>) -> io::Result<Vec<Place>> {
    let commands = |number| {
        let (handles, commands) = commands()?;
        Ok((handles, commands.with_heartbeat(heartbeat.map(|heartbeat| (Arc::clone(heartbeat), number)))))
    };
    let (handles, commands): (Vec<_>, Vec<_>) =
        (0..config.workers).map(commands).collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
    let mut peers = Vec::new();
    if config.workers > 1 && is_steered {
        peers = PeerHandoff::of(&handles);
    }
    let mut peers = peers.into_iter();
    Ok(handles.into_iter().zip(commands).map(|(handles, commands)| (handles, commands, peers.next())).collect())
}

fn hire(config: &Config, number: usize, start: Start) -> io::Result<Member> {
    let Start { ports: [wide, narrow], place, handed_frames, ending, openers, stations } = start;
    let (handles, commands, peers) = place;
    let secrets = draw_secrets()?;
    let gateway = build::gateway(config, [wide.offloads(), narrow.offloads()], secrets);
    let [wide_again, narrow_again] = openers.map(|opener| -> Reopen { Box::new(move || opener(number)) });
    let ends = [
        Endpoint::new(wide, config.wide.mtu).with_reopen(wide_again),
        Endpoint::new(narrow, config.narrow.mtu).with_reopen(narrow_again),
    ];
    let worker = Worker::new(Clock::start(), ends, gateway, commands);
    let path = if config.is_beside_kernel() { Path::Back } else { Path::Across };
    let worker = worker.with_peers(peers).with_stations(stations).offloading(offloads_flows(config));
    let mut worker = worker.on(path).with_intakes(build::intakes(config, secrets));
    let _above = privileges::above_others(config.priority);
    let thread = std::thread::Builder::new()
        .name(format!("{}-{number}", config.name))
        .spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| worker.run_guarded(&handed_frames)));
            match (ended, ending) {
                (Ok(()), _) => {}
                (Err(cause), None) => resume_unwind(cause),
                (Err(_), Some(ending)) => ending.end(),
            }
        })
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start a thread: {error}")))?;
    Ok(Member { handles, thread: Some(thread) })
}

/// Longest wait for the workers at a reload.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for the other workers to release their packets after a panic: half of the supervisor's time-out for
/// messages.
const PEERS_TIMEOUT: Duration = Duration::from_millis(500);
/// Largest number of destinations with a route MTU, which fits a message to the supervisor.
pub const ROUTE_MTUS_MAX: usize = 4_096;
/// Exit status of a process after a panic in a worker, as in Rust's own runtime.
const PANICKED: i32 = 101;

/// Returns the smallest MTU of each destination.
fn least(all: impl Iterator<Item = (IpAddr, u16)>) -> BTreeMap<IpAddr, u16> {
    let mut least = BTreeMap::new();
    for (to, mtu) in all {
        least.entry(to).and_modify(|known: &mut u16| *known = mtu.min(*known)).or_insert(mtu);
    }
    while least.len() > ROUTE_MTUS_MAX {
        least.pop_last();
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handed_over_frames_without_a_worker_are_reported_as_lost() {
        let handed_frames = [2, 0, 3]
            .map(|count| vec![HandedFrame { direction: 0, max_fragment_len: 0, id: 0, frame: Vec::new() }; count]);
        let told = Arc::new(Mutex::new(Losses::default()));
        for (taken, not_received) in [(0, 5), (2, 3), (5, 0)] {
            let losses = Arc::clone(&told);
            let tell: ReportLosses = Arc::new(move |more| *reopen::locked(&losses) += more);
            let mut waiting = Waiting::new(&handed_frames, tell);
            waiting.are_taken(taken);
            drop(waiting);
            assert_eq!(std::mem::take(&mut *reopen::locked(&told)), Losses { not_received, ..Losses::default() });
        }
    }
}
