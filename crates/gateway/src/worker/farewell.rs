//! The end of a border -> ICMP errors to hosts that were told to send longer packets than pass without it.

use super::Worker;
use crate::commands::Farewell;
use crate::path::{TO_NARROW, TO_WIDE};
use engine::Connection;
use packet::{Ingress, Time};
use std::sync::mpsc;
use std::time::Duration;

/// The end of a border, while those are told who were told to send longer packets.
pub(super) struct Leaving {
    /// Whom to tell yet, the last first.
    connections: Vec<Connection>,
    /// When the next is told, and when no more are.
    pub(super) due: Time,
    until: Time,
    farewell: Farewell,
    done: mpsc::Sender<Farewell>,
}

impl Worker {
    /// Passes on by itself all that comes from here on, raises nothing, and begins to tell those who were told to
    /// send longer packets.
    pub(super) fn take_leave(&mut self, done: mpsc::Sender<Farewell>) {
        self.offloads_flows = false;
        self.withdraw();
        self.set_redirect();
        let now = self.clock.now();
        let Some(connections) = self.gateway.connections_mut() else {
            // Nobody was told to send longer packets. Who asked may be gone.
            let _ = done.send(Farewell::default());
            return;
        };
        let mut farewell = Farewell::default();
        connections.stop_raising();
        farewell.forgotten = connections.forgotten_count();
        if let Some(flow_offload) = self.ends[TO_WIDE].port.flow_offload() {
            for (flow, ack) in flow_offload.acked() {
                connections.on_offloaded_ack(flow.ends().map(|(address, port)| (address.into(), port)), ack);
            }
        }
        let raised_count = connections.raised_connections().count();
        let connections: Vec<_> = connections.raised_connections().take(TOLD_MAX).collect();
        farewell.untold = (raised_count - connections.len()) as u64;
        let until = now.later(FAREWELL_PATIENCE.as_nanos() as u64);
        self.leaving = Some(Leaving { connections, due: now, until, farewell, done });
    }

    /// Tells the next of them, once it is time: what comes at once may be too much for a host or a link.
    pub(super) fn tell_raised(&mut self, now: Time) {
        let Some(Leaving { connections, due, until, farewell, done }) = &mut self.leaving else { return };
        if self.gateway.connections().is_none() {
            // A reload took what can tell them.
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
            // Who asked may be gone.
            let _ = done.send(*farewell);
            self.leaving = None;
        }
        self.drain(TO_NARROW);
    }
}

/// Between two hosts that are told before the end: 20,000 a second.
const FAREWELL_PACE: Duration = Duration::from_micros(50);
/// Hosts that are told before anything else is looked at.
const TOLD_AT_ONCE: usize = 32;
/// How long telling them may take, and how many are told at that pace.
pub const FAREWELL_PATIENCE: Duration = Duration::from_secs(4);
const TOLD_MAX: usize = (FAREWELL_PATIENCE.as_micros() / FAREWELL_PACE.as_micros()) as usize;
