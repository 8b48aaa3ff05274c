//! Connections with early acknowledgements -> one table, within a memory limit.
//!
//! An acknowledged byte must not be lost, so no entry that owes bytes is evicted. A copy is refused if its connection
//! would then use more than is free (dynamic thresholds: Choudhury and Hahne 1998, section II). So one connection uses
//! at most a half of the store, and two connections a third each. A part is always free for another connection. A
//! refused segment is forwarded without an early acknowledgement.

use crate::early_connection::{EarlyConnection, Heard};
use crate::flows::FlowKey;
use crate::keyed_hash::Secret;
use crate::ledger::Tally;
use crate::table::{FairTable, Handle};
use core::time::Duration;
use packet::{Packet, Pool, Time};
use std::collections::BTreeMap;

/// The connections with early acknowledgements.
#[derive(Debug)]
pub(crate) struct AckStore {
    connections: FairTable<FlowKey, Entry>,
    /// The times at which connections may have to send bytes again. The second number tells equal times apart.
    timers: BTreeMap<Timer, FlowKey>,
    timer_count: u64,
    /// Longest packet toward the wide hosts, in bytes.
    len_max: usize,
    /// Whether bytes are still acknowledged early.
    is_open: bool,
    /// Segments that were acknowledged early, and given up since the last [`take_lost`](AckStore::take_lost).
    lost: Tally,
}

#[derive(Debug)]
struct Entry {
    connection: EarlyConnection,
    timer: Option<Timer>,
}

type Timer = (Time, u64);

impl AckStore {
    /// Creates a store of at most `limit` bytes. `len_max` is the MTU of the wide side, in bytes.
    ///
    /// # Panics
    /// If the limit is below [`ACK_STORE_MIN`].
    pub(crate) fn new(limit: usize, len_max: u16, secret: Secret) -> AckStore {
        assert!(
            limit >= ACK_STORE_MIN,
            "early acknowledgements need a store of {ACK_STORE_MIN} bytes, not {limit}"
        );
        AckStore {
            connections: FairTable::new(limit, &[IDLE_TIMEOUT], secret),
            timers: BTreeMap::new(),
            timer_count: 0,
            len_max: len_max.into(),
            is_open: true,
            lost: Tally::NONE,
        }
    }

