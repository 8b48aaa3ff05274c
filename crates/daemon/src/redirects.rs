//! The configuration of a router or a wide interface -> a kernel that redirects the packets to reassemble or
//! fragment.
//!
//! The kernel still routes, filters, forwards and delivers packets. Programs at its interfaces redirect fragments
//! to helper devices. They also redirect TCP packets if a side coalesces or segments TCP. Workers read from the
//! helper devices. The resulting packets return to the interface and the direction of the original packets. So a
//! reassembled packet is routed once, and its TTL decreases by one (C12).
//!
//! A thread follows the host's interfaces and routes. After the process was killed, only a rule and routes without
//! effect remain. [`undo`](crate::wide_routes::undo) removes them.

use crate::ports::{address, interface_of};
use crate::wide_routes::WideRoutes;
use config::{Config, Role};
use engine::{FragmentPolicy, Toggle};
use linux::monitor::{Change, Monitor};
use linux::netlink::Netlink;
use offload::heartbeat::Heartbeat;
use offload::redirect::{Pair, Redirect, RedirectLinks, Taking, Target};
use packet::LinkType;
use port::PortAddress;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The redirecting programs and the wide routes. They are kept up to date until dropped.
#[derive(Debug)]
pub(crate) struct Redirects {
    orders: Sender<Command>,
    eventfd: Arc<OwnedFd>,
    trouble: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// Place of a redirect: index of the interface, index of its helper.
pub(crate) type RedirectKey = [u32; 2];

/// A command to the thread that follows the host's interfaces and routes.
enum Command {
    /// Return the attached links, as descriptor numbers.
    Report(Sender<Vec<(RedirectKey, [RawFd; 3])>>),
    /// Stop redirecting, and remove the routes with the wide MTU.
    StopTaking(Sender<()>),
    /// Give these destinations a route MTU, in bytes, and no others.
    RouteMtus(Vec<(IpAddr, u16)>),
    /// Check everything, adopt the configuration if one is given, and return the result.
    Renew(Option<Box<Config>>, Sender<io::Result<()>>),
    End,
}

impl Redirects {
    /// Starts in the calling thread's namespace, after the workers' ports were opened. Packets are only redirected
    /// while all workers write heartbeats. Programs of the predecessor are taken over.
    ///
    /// # Errors
    /// The kernel refuses an operation. Nothing stays changed.
    pub fn start(
        config: &Config,
        heartbeat: Option<Arc<Heartbeat>>,
        before: Vec<(RedirectKey, RedirectLinks)>,
    ) -> io::Result<Redirects> {
        let eventfd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, taken) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let trouble = Arc::new(Mutex::new(None));
        let follower = RedirectThread {
            attached: Attached::new(config.clone(), heartbeat, before),
            orders: taken,
            eventfd: Arc::clone(&eventfd),
            trouble: Arc::clone(&trouble),
        };
        let thread = thread::Builder::new().name(format!("{}-kernel", config.name)).spawn(move || {
            let mut follower = follower;
            match follower.attached.begin() {
                Ok(monitor) => {
                    let _ = tell.send(Ok(()));
                    follower.follow(monitor);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        })?;
        let beside = Redirects { orders, eventfd, trouble, thread: Some(thread) };
        told.recv().map_err(|_| ended())??;
        Ok(beside)
    }

    /// Checks everything again. Adopts another configuration if one is given.
    ///
    /// # Errors
    /// The kernel refuses an operation. The earlier state remains.
    pub fn refresh(&self, config: Option<&Config>) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        self.give(Command::Renew(config.map(|config| Box::new(config.clone())), tell));
        told.recv().map_err(|_| ended())?
    }

    /// Stops redirecting. Packets that were redirected before still return to the kernel. Call this before the
    /// workers end.
    pub fn stop_taking(&self) {
        let (tell, told) = mpsc::channel();
        self.give(Command::StopTaking(tell));
        // A thread that has ended redirects nothing.
        let _ = told.recv();
    }

