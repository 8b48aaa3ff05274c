//! A socket to the supervisor -> a gateway that runs without privileges: the worker process.
//!
//! A worker process parses packets from untrusted hosts, so it runs without privileges. The supervisor hands all
//! sockets and ports to it. The process drops its privileges before it reads a packet. Ten times a second, it
//! reports that all of its workers make rounds. If the supervisor ends, the worker process releases all held
//! packets and ends too.

use crate::control::Control;
use crate::messages::{Begin, HandedPort, Received, ToSupervisor, ToWorker, receive, say};
use crate::metrics::Metrics;
use crate::privileges;
use crate::reopen::{self, Opener, ReopenRequest, locked, open};
use crate::service::{ReportLosses, Service, SupervisorLinks, Waiting};
use crate::supervisor_client::SupervisorClient;
use config::{Config, Stage};
use engine::Toggle;
use gateway::handover::{self, Handoff};
use gateway::snapshot::Losses;
use offload::heartbeat::Heartbeat;
use port::Port;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Works for the supervisor at the other end of the socket, until told to end or until the supervisor ends.
///
/// # Errors
/// The first message is missing, or a resource in it cannot be used.
pub fn run(socket: OwnedFd) -> io::Result<()> {
    let socket = Arc::new(socket);
    let Some((begin, descriptors)) = told(&socket)? else { return Ok(()) };
    let mut handed = HandedDescriptors(descriptors.into());
    let config = config(&begin)?;
    let adopted = handed.ports(&begin)?;
    // Raising the priority needs a privilege. Threads that start later have the raised priority too.
    let above = privileges::above_others(config.priority);
    let control = handed.next(begin.has_control)?.map(UnixListener::from);
    let metrics = handed.next(begin.has_metrics)?.map(TcpListener::from);
    let heartbeat =
        handed.next(begin.has_heartbeat)?.map(|memory| Heartbeat::adopt(memory, config.workers)).transpose()?;
    let handoff = handed.next(begin.has_handoff)?;
    let ready = || say(&socket, &ToSupervisor::Ready, &[]);
    let has_all = adopted.iter().flatten().all(Option::is_some);
    if has_all {
        privileges::drop_privileges(config.user.as_deref())?;
    }
    ready()?;
    let Handoff { handed_frames, truncated_count: cut_count, not_received_count: untaken_count } =
        inherit(handoff, &config);
    let told = Arc::clone(&socket);
    let tell: ReportLosses = Arc::new(move |losses| tell(&told, losses));
    let lost = Losses { truncated: cut_count, not_received: untaken_count, ..Losses::default() };
    tell(lost);
    let waiting = Waiting::new(&handed_frames, Arc::clone(&tell));
    // Opening a port needs privileges, and the previous process on it must have ended.
    let ports = complete(adopted, &config)?;
    if !has_all {
        privileges::drop_privileges(config.user.as_deref())?;
    }
    let asking = [0, 1].map(|end| {
        let asked = Arc::clone(&socket);
        let ask = move |end, index| say(&asked, &ToSupervisor::Reopen { end, index }, &[]);
        Arc::new(ReopenRequest::new(end, begin.ports.get(end).and_then(|port| port.index), Box::new(ask)))
    });
    let openers = asking.clone().map(|asking| -> Opener { Arc::new(move |number| asking.port(number)) });
    let mut losses = begin.losses;
    losses += lost;
    let ties = SupervisorLinks { openers, heartbeat: heartbeat.map(Arc::new), losses, tell, waiting };
    let service = Service::start_on(config, ports, handed_frames, ties)?;
    drop(above);
    let desk = SupervisorClient::new(Arc::clone(&socket));
    let watch = service.watch();
    let service = Arc::new(Mutex::new(service));
    let metrics = metrics.map(|listener| Metrics::serve(listener, watch.clone())).transpose()?;
    let file = Path::new(&begin.file);
    let asked = |listener| Control::serve_for(desk.clone(), file, listener, Arc::clone(&service), watch.clone());
    let control = control.map(asked).transpose()?;
    privileges::confine()?;
    let outcome = attend(&socket, &service, &desk, &asking, &begin.file);
    drop((control, metrics));
    outcome
}

