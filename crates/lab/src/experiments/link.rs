//! Two interfaces in, one wire between them out: later, slower, fewer, in another order, as asked.

use crate::emulator::{Course, LATE, LinkShape, Outcome, POOL_LIMIT, Scheduling, monotonic, run};
use linux::features::{self, Previous};
use linux::netlink::Netlink;
use offload::intercept::Intercept;
use packet::{Pool, Time};
use port::{Options, Port};
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Joins two interfaces of this thread's namespace, until `stop` or for as long: frames that come in by the first leave by the
/// second as the first shape says, and back as the second says.
///
/// Meanwhile the kernel gets nothing that comes in by them, and their offloads are off; both are put back at the end.
///
/// # Errors
/// What the kernel says of an interface, or a right that is missing.
pub fn link(
    interfaces: [&str; 2],
    shapes: [LinkShape; 2],
    stretch: Option<Duration>,
    stop: &AtomicBool,
    scheduling: Scheduling,
) -> io::Result<Outcome> {
    let [a, b] = interfaces;
    if a == b {
        let said = format!("{a}: a wire has two ends; name two interfaces");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    let _ends = [LinkEnd::seize(a)?, LinkEnd::seize(b)?];
    let [mut a, mut b] = [open(a)?, open(b)?];
    let clock = monotonic();
    let until = stretch.map_or(Time::NEVER, |stretch| Time::ZERO + stretch);
    let course = Course { clock: &clock, stop, until, late: LATE, scheduling };
    run(a.as_mut(), b.as_mut(), shapes, &mut Pool::new(POOL_LIMIT), &course)
}

/// An interface that stands for the end of a wire, until this is dropped.
struct LinkEnd {
    offloads: Option<Previous>,
    _intercept: Intercept,
}

impl LinkEnd {
    fn seize(name: &str) -> io::Result<LinkEnd> {
        let interface = Netlink::open()?.interface(name)?;
        if !interface.is_up {
            let said = format!("{name}: it is down; set it up first: `ip link set {name} up`");
            return Err(io::Error::new(io::ErrorKind::NetworkDown, said));
        }
        let _intercept = Intercept::all(interface.index)?;
        Ok(LinkEnd { offloads: Some(features::as_a_wire(name)?), _intercept })
    }
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        if let Some(offloads) = self.offloads.take() {
            // An interface that is gone has nothing to be put back to.
            let _ = offloads.restore();
        }
    }
}

fn open(name: &str) -> io::Result<Box<dyn Port>> {
    port::open(&format!("packet:{name}"), &Options { bypasses_queue: true, ..Options::default() })
}
