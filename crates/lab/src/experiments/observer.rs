//! Interface -> the lengths of the packets that it received.
//!
//! The observer captures packets on the host, which costs CPU time. So an observed transfer is not timed.

use crate::net::Host;
use gateway::snapshot::WIDE_LEN;
use packet::{Frame, Ingress, Pool};
use port::{Options, Port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// TCP packets received by one interface. A GSO packet is counted as its wire packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// Number of wire packets.
    pub packets: u64,
    /// Number of wide packets: longer than 8,000 bytes, IP header included.
    pub wide_packets: u64,
    /// Length of the longest packet, IP header included, in bytes.
    pub longest: usize,
    /// Number of frames that the observer missed because they arrived too fast.
    pub missed: u64,
}

impl Observed {
    /// Returns the share of wide packets.
    pub fn share(&self) -> f64 {
        self.wide_packets as f64 / self.packets.max(1) as f64
    }
}

/// Runs `work`, and observes the packets that an interface of a host receives during this time.
///
/// # Errors
/// An error of the interface or of `work`.
pub fn observe<T>(host: &Host, interface: &str, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Observed)> {
    let options = Options { socket_buffer_len: BUFFER_LEN, ..Options::default() };
    let mut port = host.space().enter(|| port::open(&format!("packet:{interface}"), &options))?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| collect(port.as_mut(), &is_over));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let observed = looking.join().expect("looking does not panic");
        Ok((done?, observed?))
    })
}

fn collect(port: &mut dyn Port, is_over: &AtomicBool) -> io::Result<Observed> {
    let mut pool = Pool::new(POOL_LIMIT);
    let (mut observed, mut frames) = (Observed::default(), Vec::new());
    loop {
        let was_over = is_over.load(Ordering::Relaxed);
        let received = port.receive(Ingress(0), &mut pool, &mut frames)?;
        observed.missed += received.lost_count as u64;
        for frame in frames.drain(..) {
            pool.give(match frame {
                Frame::Ip(packet) => {
                    if packet.is_tcp() {
                        let count = packet.wire_count() as u64;
                        observed.packets += count;
                        observed.longest = observed.longest.max(packet.wire_len());
                        observed.wide_packets += if packet.wire_len() > WIDE_LEN { count } else { 0 };
                    }
                    packet.into_buffer()
                }
                Frame::Other(raw, _) => raw.into_buffer(),
            });
        }
        if received.was_last {
            if was_over {
                observed.missed += port.missed();
                return Ok(observed);
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_NANOS };
            let _ = poll(&mut [PollFd::from_borrowed_fd(port.fd(), PollFlags::IN)], Some(&timeout));
        }
    }
}

const BUFFER_LEN: u32 = 256 << 20;
const POOL_LIMIT: usize = 64 << 20;
/// Longest wait for a frame between two checks for the end, in nanoseconds.
const LOOK_NANOS: i64 = 10_000_000;