/// Returns the supervisor's first message and its descriptors; `None` if the supervisor has ended.
fn told(socket: &OwnedFd) -> io::Result<Option<(Begin, Vec<OwnedFd>)>> {
    loop {
        wait(socket, BEGIN_TIMEOUT);
        match receive(socket)? {
            Received::Said(ToWorker::Begin(begin), descriptors) => return Ok(Some((begin, descriptors))),
            Received::Said(..) => {}
            Received::Nothing => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no message from the supervisor"));
            }
            Received::Gone => return Ok(None),
        }
    }
}

fn config(begin: &Begin) -> io::Result<Config> {
    let mut config = parse(&begin.text, &begin.file)?;
    config.own_addresses = begin.own_addresses;
    if begin.is_degraded {
        config
            .bypass
            .extend(HOLDING_STAGES.iter().filter(|stage| !config.bypass.contains(stage)).collect::<Vec<_>>());
    }
    Ok(config)
}

fn parse(text: &str, file: &str) -> io::Result<Config> {
    Config::parse(text, file).map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems.to_string()))
}

/// The descriptors of the first message that are not used yet, in order.
struct HandedDescriptors(VecDeque<OwnedFd>);

impl HandedDescriptors {
    fn next(&mut self, is_there: bool) -> io::Result<Option<OwnedFd>> {
        let missing = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the supervisor handed over fewer descriptors than it announced",
            )
        };
        if is_there { self.0.pop_front().ok_or_else(missing).map(Some) } else { Ok(None) }
    }

    /// Returns the handed-over ports of each worker; `None` for a port that this process opens itself.
    fn ports(&mut self, begin: &Begin) -> io::Result<Vec<[Adopted; 2]>> {
        begin.ports.as_chunks().0.iter().map(|[wide, narrow]| Ok([self.port(wide)?, self.port(narrow)?])).collect()
    }

    fn port(&mut self, told: &HandedPort) -> io::Result<Adopted> {
        let Some(offloads) = told.offloads() else { return Ok(None) };
        let next = |_| self.next(true)?.ok_or_else(|| io::ErrorKind::InvalidData.into());
        let descriptors = (0..told.count).map(next).collect::<io::Result<Vec<_>>>()?;
        port::adopt(&told.address, descriptors, offloads).map(Some)
    }
}

/// A handed-over port; `None` if this process opens it itself.
type Adopted = Option<Box<dyn Port>>;

/// Opens the ports that were not handed over.
fn complete(adopted: Vec<[Adopted; 2]>, config: &Config) -> io::Result<Vec<[Box<dyn Port>; 2]>> {
    let mut ports = Vec::new();
    for (number, [wide, narrow]) in adopted.into_iter().enumerate() {
        let complete = |adopted: Adopted, end| adopted.map_or_else(|| open(config, end, number), Ok);
        ports.push([complete(wide, 0)?, complete(narrow, 1)?]);
    }
    Ok(ports)
}

/// Reads all packets that another process hands over. Waits until the other process has written them.
fn inherit(handoff: Option<OwnedFd>, config: &Config) -> Handoff {
    handoff.map(|pipe| handover::read(pipe, config.workers)).unwrap_or_default()
}

/// Reports losses to the supervisor, if there are any.
fn tell(socket: &OwnedFd, losses: Losses) {
    if losses != Losses::default() {
        // If the supervisor is gone, there is no reader.
        let _ = say(socket, &ToSupervisor::Lost(losses), &[]);
    }
}

/// Route MTUs that were reported to the supervisor, and the time of the report.
#[derive(Default)]
struct ReportedRoutes(BTreeMap<IpAddr, u16>, Option<Instant>);

