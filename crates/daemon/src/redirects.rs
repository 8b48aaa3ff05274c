//! A configuration in, a kernel that gives the gateway only the packets to be joined or cut out: for a router and a
//! wide interface.
//!
//! The kernel goes on to route, filter, forward and deliver. Programs at its interfaces redirect fragments (and TCP
//! where a side asks for it) to helper devices that the workers read; what the workers write there comes in or
//! leaves where it was taken. So a joined packet loses a hop, and is routed, once (C12). A thread follows
//! interfaces that come and go and the host's routes. Nothing of this outlives the process, however it ends, but a
//! rule and routes that lead nowhere, which [`undo`](crate::wide_routes::undo) removes.

use crate::ports::{address, interface_of};
use crate::wide_routes::WideRoutes;
use config::{Config, Role};
use engine::{FragmentPolicy, Toggle};
use linux::monitor::{Change, Monitor};
use linux::netlink::Netlink;
use offload::heartbeat::Heartbeat;
use offload::redirect::{Pair, Redirect, RedirectLinks, Taking, Target};
use packet::LinkType;
use port::Address;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The programs and routes, kept right until this is dropped.
#[derive(Debug)]
pub(crate) struct Redirects {
    orders: Sender<Command>,
    bell: Arc<OwnedFd>,
    trouble: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// Where a redirection is: the number of its interface, and that of its helper.
pub(crate) type Spot = [u32; 2];

/// What the thread is told.
enum Command {
    /// Say which links there are, by their numbers.
    Tell(Sender<Vec<(Spot, [RawFd; 3])>>),
    /// Take nothing more, and have the host send nothing that is too long.
    StopTaking(Sender<()>),
    /// Look at everything, by another configuration where there is one, and say what came of it.
    Renew(Option<Box<Config>>, Sender<io::Result<()>>),
    End,
}

impl Redirects {
    /// Begins, in the namespace of the calling thread, once the workers' ports are open. Packets are taken while
    /// all workers write their beats. What a program before this one left is taken over.
    ///
    /// # Errors
    /// What the kernel refuses; nothing stays changed.
    pub fn start(
        config: &Config,
        pulse: Option<Arc<Heartbeat>>,
        before: Vec<(Spot, RedirectLinks)>,
    ) -> io::Result<Redirects> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, taken) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let trouble = Arc::new(Mutex::new(None));
        let follower = Follower {
            standing: Standing::new(config.clone(), pulse, before),
            orders: taken,
            bell: Arc::clone(&bell),
            trouble: Arc::clone(&trouble),
        };
        let thread = thread::Builder::new().name(format!("{}-kernel", config.name)).spawn(move || {
            let mut follower = follower;
            match follower.standing.begin() {
                Ok(monitor) => {
                    let _ = tell.send(Ok(()));
                    follower.follow(monitor);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        })?;
        let beside = Redirects { orders, bell, trouble, thread: Some(thread) };
        told.recv().map_err(|_| ended())??;
        Ok(beside)
    }

    /// Has everything looked at anew, by another configuration where one is given.
    ///
    /// # Errors
    /// What the kernel refuses; what stood before stands.
    pub fn refresh(&self, config: Option<&Config>) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        self.give(Command::Renew(config.map(|config| Box::new(config.clone())), tell));
        told.recv().map_err(|_| ended())?
    }

    /// Takes nothing more from here on; what was taken still comes back. To be called before the workers end.
    pub fn stop_taking(&self) {
        let (tell, told) = mpsc::channel();
        self.give(Command::StopTaking(tell));
        // A thread that has ended takes nothing.
        let _ = told.recv();
    }

    /// The links that stand, by the numbers of their descriptors: for a program that takes this one's place.
    pub fn links(&self) -> Vec<(Spot, [RawFd; 3])> {
        let (tell, told) = mpsc::channel();
        self.give(Command::Tell(tell));
        told.recv().unwrap_or_default()
    }

