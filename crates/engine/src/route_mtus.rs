//! Lengths that the segments of flows may have -> a route MTU for each destination.
//!
//! Linux makes TCP segments for the MTU of the route to their destination, also for connections that are open. So a
//! shorter route MTU makes the host send the segments that the [segment policy](crate::flow_sizing) allows, and
//! none need be cut. This is the interface between driver and host that G27 asks for (X6).
//!
//! An MTU falls at once, to the shortest length that a flow to the destination may have. It rises in steps of at
//! least [`STEP`]. The host counts its congestion window in segments, so it may send more bytes at once after each
//! step (C26). A step at most doubles the length, as slow start at most doubles the window in a round trip.
//!
//! Packets that fit the link do not cross the gateway. So nothing is learned about a destination whose MTU is that
//! of the link. Its MTU rises after a time, which doubles each time up to ten minutes (C24).
//!
//! # Law
//!
//! An MTU falls only after a flow was limited. It rises within [`HOLDS`] after it fell to the MTU of the link, and
//! an MTU without packets ends after the longest of them.

use crate::flow_sizing::{Frames, WideSegment};
use crate::keyed_hash::{Secret, TableKey};
use crate::table::{FairTable, Handle, Key};
use core::time::Duration;
use packet::{Address, Time, Version};

/// The destinations to which a host sends shorter segments than its interface allows.
#[derive(Debug)]
pub(crate) struct RouteMtus {
    routes: FairTable<RouteKey, RouteMtu>,
    is_changed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RouteKey {
    to: Address,
    version: Version,
}

/// The MTU of a destination.
#[derive(Clone, Copy, Debug)]
struct RouteMtu {
    /// The number of frames that a segment fills.
    count: u16,
    /// The number of frames of the longest segment of the host.
    full: u16,
    frames: Frames,
    /// The time of the last change.
    changed: Time,
    /// The time since which losses before it do not count.
    restarted: Time,
    /// Index of the time in [`HOLDS`] after which the MTU of the link rises.
    hold: u8,
}

impl RouteMtus {
    pub(crate) fn new(secret: Secret) -> RouteMtus {
        let routes = FairTable::new(COUNT_MAX * CHARGE, &HOLDS, secret);
        RouteMtus { routes, is_changed: false }
    }

    /// Sets the hash key. The table must be empty.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.routes.set_key(key);
    }

    /// Takes a segment of a flow whose segments may fill at most `allowed` frames.
    pub(crate) fn take(&mut self, now: Time, to: (Address, Version), segment: &WideSegment, allowed: u16) {
        let key = RouteKey::of(to);
        let own = segment.frame_count();
        match self.routes.find(&key) {
            Some(at) => {
                let before = self.routes.slot_mut(at).count;
                if before > 1 {
                    self.routes.refresh(now, at, HOLD_MAX);
                }
                let route = self.routes.slot_mut(at);
                route.full = route.full.max(own);
                if allowed < before {
                    self.lower(now, at, allowed);
                } else if allowed > before && now.since(route.changed) >= STEP {
                    let count = allowed.min(before.saturating_mul(2));
                    (route.count, route.changed) = (count, now);
                    self.is_changed = true;
                    if count >= route.full {
                        self.routes.remove(at);
                    }
                }
            }
            None if allowed < own => {
                let frames = segment.frames();
                let route =
                    RouteMtu { count: own, full: own, frames, changed: now, restarted: Time::ZERO, hold: 0 };
                let at = self.routes.insert(now, key, route, CHARGE, HOLD_MAX);
                self.lower(now, at, allowed);
                while let Some(at) = self.routes.over_limit() {
                    self.routes.remove(at);
                }
            }
            None => {}
        }
    }

    /// Lowers an MTU to `allowed` frames.
    fn lower(&mut self, now: Time, at: Handle, allowed: u16) {
        let route = self.routes.slot_mut(at);
        let count = allowed.max(1);
        self.is_changed |= count != route.count;
        (route.count, route.changed) = (count, now);
        if count == 1 {
            let hold = HOLDS[usize::from(route.hold)];
            route.hold = (route.hold + 1).min(HOLDS.len() as u8 - 1);
            self.routes.refresh(now, at, hold);
        }
    }

    /// Whether a flow to this destination that last sent at `last` begins anew, without its former losses.
    pub(crate) fn is_restarted(&self, to: (Address, Version), last: Time) -> bool {
        let route = self.routes.find(&RouteKey::of(to)).and_then(|at| self.routes.get(at));
        route.is_some_and(|route| last < route.restarted)
    }

    /// Raises the MTUs that were those of the link for their time. Ends those without packets.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(at) = self.routes.overdue(now) {
            self.is_changed = true;
            let route = self.routes.slot_mut(at);
            if route.count > 1 {
                self.routes.remove(at);
                continue;
            }
            (route.count, route.changed, route.restarted) = (2, now, now);
            self.routes.refresh(now, at, HOLD_MAX);
        }
    }

    /// Returns the time at which [`expire`](RouteMtus::expire) next has work.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.routes.next_deadline()
    }

    /// Whether an MTU changed since the last call.
    pub(crate) fn take_change(&mut self) -> bool {
        core::mem::take(&mut self.is_changed)
    }

    /// Returns each destination with its MTU, in bytes.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Address, u16)> {
        self.routes.entries().map(|(key, route)| (key.to, route.frames.route_mtu(route.count)))
    }
}

impl RouteKey {
    fn of((to, version): (Address, Version)) -> RouteKey {
        RouteKey { to, version }
    }
}

impl Key for RouteKey {
    fn source(&self) -> Address {
        self.to.routed_prefix()
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let to = self.to.number();
        table.hash([to as u64, (to >> 64) as u64, self.version as u64, 0])
    }
}

/// Minimum time between two changes of which the second raises the MTU: several round trips of most paths.
const STEP: Duration = Duration::from_secs(1);
/// The times after which an MTU that fell to that of the link rises.
const HOLDS: [Duration; 7] = [
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
    Duration::from_secs(80),
    Duration::from_secs(160),
    Duration::from_secs(320),
    HOLD_MAX,
];
const HOLD_MAX: Duration = Duration::from_secs(600);
/// Maximum number of destinations. Each is a route of the host.
const COUNT_MAX: usize = 1_024;
/// Charge of a destination. All charges are equal, so the limit is a number.
const CHARGE: usize = 1;
