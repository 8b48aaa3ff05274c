//! Numbered datagrams from the narrow host to the wide host -> counts of lost and reordered datagrams.
//!
//! TCP hides losses by retransmission. Numbered datagrams show each loss.

use crate::three_hosts::{NARROW, ThreeHosts, WIDE, v4};
use rustix::net::sockopt;
use serde::Serialize;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Results of a stream of numbered datagrams.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Arrived {
    /// Payload of each datagram, in bytes.
    pub len: usize,
    /// Number of datagrams that were sent.
    pub sent: u64,
    /// Number of datagrams that arrived complete and unchanged, without duplicates.
    pub came: u64,
    /// Number of datagrams that arrived after a datagram with a higher number.
    pub overtaken: u64,
    /// Number of received datagrams that were changed or duplicates.
    pub wrong: u64,
    /// The longest time between two arrivals, in milliseconds.
    pub longest_gap_ms: f64,
}

impl Arrived {
    /// Returns the number of datagrams that did not arrive.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.came)
    }
}

/// Sends a datagram of `len` bytes every `step` while `f` runs. Returns the results of the stream and of `f`.
pub(super) fn during<T>(
    three_hosts: &ThreeHosts,
    len: usize,
    step: Duration,
    f: impl FnOnce() -> io::Result<T>,
) -> io::Result<(Arrived, T)> {
    let inbox = three_hosts.wide.space().enter(|| UdpSocket::bind(SocketAddr::new(v4(WIDE), 0)))?;
    sockopt::set_socket_recv_buffer_size_force(&inbox, ROOM_LEN)?;
    inbox.set_read_timeout(Some(LOOK))?;
    let target = inbox.local_addr()?;
    let outbox = three_hosts.narrow.space().enter(|| UdpSocket::bind(SocketAddr::new(v4(NARROW), 0)))?;
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(NOT_YET));
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let outcome = send(&outbox, target, len, step, &stop);
            sent.store(*outcome.as_ref().unwrap_or(&0), Ordering::Release);
            outcome
        });
        let receiver = scope.spawn(|| receive(&inbox, len, &sent));
        let outcome = f();
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("a sender that panics has said why")?;
        let came = receiver.join().expect("a receiver that panics has said why")?;
        Ok((Arrived { sent, ..came }, outcome?))
    })
}

fn send(outbox: &UdpSocket, target: SocketAddr, len: usize, step: Duration, stop: &AtomicBool) -> io::Result<u64> {
    let mut content = vec![FILLING; len];
    let (began, mut sent) = (Instant::now(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        content[..NUMBER_LEN].copy_from_slice(&sent.to_be_bytes());
        outbox.send_to(&content, target)?;
        sent += 1;
        let due = began + step.mul_f64(sent as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(sent)
}

/// Receives until all datagrams have arrived, or until no datagram has arrived for [`QUIET`] after the last was
/// sent.
fn receive(inbox: &UdpSocket, len: usize, sent: &AtomicU64) -> io::Result<Arrived> {
    let mut arrived = Arrived { len, ..Arrived::default() };
    let mut seen = Vec::new();
    let (mut room, mut next, mut before) = (vec![0; len + 1], 0, None::<Instant>);
    let mut quiet = Instant::now();
    loop {
        match inbox.recv(&mut room) {
            Ok(came) => {
                let now = Instant::now();
                let gap = before.map_or(Duration::ZERO, |before| now - before);
                arrived.longest_gap_ms = arrived.longest_gap_ms.max(gap.as_secs_f64() * 1e3);
                (before, quiet) = (Some(now), now);
                let number = u64::from_be_bytes(*room.first_chunk().expect("a message holds its number"));
                let is_ours = came == len && room[NUMBER_LEN..len].iter().all(|byte| *byte == FILLING);
                if is_ours && is_first(&mut seen, number) {
                    arrived.came += 1;
                    arrived.overtaken += u64::from(number < next);
                    next = next.max(number + 1);
                } else {
                    arrived.wrong += 1;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let sent = sent.load(Ordering::Acquire);
        if sent != NOT_YET && (arrived.came >= sent || quiet.elapsed() > QUIET) {
            return Ok(arrived);
        }
    }
}

/// Records a datagram's number. Returns false if the number was recorded before, or is too large.
fn is_first(seen: &mut Vec<bool>, number: u64) -> bool {
    let at = number as usize;
    if seen.len() <= at {
        if at > NUMBER_MAX {
            return false;
        }
        seen.resize(at + 1, false);
    }
    !std::mem::replace(&mut seen[at], true)
}

const NUMBER_LEN: usize = 8;
const FILLING: u8 = 7;
const NOT_YET: u64 = u64::MAX;
/// Largest datagram number: more datagrams than are sent in a day.
const NUMBER_MAX: usize = 1 << 32;
/// Length of the receive buffer, in bytes: enough for all arrivals while the receiver is not scheduled.
const ROOM_LEN: usize = 64 << 20;
const LOOK: Duration = Duration::from_millis(100);
/// Time without an arrival that ends the reception; longer than any hold time on the path.
const QUIET: Duration = Duration::from_millis(2_500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_once_and_unsent_ones_never() {
        let mut seen = Vec::new();
        assert!(is_first(&mut seen, 3) && is_first(&mut seen, 0));
        assert!(!is_first(&mut seen, 3) && !is_first(&mut seen, u64::MAX));
    }
}
