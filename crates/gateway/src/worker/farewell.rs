//! The end of a border -> ICMP errors to hosts whose packets will exceed the path MTU.
//!
//! A border raises the MSS of connections, so their hosts send longer packets. After the border's end, only an ICMP
//! error makes a host send shorter packets before a time-out.

use super::Worker;
use crate::commands::ShutdownNotices;
use crate::path::{TO_NARROW, TO_WIDE};
use engine::{Connection, Toward};
use packet::{Ingress, Time};
use std::sync::mpsc;
use std::time::Duration;

/// The state of a border that ends and still sends ICMP errors.
pub(super) struct Leaving {
    /// The connections whose hosts got no ICMP error yet. The last connection of the list is next.
    connections: Vec<Connection>,
    /// Time of the next ICMP error. The field `until` is the time limit for all errors.
    pub(super) due: Time,
    until: Time,
    farewell: ShutdownNotices,
    done: mpsc::Sender<ShutdownNotices>,
}

impl Worker {
    /// Stops flow offload and the raising of MSS values. Starts to send ICMP errors to the hosts whose MSS was
    /// raised.
    pub(super) fn announce_shutdown(&mut self, done: mpsc::Sender<ShutdownNotices>) {
        self.offloads_flows = false;
        self.withdraw();
        self.set_redirect();
        let now = self.clock.now();
        let Some(connections) = self.gateway.connections_mut() else {
            // No host was told to send longer packets. The caller may have ended.
            let _ = done.send(ShutdownNotices::default());
            return;
        };
        let mut farewell = ShutdownNotices::default();
        connections.stop_raising();
        farewell.forgotten = connections.forgotten_count();
        if let Some(flow_offload) = self.ends[TO_WIDE].port.flow_offload() {
            for (flow, ack) in flow_offload.acked() {
                let ends = flow.ends().map(|(address, port)| (address.into(), port));
                connections.on_offloaded_ack(ends, Toward::Wide, ack);
            }
        }
        let raised_count = connections.raised_connections().count();
        let connections: Vec<_> = connections.raised_connections().take(TOLD_MAX).collect();
        farewell.untold = (raised_count - connections.len()) as u64;
        let until = now.later(FAREWELL_TIMEOUT.as_nanos() as u64);
        self.leaving = Some(Leaving { connections, due: now, until, farewell, done });
    }

    /// Sends the ICMP errors that are due. They are sent at intervals, because a burst of all errors could overload
    /// a host or a link.
    pub(super) fn tell_raised(&mut self, now: Time) {
        let Some(Leaving { connections, due, until, farewell, done }) = &mut self.leaving else { return };
        if self.gateway.connections().is_none() {
            // A reload removed the border's role: no host can be told.
            *until = now;
        }
        for _ in 0..TOLD_AT_ONCE {
            if *due > now || *until <= now {
                break;
            }
            let Some(connection) = connections.pop() else { break };
            if self.gateway.tell(&connection, Ingress(TO_NARROW as u32)) {
                farewell.told += 1;
                *due = due.later(FAREWELL_PACE.as_nanos() as u64);
            } else {
                farewell.untold += 1;
            }
        }
        if *until <= now {
            farewell.untold += connections.drain(..).count() as u64;
        }
        if connections.is_empty() {
            // The caller may have ended.
            let _ = done.send(*farewell);
            self.leaving = None;
        }
        self.drain(TO_NARROW);
    }
}

/// Interval between the ICMP errors to two hosts: 20,000 hosts a second.
const FAREWELL_PACE: Duration = Duration::from_micros(50);
/// Largest number of hosts that get an ICMP error in one round of the worker.
const TOLD_AT_ONCE: usize = 32;
/// Time limit for all ICMP errors. Together with the interval between two hosts, it limits the number of hosts that
/// get an error.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(4);
const TOLD_MAX: usize = (FAREWELL_TIMEOUT.as_micros() / FAREWELL_PACE.as_micros()) as usize;