    /// Gives these destinations a route MTU, in bytes, and no others. Returns before the routes are changed.
    pub fn set_route_mtus(&self, route_mtus: Vec<(IpAddr, u16)>) {
        self.give(Command::RouteMtus(route_mtus));
    }

    /// Returns the attached links as descriptor numbers, for a successor program.
    pub fn links(&self) -> Vec<(RedirectKey, [RawFd; 3])> {
        let (tell, told) = mpsc::channel();
        self.give(Command::Report(tell));
        told.recv().unwrap_or_default()
    }

    /// Returns the last error since the previous call; `None` if there was none.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn give(&self, order: Command) {
        // If the thread has ended, the caller notices that no result comes.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }
}

impl Drop for Redirects {
    fn drop(&mut self) {
        self.give(Command::End);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported the reason.
            let _ = thread.join();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that monitors network interfaces has ended")
}

/// State of the thread that follows the host's interfaces and routes.
struct RedirectThread {
    attached: Attached,
    orders: Receiver<Command>,
    eventfd: Arc<OwnedFd>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl RedirectThread {
    /// Follows the host's interfaces and routes until told to end.
    fn follow(&mut self, mut monitor: Monitor) {
        let (mut said, mut has_changed, mut has_failed) = (None, false, false);
        let mut looked_at = Instant::now();
        loop {
            let mut fds =
                [&self.eventfd.as_fd(), &monitor.as_fd()].map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
            // After an error, too, everything is checked.
            let _ = poll(&mut fds, Some(if has_changed { &REST } else { &EVERY }));
            let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
            while let Some(change) = monitor.next() {
                has_changed |= !self.attached.made(&change);
            }
            let mut asked = Vec::new();
            let mut has_new_mtus = false;
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    Command::End => return,
                    // The caller may have ended.
                    Command::Report(tell) => drop(tell.send(self.attached.links())),
                    Command::StopTaking(tell) => {
                        self.attached.stop_taking();
                        // The caller may be gone.
                        let _ = tell.send(());
                    }
                    Command::RouteMtus(route_mtus) => {
                        self.attached.route_mtus = route_mtus;
                        has_new_mtus = true;
                    }
                    Command::Renew(config, tell) => {
                        let outcome = match config {
                            Some(config) => self.attached.apply(*config),
                            None => self.attached.update(),
                        };
                        asked.push((tell, outcome));
                    }
                }
            }
            // Many changes at once cause one check.
            let rest = looked_at.elapsed();
            let is_due = has_changed && rest >= REST_MIN || has_failed && rest >= TRY_AGAIN;
            let outcome = if is_due && asked.is_empty() {
                (has_changed, looked_at) = (false, Instant::now());
                let outcome = self.attached.update();
                has_failed = outcome.is_err();
                outcome
            } else if has_new_mtus {
                self.attached.copy_routes()
            } else {
                self.attached.refresh()
            };
            let trouble = outcome.err().map(|error| error.to_string()).or(self.attached.doubt.clone());
            if trouble.is_some() && trouble != said {
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble.clone();
            }
            said = trouble;
            for (tell, outcome) in asked {
                // The caller may have ended.
                let _ = tell.send(outcome);
            }
        }
    }
}

/// The attached programs and the wide routes.
struct Attached {
    config: Config,
    heartbeat: Option<Arc<Heartbeat>>,
    /// The wide routes. They are dropped first, because longer packets would be lost without redirection.
    routes: Option<WideRoutes>,
    /// Destinations with an MTU of their own, in bytes.
    route_mtus: Vec<(IpAddr, u16)>,
    redirects: Vec<(Wanted, Redirect)>,
    is_ending: bool,
    /// A warning about a part of the configuration that could not be applied.
    doubt: Option<String>,
    /// Links that new programs will replace: links of the predecessor program, or links of redirects that no longer
    /// match the configuration.
    before: Vec<(RedirectKey, RedirectLinks)>,
}

/// A redirect that the configuration requires, with current interface indices.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wanted {
    interface: u32,
    helper: u32,
    link_type: LinkType,
    what: What,
}

