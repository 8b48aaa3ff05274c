//! Fragments -> datagrams, by a bitmap of received octets.
//!
//! Simulated hosts reassemble with this simple code. The engine's reassembly is compared with it in tests.

use crate::wire::WireFacts;
use core::time::Duration;
use packet::Time;
use std::collections::VecDeque;

/// The incomplete datagrams of a host.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// Incomplete datagrams, oldest first.
    open: VecDeque<Datagram>,
    spare: Vec<Datagram>,
    /// Number of fragments of discarded datagrams. The causes are too many datagrams, a time-out, or a conflict
    /// between fragments.
    pub given_up: u64,
}

/// An incomplete datagram.
#[derive(Debug)]
struct Datagram {
    key: Key,
    since: Time,
    octets: Vec<u8>,
    /// One bit for each octet: whether it was received.
    came: Vec<u64>,
    came_count: usize,
    end: Option<usize>,
    fragments: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    is_v6: bool,
    from: Option<u16>,
    protocol: u8,
    id: u32,
}

impl Datagrams {
    /// Adds a fragment. If the datagram is complete, calls `whole` with the bytes behind the IP header.
    pub fn push(&mut self, now: Time, seen: &WireFacts, payload: &[u8], whole: impl FnOnce(&[u8])) {
        let Some((offset, more)) = seen.fragment else { return };
        while self.open.front().is_some_and(|datagram| now.since(datagram.since) > TIMEOUT) {
            self.on_evicted(0);
        }
        let key = Key { is_v6: seen.is_v6, from: seen.from, protocol: seen.protocol, id: seen.id };
        let at = match self.open.iter().rposition(|datagram| datagram.key == key) {
            Some(at) => at,
            None => self.begin(now, key),
        };
        let Some(datagram) = self.open.get_mut(at) else { return };
        datagram.fragments += 1;
        if !datagram.take(offset, more, payload) {
            self.on_evicted(at);
        } else if datagram.is_whole() {
            whole(&datagram.octets[..datagram.came_count]);
            let datagram = self.open.remove(at);
            self.spare.extend(datagram);
        }
    }

    /// Number of stored fragments of incomplete datagrams.
    pub fn waiting(&self) -> u64 {
        self.open.iter().map(|datagram| datagram.fragments).sum()
    }

    fn begin(&mut self, now: Time, key: Key) -> usize {
        if self.open.len() == OPEN_MAX {
            self.on_evicted(0);
        }
        let mut datagram = self.spare.pop().unwrap_or_else(|| Datagram {
            key,
            since: now,
            octets: vec![0; LEN_MAX],
            came: vec![0; LEN_MAX / 64],
            came_count: 0,
            end: None,
            fragments: 0,
        });
        datagram.came.fill(0);
        let (came_count, end, fragments) = (0, None, 0);
        self.open.push_back(Datagram { key, since: now, came_count, end, fragments, ..datagram });
        self.open.len() - 1
    }

    fn on_evicted(&mut self, at: usize) {
        if let Some(datagram) = self.open.remove(at) {
            self.given_up += datagram.fragments;
            self.spare.push(datagram);
        }
    }
}

impl Datagram {
    /// Stores a fragment's payload. Returns false if the fragment conflicts with an earlier one.
    fn take(&mut self, offset: usize, more: bool, payload: &[u8]) -> bool {
        let end = offset + payload.len();
        if end > LEN_MAX || self.end.is_some_and(|known| end > known || !more && end != known) {
            return false;
        }
        if !more {
            self.end = Some(end);
        }
        let (mut words, mut fresh) = (offset, 0);
        let mut has_old = false;
        while words < end {
            let word = words / 64;
            let until = end.min((word + 1) * 64);
            let bits = (u64::MAX >> (64 - (until - words))) << (words % 64);
            has_old |= self.came[word] & bits > 0;
            fresh += (bits & !self.came[word]).count_ones() as usize;
            self.came[word] |= bits;
            words = until;
        }
        let place = &mut self.octets[offset..end];
        if has_old && (fresh > 0 || place != payload) {
            return false;
        }
        place.copy_from_slice(payload);
        self.came_count += fresh;
        true
    }

    fn is_whole(&self) -> bool {
        self.end == Some(self.came_count)
    }
}

/// Reassembly time-out of a host (Linux: net.ipv4.ipfrag_time).
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of incomplete datagrams per host.
const OPEN_MAX: usize = 256;
/// Maximum length of a datagram, in bytes, rounded up to a multiple of eight.
const LEN_MAX: usize = 65_536;