    /// What went wrong since this was last asked.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn give(&self, order: Command) {
        // A thread that has ended takes no order, and whoever waits hears that.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Drop for Redirects {
    fn drop(&mut self) {
        self.give(Command::End);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said why.
            let _ = thread.join();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that follows the kernel's interfaces has ended")
}

/// The thread's own.
struct Follower {
    standing: Standing,
    orders: Receiver<Command>,
    bell: Arc<OwnedFd>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Follower {
    /// Until it is told to end.
    fn follow(&mut self, mut monitor: Monitor) {
        let (mut said, mut has_changed, mut has_failed) = (None, false, false);
        let mut looked_at = Instant::now();
        loop {
            let mut fds =
                [&self.bell.as_fd(), &monitor.as_fd()].map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
            // However it ends, everything is looked at.
            let _ = poll(&mut fds, Some(if has_changed { &REST } else { &EVERY }));
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            while let Some(change) = monitor.next() {
                has_changed |= !self.standing.made(&change);
            }
            let mut asked = Vec::new();
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    Command::End => return,
                    // Who asked may be gone.
                    Command::Tell(tell) => drop(tell.send(self.standing.links())),
                    Command::StopTaking(tell) => {
                        self.standing.stop_taking();
                        // Who asked may be gone.
                        let _ = tell.send(());
                    }
                    Command::Renew(config, tell) => {
                        let outcome = match config {
                            Some(config) => self.standing.suit(*config),
                            None => self.standing.update(),
                        };
                        asked.push((tell, outcome));
                    }
                }
            }
            // Where much changes at once, all of it is looked at once.
            let rest = looked_at.elapsed();
            let is_due = has_changed && rest >= REST_MIN || has_failed && rest >= TRY_AGAIN;
            let outcome = if is_due && asked.is_empty() {
                (has_changed, looked_at) = (false, Instant::now());
                let outcome = self.standing.update();
                has_failed = outcome.is_err();
                outcome
            } else {
                self.standing.refresh()
            };
            let trouble = outcome.err().map(|error| error.to_string()).or(self.standing.doubt.clone());
            if trouble.is_some() && trouble != said {
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble.clone();
            }
            said = trouble;
            for (tell, outcome) in asked {
                // Who asked may be gone.
                let _ = tell.send(outcome);
            }
        }
    }
}

/// What stands in the kernel.
struct Standing {
    config: Config,
    pulse: Option<Arc<Heartbeat>>,
    /// First to end: what is too long would be lost.
    routes: Option<WideRoutes>,
    redirects: Vec<(Wanted, Redirect)>,
    is_ending: bool,
    /// What was done otherwise than asked.
    doubt: Option<String>,
    /// Of the program before this one, or of what took other packets: others take their place.
    before: Vec<(Spot, RedirectLinks)>,
}

/// A redirection, by the numbers of interfaces as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wanted {
    interface: u32,
    helper: u32,
    medium: LinkType,
    what: What,
}

impl Wanted {
    fn spot(&self) -> Spot {
        [self.interface, self.helper]
    }
}

/// What it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    ComesIn(Taking),
    /// What is longer than this.
    Leaves(u16),
}

impl Standing {
    fn new(config: Config, pulse: Option<Arc<Heartbeat>>, before: Vec<(Spot, RedirectLinks)>) -> Standing {
        Standing { config, pulse, routes: None, redirects: Vec::new(), is_ending: false, doubt: None, before }
    }

    fn links(&self) -> Vec<(Spot, [RawFd; 3])> {
        let numbers = |redirect: &Redirect| redirect.links().map(|links| links.map(AsRawFd::as_raw_fd));
        self.redirects.iter().filter_map(|(wanted, redirect)| Some((wanted.spot(), numbers(redirect)?))).collect()
    }

    fn stop_taking(&mut self) {
        self.is_ending = true;
        self.routes = None;
        self.redirects.iter_mut().for_each(|(_, redirect)| redirect.stop_taking());
    }

    fn begin(&mut self) -> io::Result<Monitor> {
        // Before anything is read, so that no change is missed.
        let monitor = Monitor::open()?;
        self.update()?;
        Ok(monitor)
    }