impl Wanted {
    fn spot(&self) -> RedirectKey {
        [self.interface, self.helper]
    }
}

/// The packets that are redirected.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    ComesIn(Taking),
    /// Sent packets that exceed this length, in bytes.
    Leaves(u16),
}

impl Attached {
    fn new(
        config: Config,
        heartbeat: Option<Arc<Heartbeat>>,
        before: Vec<(RedirectKey, RedirectLinks)>,
    ) -> Attached {
        Attached {
            config,
            heartbeat,
            routes: None,
            route_mtus: Vec::new(),
            redirects: Vec::new(),
            is_ending: false,
            doubt: None,
            before,
        }
    }

    fn links(&self) -> Vec<(RedirectKey, [RawFd; 3])> {
        let numbers = |redirect: &Redirect| redirect.links().map(|links| links.map(AsRawFd::as_raw_fd));
        self.redirects.iter().filter_map(|(wanted, redirect)| Some((wanted.spot(), numbers(redirect)?))).collect()
    }

    fn stop_taking(&mut self) {
        self.is_ending = true;
        self.routes = None;
        self.redirects.iter_mut().for_each(|(_, redirect)| redirect.stop_taking());
    }

    fn begin(&mut self) -> io::Result<Monitor> {
        // The monitor comes first, so that no change is missed.
        let monitor = Monitor::open()?;
        self.update()?;
        Ok(monitor)
    }

