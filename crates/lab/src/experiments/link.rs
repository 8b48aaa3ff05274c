//! Two interfaces -> an emulated link between them, with the configured delay, rate limit, losses and reordering.
//!
//! This is the link emulator for interfaces outside of the lab, such as those of virtual machines.

use crate::emulator::{Course, LATE, LinkShape, Outcome, POOL_LIMIT, Scheduling, monotonic, run};
use linux::features::{self, Previous};
use linux::netlink::Netlink;
use offload::intercept::Intercept;
use packet::{Pool, Time};
use port::{Options, Port};
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Connects two interfaces of the calling thread's namespace by an emulated link, until `stop` is true or `stretch`
/// has passed. The first shape applies to frames from the first interface to the second. The second shape applies
/// to the opposite direction.
///
/// During the call, the kernel receives nothing from the interfaces, and their offloads are off. Reception and
/// offloads are restored at the end.
///
/// # Errors
/// An error of an interface; a missing privilege; the same interface twice.
pub fn link(
    interfaces: [&str; 2],
    shapes: [LinkShape; 2],
    stretch: Option<Duration>,
    stop: &AtomicBool,
    scheduling: Scheduling,
) -> io::Result<Outcome> {
    let [a, b] = interfaces;
    if a == b {
        let said = format!("{a}: both ends are the same; name two different interfaces");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    let _ends = [LinkEnd::seize(a)?, LinkEnd::seize(b)?];
    let [mut a, mut b] = [open(a)?, open(b)?];
    let clock = monotonic();
    let until = stretch.map_or(Time::NEVER, |stretch| Time::ZERO + stretch);
    let course = Course { clock: &clock, stop, until, late: LATE, scheduling };
    run(a.as_mut(), b.as_mut(), shapes, &mut Pool::new(POOL_LIMIT), &course)
}

/// An interface at one end of the emulated link. Dropping the value restores the interface.
struct LinkEnd {
    offloads: Option<Previous>,
    _intercept: Intercept,
}

impl LinkEnd {
    fn seize(name: &str) -> io::Result<LinkEnd> {
        let interface = Netlink::open()?.interface(name)?;
        if !interface.is_up {
            let said = format!("{name}: the interface is down; run `ip link set {name} up`");
            return Err(io::Error::new(io::ErrorKind::NetworkDown, said));
        }
        let _intercept = Intercept::all(interface.index)?;
        Ok(LinkEnd { offloads: Some(features::as_a_wire(name)?), _intercept })
    }
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        if let Some(offloads) = self.offloads.take() {
            // An error is ignored: a removed interface need not be restored.
            let _ = offloads.restore();
        }
    }
}

fn open(name: &str) -> io::Result<Box<dyn Port>> {
    port::open(&format!("packet:{name}"), &Options { bypasses_queue: true, ..Options::default() })
}
