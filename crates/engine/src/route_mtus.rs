//! Lengths that the segments of flows may have -> a route MTU for each destination.
//!
//! Linux makes TCP segments for the MTU of the route to their destination, also for connections that are open. So a
//! shorter route MTU makes the host send the segments that the [segment policy](crate::flow_sizing) allows, and
//! none need be cut. This is the interface between driver and host that G27 asks for (X6).
//!
//! An MTU falls at once, to the shortest length that a flow to the destination may have. It rises in steps that are at
//! least [`STEP`] apart, after the last packet of a flow that may have no longer segments. The host counts its
//! congestion window in segments, so it may send more bytes at once after each step (C26). A step at most doubles the
//! length, as slow start at most doubles the window in a round trip.
//!
//! Packets that fit the link do not cross the gateway. So nothing is learned about a destination whose MTU is that
//! of the link. Its MTU rises after a back-off time, which doubles each time up to ten minutes (C24).
//!
//! # Law
//!
//! An MTU falls only after a flow was limited. One of the link rises within its back-off time, and any other rises
//! within the shortest back-off time if no packet comes.

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
    /// The number of frames of the longest segment of the host. With this count, the destination needs no route.
    full: u16,
    frames: Frames,
    /// The time of the last fall or rise, or of the last packet of a flow that may have no longer segments.
    held: Time,
    /// The time since which losses before it do not count.
    restarted: Time,
    /// The next back-off time, one of [`BACKOFFS`].
    backoff: Duration,
}

impl RouteMtus {
    pub(crate) fn new(secret: Secret) -> RouteMtus {
        let routes = FairTable::new(COUNT_MAX * CHARGE, &BACKOFFS, secret);
        RouteMtus { routes, is_changed: true }
    }

    /// Sets the hash key. The table must be empty.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.routes.set_key(key);
    }

    /// Takes a segment of a flow whose segments may fill at most `allowed` frames. `mtu_max` is the MTU of routes to
    /// other destinations, in bytes.
    pub(crate) fn take(
        &mut self,
        now: Time,
        to: (Address, Version),
        segment: &WideSegment,
        allowed: u16,
        mtu_max: u16,
    ) {
        let key = RouteKey::of(to);
        let at = match self.routes.find(&key) {
            Some(at) => at,
            None if allowed < segment.frame_count() => {
                let (frames, full) = (segment.frames(), segment.frames().count(mtu_max));
                let route =
                    RouteMtu { count: full, full, frames, held: now, restarted: Time::ZERO, backoff: BACKOFF_MIN };
                self.routes.insert(now, key, route, CHARGE, BACKOFF_MAX)
            }
            None => return,
        };
        let route = self.routes.slot_mut(at);
        let before = route.count;
        if allowed < before {
            self.lower(now, at, allowed.max(1));
        } else {
            if allowed == before {
                route.held = now;
            } else if before < route.full && now.since(route.held) >= STEP {
                route.raise(now, allowed);
                self.is_changed = true;
            }
            // Packets above the link's MTU show losses, so no time-out is needed to try longer segments.
            // A destination without a route is soon forgotten, with its back-off time.
            if before > 1 && before < route.full {
                self.routes.refresh(now, at, BACKOFF_MAX);
            }
        }
        while let Some(at) = self.routes.over_limit() {
            self.routes.remove(at);
            self.is_changed = true;
        }
    }

    /// Lowers an MTU to `count` frames.
    fn lower(&mut self, now: Time, at: Handle, count: u16) {
        let route = self.routes.slot_mut(at);
        (route.count, route.held) = (count, now);
        let timeout = if count == 1 { route.next_backoff() } else { BACKOFF_MAX };
        self.routes.refresh(now, at, timeout);
        self.is_changed = true;
    }

    /// Whether a flow to this destination that last sent at `last` begins anew, without its former losses.
    pub(crate) fn is_restarted(&self, to: (Address, Version), last: Time) -> bool {
        let route = self.routes.find(&RouteKey::of(to)).and_then(|at| self.routes.get(at));
        route.is_some_and(|route| last < route.restarted)
    }

    /// Raises the MTUs whose time is over. Forgets those that are not shortened any more.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(at) = self.routes.overdue(now) {
            let route = self.routes.slot_mut(at);
            if route.count >= route.full {
                self.routes.remove(at);
                continue;
            }
            if route.count == 1 {
                route.restarted = now;
            }
            route.raise(now, route.full);
            let timeout = if route.count < route.full { BACKOFF_MIN } else { BACKOFF_MAX };
            self.routes.refresh(now, at, timeout);
            self.is_changed = true;
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
        let shortened = self.routes.entries().filter(|(_, route)| route.count < route.full);
        shortened.map(|(key, route)| (key.to, route.frames.route_mtu(route.count)))
    }
}

impl RouteMtu {
    /// Raises the MTU by a step, to at most `allowed` frames.
    fn raise(&mut self, now: Time, allowed: u16) {
        (self.count, self.held) = (self.count.saturating_mul(2).min(allowed).min(self.full), now);
    }

    /// Returns the back-off time, which doubles with each call.
    fn next_backoff(&mut self) -> Duration {
        let backoff = self.backoff;
        self.backoff = (2 * backoff).min(BACKOFF_MAX);
        backoff
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

/// Minimum time before an MTU rises: several round trips of most paths.
const STEP: Duration = Duration::from_secs(1);
/// The times after which an MTU that fell to that of the link rises.
const BACKOFFS: [Duration; 7] = [
    BACKOFF_MIN,
    Duration::from_secs(20),
    Duration::from_secs(40),
    Duration::from_secs(80),
    Duration::from_secs(160),
    Duration::from_secs(320),
    BACKOFF_MAX,
];
const BACKOFF_MIN: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(600);
/// Maximum number of destinations. Each is a route of the host.
const COUNT_MAX: usize = 1_024;
/// Charge of a destination. All charges are equal, so the limit is a number.
const CHARGE: usize = 1;