    /// Adds missing programs and routes, and removes superfluous ones.
    fn update(&mut self) -> io::Result<()> {
        if self.is_ending {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let wanted = wanted(&self.config, &mut netlink)?;
        let has_egress = wanted.iter().any(|wanted| matches!(wanted.what, What::Leaves(_)));
        if !has_egress {
            // Without a redirect that fragments them, no longer packets may be sent.
            self.routes = None;
        }
        let attached = std::mem::take(&mut self.redirects);
        let (stays, changes): (Vec<_>, Vec<_>) =
            attached.into_iter().partition(|(attached, _)| wanted.contains(attached));
        self.redirects = stays;
        let links = |(wanted, redirect): (Wanted, Redirect)| Some((wanted.spot(), redirect.into_links()?));
        self.before.extend(changes.into_iter().filter_map(links));
        for want in wanted {
            if self.redirects.iter().any(|(attached, _)| *attached == want) {
                continue;
            }
            let place = self.before.iter().position(|(spot, _)| *spot == want.spot());
            let before = place.map(|place| self.before.swap_remove(place).1);
            let pair = Pair { interface: want.interface, helper: want.helper, link_type: want.link_type };
            let redirect = match want.what {
                What::ComesIn(taking) => Redirect::ingress(pair, taking, self.heartbeat.as_deref(), before)?,
                What::Leaves(mtu) => Redirect::egress(pair, mtu, before)?,
            };
            self.redirects.push((want, redirect));
        }
        self.before.clear();
        if self.config.role == Role::Router {
            self.doubt = rule_in_doubt(&mut netlink, &self.config);
        }
        if has_egress {
            let narrow = interface_of(&self.config.narrow)?;
            if self.routes.is_none() {
                self.routes = Some(WideRoutes::start(&narrow)?);
            }
            self.copy_routes()?;
        }
        Ok(())
    }

    /// Adapts the routes with the wide MTU.
    fn copy_routes(&mut self) -> io::Result<()> {
        if let Some(routes) = &mut self.routes {
            self.doubt = routes.refresh(&self.config, &self.route_mtus)?;
        }
        Ok(())
    }

    /// Adopts another configuration. On failure, returns to the previous one.
    fn apply(&mut self, config: Config) -> io::Result<()> {
        let before = std::mem::replace(&mut self.config, config);
        let outcome = self.update();
        if outcome.is_err() {
            self.config = before;
            // Restores as much as possible.
            let _ = self.update();
        }
        outcome
    }

    /// Extends the lifetime of the routes that expire.
    fn refresh(&mut self) -> io::Result<()> {
        if let Some(routes) = &mut self.routes {
            let doubt = routes.extend()?;
            self.doubt = doubt.or(self.doubt.take());
        }
        Ok(())
    }

    /// Whether this process itself made the change: the change concerns the table of wide routes.
    fn made(&self, change: &Change) -> bool {
        matches!(change, Change::Route(_, route) if self.routes.as_ref().is_some_and(|routes| routes.table() == route.table))
    }
}

/// Returns the redirects that a configuration requires, with current interface indices.
fn wanted(config: &Config, netlink: &mut Netlink) -> io::Result<Vec<Wanted>> {
    let [wide, narrow] = [0, 1].map(|end| address(config, end));
    let mut all = Vec::new();
    match config.role {
        Role::Border => {}
        Role::Router => {
            for (from, to, side) in [(&narrow, &wide, &config.wide), (&wide, &narrow, &config.narrow)] {
                let tcp = side.coalesce.is_some() || side.segment == Toggle::On;
                if !joins(side) && !tcp {
                    continue;
                }
                let (Some(from), Some(to)) = (found(from, netlink)?, found(to, netlink)?) else { continue };
                let taking = Taking { target: Target::Forwarded { by: to.interface, len: side.mtu }, tcp };
                all.push(from.wanting(What::ComesIn(taking)));
            }
        }
        Role::WideInterface => {
            let Some(out) = found(&wide, netlink)? else { return Ok(all) };
            all.push(out.wanting(What::Leaves(config.narrow.mtu)));
            let tcp = config.wide.coalesce.is_some();
            if (joins(&config.wide) || tcp)
                && let Some(back) = found(&narrow, netlink)?
            {
                all.push(back.wanting(What::ComesIn(Taking { target: Target::Host, tcp })));
            }
        }
    }
    Ok(all)
}

/// Returns a warning about a routing rule that may treat reassembled datagrams differently from their fragments.
fn rule_in_doubt(netlink: &mut Netlink, config: &Config) -> Option<String> {
    let mtu = [&config.wide, &config.narrow].into_iter().filter(|side| joins(side)).map(|side| side.mtu).max()?;
    // A kernel without policy routing has no rules.
    let rules = netlink.rules().unwrap_or_default();
    rules.iter().find(|rule| rule.selects_by_mark_or_ports).map(|rule| {
        format!(
            "routing rule {} matches a mark or ports, so a reassembled datagram may take another route than its fragments; \
             make sure that this route accepts packets of {mtu} bytes",
            rule.priority
        )
    })
}

/// Whether fragments to this side are reassembled or merged.
fn joins(side: &config::SideConfig) -> bool {
    [FragmentPolicy::Reassemble, FragmentPolicy::ReassembleHop, FragmentPolicy::Merge]
        .into_iter()
        .any(|join| side.uses_policy(join))
}

/// An interface and its helper, both of which exist.
#[derive(Clone, Copy)]
struct Found {
    interface: u32,
    helper: u32,
    link_type: LinkType,
}

impl Found {
    fn wanting(self, what: What) -> Wanted {
        let Found { interface, helper, link_type } = self;
        Wanted { interface, helper, link_type, what }
    }
}

/// Returns an interface and its helper. `None` if either does not exist, or if the helper is down, as redirected
/// packets would then be lost. A later check may find both.
fn found(address: &str, netlink: &mut Netlink) -> io::Result<Option<Found>> {
    let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    let address: PortAddress = address.parse().map_err(invalid)?;
    let (Some(name), device) = (address.interface(), address.device()) else { return Ok(None) };
    let (Ok(interface), Ok(helper)) = (netlink.interface(name), netlink.interface(&device)) else {
        return Ok(None);
    };
    if !helper.is_up {
        return Ok(None);
    }
    let Some(link_type) = interface.link_type else { return Ok(None) };
    Ok(Some(Found { interface: interface.index, helper: helper.index, link_type }))
}

/// Interval between two checks without a notification.
const EVERY: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// Time for which changes are collected before a check.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const REST_MIN: Duration = Duration::from_millis(20);
/// Interval between two attempts after an error.
const TRY_AGAIN: Duration = Duration::from_secs(2);