impl ReportedRoutes {
    /// Reports the route MTUs if they are not those of the last report. Repeats the last report after a while, as
    /// another supervisor may have taken over.
    fn report(&mut self, socket: &OwnedFd, service: &Service) {
        let route_mtus = match service.config().narrow.route_mtu {
            Toggle::On => service.route_mtus(),
            Toggle::Off => BTreeMap::new(),
        };
        let is_fresh = self.1.is_none_or(|reported| reported.elapsed() < REPEAT);
        if route_mtus == self.0 && (is_fresh || route_mtus.is_empty()) {
            return;
        }
        // If the socket is full, the next round tries again. If the supervisor is gone, there is no reader.
        if say(socket, &ToSupervisor::RouteMtus(route_mtus.clone().into_iter().collect()), &[]).is_ok() {
            *self = ReportedRoutes(route_mtus, Some(Instant::now()));
        }
    }
}

/// Sends heartbeats to the supervisor, and carries out its messages.
fn attend(
    socket: &OwnedFd,
    service: &Mutex<Service>,
    desk: &SupervisorClient,
    asking: &[Arc<ReopenRequest>; 2],
    file: &str,
) -> io::Result<()> {
    let mut before = vec![0; locked(service).beats().len()];
    let mut due = Instant::now();
    let mut routes = ReportedRoutes::default();
    loop {
        wait(socket, due.saturating_duration_since(Instant::now()));
        if Instant::now() >= due {
            let beats = locked(service).beats();
            if before.iter().zip(&beats).all(|(before, now)| before != now) {
                before = beats;
                // If the supervisor is gone, the next check shows it.
                let _ = say(socket, &ToSupervisor::Beat, &[]);
            }
            locked(service).wake();
            routes.report(socket, &locked(service));
            due = Instant::now() + BEAT;
        }
        match receive(socket)? {
            Received::Nothing => {}
            Received::Gone | Received::Said(ToWorker::Drain, _) => {
                locked(service).end();
                return Ok(());
            }
            Received::Said(ToWorker::Finish, _) => {
                let farewell = locked(service).farewell();
                // If the supervisor is gone, there is no reader.
                let _ = say(socket, &ToSupervisor::ShutdownNotices(farewell), &[]);
                locked(service).end();
                return Ok(());
            }
            Received::Said(ToWorker::HandOver, descriptors) => {
                match descriptors.into_iter().next() {
                    Some(pipe) => tell(socket, locked(service).hand_over(pipe)),
                    None => locked(service).end(),
                }
                return Ok(());
            }
            Received::Said(ToWorker::Reload(text, own_addresses), _) => {
                let done = parse(&text, file)
                    .and_then(|config| locked(service).reload(Config { own_addresses, ..config }));
                say(socket, &ToSupervisor::Reloaded(done.map_err(|error| error.to_string())), &[])?;
            }
            Received::Said(ToWorker::Said { number, outcome }, _) => desk.answer(number, outcome),
            Received::Said(ToWorker::Reopened { end, ports }, descriptors) => {
                if let Some(asking) = asking.get(end) {
                    let index = ports.iter().flatten().find_map(|port| port.index);
                    let adopted = ports.and_then(|told| adopt_all(&told, descriptors));
                    asking.receive(adopted.map(|ports| reopen::ReopenedPorts { index, ports }));
                }
            }
            Received::Said(ToWorker::Begin(_), _) => {}
        }
    }
}

/// Adopts handed-over ports, in order.
fn adopt_all(told: &[HandedPort], descriptors: Vec<OwnedFd>) -> Result<Vec<Box<dyn Port>>, String> {
    let mut handed = HandedDescriptors(descriptors.into());
    let adopted = told.iter().map(|told| handed.port(told)?.ok_or_else(|| io::ErrorKind::InvalidData.into()));
    adopted.collect::<io::Result<_>>().map_err(|error| error.to_string())
}

fn wait(socket: &OwnedFd, timeout: Duration) {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    // After an error, too, the socket is checked.
    let _ = poll(&mut fds, Some(&timeout));
}

/// The stages that hold packets. They are bypassed after several crashes, because a held packet may be the cause.
const HOLDING_STAGES: [Stage; 3] = [Stage::Reassemble, Stage::Merge, Stage::Coalesce];
/// Interval between two heartbeat messages to the supervisor.
pub(crate) const BEAT: Duration = Duration::from_millis(100);
/// Longest wait for the supervisor's first message.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two reports of the same route MTUs.
const REPEAT: Duration = Duration::from_secs(2);