    /// Sets what is missing and takes away what is not wanted any more.
    fn update(&mut self) -> io::Result<()> {
        if self.is_ending {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let wanted = wanted(&self.config, &mut netlink)?;
        let has_egress = wanted.iter().any(|wanted| matches!(wanted.what, What::Leaves(_)));
        if !has_egress {
            // No longer packets where nobody would cut them.
            self.routes = None;
        }
        let standing = std::mem::take(&mut self.redirects);
        let (stays, changes): (Vec<_>, Vec<_>) =
            standing.into_iter().partition(|(standing, _)| wanted.contains(standing));
        self.redirects = stays;
        let links = |(wanted, redirect): (Wanted, Redirect)| Some((wanted.spot(), redirect.into_links()?));
        self.before.extend(changes.into_iter().filter_map(links));
        for want in wanted {
            if self.redirects.iter().any(|(standing, _)| *standing == want) {
                continue;
            }
            let place = self.before.iter().position(|(spot, _)| *spot == want.spot());
            let before = place.map(|place| self.before.swap_remove(place).1);
            let pair = Pair { interface: want.interface, helper: want.helper, medium: want.medium };
            let redirect = match want.what {
                What::ComesIn(taking) => Redirect::ingress(pair, taking, self.pulse.as_deref(), before)?,
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
            let routes = match self.routes.take() {
                Some(routes) => routes,
                None => WideRoutes::start(&narrow)?,
            };
            self.doubt = self.routes.insert(routes).refresh(&self.config)?;
        }
        Ok(())
    }

    /// Goes on by another configuration; where that cannot be, by the one before.
    fn suit(&mut self, config: Config) -> io::Result<()> {
        let before = std::mem::replace(&mut self.config, config);
        let outcome = self.update();
        if outcome.is_err() {
            self.config = before;
            // What can stand of it, stands again.
            let _ = self.update();
        }
        outcome
    }

    /// Has what ends by itself live on.
    fn refresh(&mut self) -> io::Result<()> {
        if let Some(routes) = &mut self.routes {
            let doubt = routes.extend()?;
            self.doubt = doubt.or(self.doubt.take());
        }
        Ok(())
    }

    /// Is a change of our own making?
    fn made(&self, change: &Change) -> bool {
        matches!(change, Change::Route(_, route) if self.routes.as_ref().is_some_and(|routes| routes.table() == route.table))
    }
}

/// The redirections that a configuration asks for, where its interfaces are there.
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

/// What a rule may do to joined datagrams that it did not do to their fragments.
fn rule_in_doubt(netlink: &mut Netlink, config: &Config) -> Option<String> {
    let mtu = [&config.wide, &config.narrow].into_iter().filter(|side| joins(side)).map(|side| side.mtu).max()?;
    // A kernel without policy routing has none.
    let rules = netlink.rules().unwrap_or_default();
    rules.iter().find(|rule| rule.selects_by_mark_or_ports).map(|rule| {
        format!(
            "rule {} goes by a mark or by ports: a joined datagram may take another route than its fragments would; see \
             that it takes packets of {mtu} bytes",
            rule.priority
        )
    })
}

/// Are fragments for anybody joined on the way to this side?
fn joins(side: &config::SideConfig) -> bool {
    [FragmentPolicy::Reassemble, FragmentPolicy::ReassembleHop, FragmentPolicy::Merge]
        .into_iter()
        .any(|join| side.joins_as(join))
}

/// An interface and its helper, both of which are there.
#[derive(Clone, Copy)]
struct Found {
    interface: u32,
    helper: u32,
    medium: LinkType,
}

impl Found {
    fn wanting(self, what: What) -> Wanted {
        let Found { interface, helper, medium } = self;
        Wanted { interface, helper, medium, what }
    }
}

/// None where the interface or its helper is gone, or the helper was set down, so that packets given to it would be
/// lost: both may come again.
fn found(address: &str, netlink: &mut Netlink) -> io::Result<Option<Found>> {
    let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    let address: Address = address.parse().map_err(invalid)?;
    let (Some(name), device) = (address.interface(), address.device()) else { return Ok(None) };
    let (Ok(interface), Ok(helper)) = (netlink.interface(name), netlink.interface(&device)) else {
        return Ok(None);
    };
    if !helper.is_up {
        return Ok(None);
    }
    let Some(medium) = interface.medium else { return Ok(None) };
    Ok(Some(Found { interface: interface.index, helper: helper.index, medium }))
}

/// How often everything is looked at that nobody tells of.
const EVERY: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// How long changes are gathered.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const REST_MIN: Duration = Duration::from_millis(20);
/// How often what could not be done is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