    /// Sets the hash key. The table must be empty.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.connections.set_key(key);
    }

    /// Adopts the limit and the MTU of another store, and keeps the connections. Without another store, nothing is
    /// acknowledged early from now on, but all owed bytes stay owed.
    pub(crate) fn go_on_as(&mut self, other: Option<&AckStore>) {
        self.is_open = other.is_some();
        if let Some(other) = other {
            self.connections.set_limit(other.connections.limit());
            self.len_max = other.len_max;
        }
    }

    /// Whether the store takes no more segments, and owes none.
    pub(crate) fn is_done(&self) -> bool {
        !self.is_open && self.timers.is_empty()
    }

    /// Returns the connection with this key, and restarts its idle time-out.
    pub(crate) fn find(&mut self, now: Time, key: &FlowKey) -> Option<Handle> {
        let at = self.connections.find(key)?;
        self.connections.refresh(now, at, IDLE_TIMEOUT);
        Some(at)
    }

    /// Whether this byte of a connection is owed to its wide host.
    pub(crate) fn owes(&self, key: &FlowKey, seq: u32) -> bool {
        let entry = self.connections.find(key).and_then(|at| self.connections.get(at));
        entry.is_some_and(|entry| entry.connection.owes_byte(seq))
    }

    /// Returns a connection that was found.
    pub(crate) fn get(&mut self, at: Handle) -> &mut EarlyConnection {
        &mut self.connections.slot_mut(at).connection
    }

    /// Whether another connection has room, in a store that takes segments.
    pub(crate) fn has_room(&self) -> bool {
        let free = self.connections.limit().saturating_sub(self.connections.charged());
        self.is_open && free >= self.connections.limit() / 4
    }

    /// Adds a connection.
    pub(crate) fn add(&mut self, now: Time, key: FlowKey, connection: EarlyConnection) -> Handle {
        self.connections.insert(now, key, Entry { connection, timer: None }, CONNECTION_CHARGE, IDLE_TIMEOUT)
    }

    /// Keeps a copy of a segment, if there is room. Returns whether an early acknowledgement is to be sent.
    pub(crate) fn keep(&mut self, now: Time, at: Handle, heard: &Heard, packet: &Packet) -> bool {
        let connection = &mut self.connections.slot_mut(at).connection;
        let Some(charge) = connection.charge_for(heard, packet) else { return false };
        let free = self.connections.limit().saturating_sub(self.connections.charged() + charge);
        let connection = &mut self.connections.slot_mut(at).connection;
        if !self.is_open || connection.charge() + charge > free {
            return false;
        }
        let is_due = connection.keep(now, heard, packet);
        self.update(at);
        is_due
    }

    /// Updates charge and timer of a connection that was changed.
    pub(crate) fn update(&mut self, at: Handle) {
        let Some((key, Entry { connection, timer })) = self.connections.get_mut(at) else { return };
        let charge = CONNECTION_CHARGE + connection.charge();
        match (connection.due(), *timer) {
            (Some(due), Some(planned)) if planned.0 <= due => {}
            (due, planned) => {
                planned.iter().for_each(|planned| _ = self.timers.remove(planned));
                self.timer_count += 1;
                *timer = due.map(|due| (due, self.timer_count));
                timer.iter().for_each(|timer| _ = self.timers.insert(*timer, *key));
            }
        }
        self.connections.charge(at, charge);
    }

    /// Returns a connection that has to send bytes again, or is to be given up.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<Handle> {
        loop {
            let first = self.timers.first_entry().filter(|first| first.key().0 <= now)?;
            let at = self.connections.find(first.get())?;
            if self.get(at).due().is_some_and(|due| due <= now) {
                return Some(at);
            }
            self.connections.slot_mut(at).timer.iter().for_each(|timer| _ = self.timers.remove(timer));
            self.connections.slot_mut(at).timer = None;
            self.update(at);
        }
    }

    /// Calls `send` with the bytes that a connection has to send again. Returns false after the last attempt.
    pub(crate) fn repeat(&mut self, now: Time, at: Handle, pool: &mut Pool, send: impl FnMut(Packet)) -> bool {
        let len_max = self.len_max;
        let is_alive = self.get(at).repeat(now, len_max, pool, send);
        if let Some(timer) = self.connections.slot_mut(at).timer.take() {
            self.timers.remove(&timer);
        }
        self.update(at);
        is_alive
    }

    /// Removes a connection that has ended: nobody waits for its bytes.
    pub(crate) fn remove(&mut self, at: Handle) {
        self.connections.slot_mut(at).timer.iter().for_each(|timer| _ = self.timers.remove(timer));
        self.connections.remove(at);
    }

    /// Removes a connection whose wide host does not answer. Its owed bytes are lost.
    pub(crate) fn abandon(&mut self, at: Handle) {
        let connection = self.get(at);
        let lost = Tally::new(connection.owed_count(), connection.owed_len());
        self.lost += lost;
        self.remove(at);
    }

    /// Returns the count of lost segments since the last call.
    pub(crate) fn take_lost(&mut self) -> Tally {
        core::mem::replace(&mut self.lost, Tally::NONE)
    }

    /// Calls `send` with all owed bytes, once more, and forgets them.
    pub(crate) fn send_all(&mut self, pool: &mut Pool, mut send: impl FnMut(Packet)) {
        while let Some(at) = self.connections.oldest() {
            self.get(at).send_owed(usize::MAX, pool, &mut send);
            self.remove(at);
        }
    }

    /// Removes connections that owe nothing and timed out.
    pub(crate) fn expire(&mut self, now: Time) {
        for _ in 0..self.connections.count() {
            let Some(at) = self.connections.overdue(now) else { return };
            if self.get(at).owes() {
                self.connections.refresh(now, at, IDLE_TIMEOUT);
            } else {
                self.remove(at);
            }
        }
    }

    /// Returns the time at which bytes may have to be sent again.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.first_key_value().map(|((time, _), _)| *time)
    }

    /// Returns the time at which [`expire`](AckStore::expire) next has work.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.connections.next_deadline()
    }

    /// Returns the bytes charged against the limit.
    pub(crate) fn charged(&self) -> usize {
        self.connections.charged()
    }

    /// Returns the limit, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.connections.limit()
    }
}

/// The smallest useful store for early acknowledgements, in bytes: the largest window without scaling for eight
/// connections, twice.
pub const ACK_STORE_MIN: usize = 1 << 20;
/// Charge of a connection beside its copies, in bytes.
const CONNECTION_CHARGE: usize = 512;
/// Time without packets after which a connection that owes nothing is removed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
