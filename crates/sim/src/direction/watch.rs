//! Packets of one direction -> counts, congestion marks and positions per flow.
//!
//! `direction.rs` compares these measurements with the ledger, and checks the laws with them.

use super::acks::AckCheck;
use crate::wire;
use engine::Tally;

/// Measurements of one direction, for the checks of laws.
#[derive(Debug, Default)]
pub struct Watch {
    pub came: Tally,
    pub put_count: u64,
    /// Frames dropped because no buffer was free.
    pub lost_count: u64,
    /// Received packets with data that follows later data.
    pub repeat_count: u64,
    /// Received ICMP errors about packets that are too big.
    pub too_big_count: u64,
    /// Flows with shorter segments, and packets that repeated data, at the last check of sizes.
    pub size_counts: [u64; 2],
    pub orders: Vec<OrderCheck>,
    pub marks: EcnCounts,
    pub acks: AckCheck,
    /// Number of events since the last recount of stored data, and number of entries in that recount.
    pub since_walk: usize,
    pub walk_len: usize,
}

/// Payload bytes received and transmitted with a congestion mark (RFC 3168).
#[derive(Clone, Copy, Debug, Default)]
pub struct EcnCounts {
    pub came: u64,
    pub went: u64,
    /// Whether any marked packet was a fragment. A marked fragment, if merged, marks the bytes of others too.
    pub in_fragments: bool,
}

/// The highest position of a flow so far, at ingress and at egress. The `late` fields count data that followed data
/// with a higher position.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrderCheck {
    pub top_in: u64,
    pub late_in: u64,
    pub top_out: u64,
    pub late_out: u64,
}

impl Watch {
    pub fn order(&mut self, flow: usize) -> &mut OrderCheck {
        if flow >= self.orders.len() {
            self.orders.resize(flow + 1, OrderCheck::default());
        }
        &mut self.orders[flow]
    }
}

impl EcnCounts {
    /// Counts a received packet's marked bytes. Fragments of segments are ignored, because the length of their TCP
    /// header is unknown.
    #[inline]
    pub fn comes(&mut self, front: &[u8]) {
        if let Some(marked) = wire::marked(front) {
            self.in_fragments |= marked.is_fragment;
            self.came += if marked.is_fragment && marked.is_tcp { 0 } else { marked.len };
        }
    }

    #[inline]
    pub fn goes(&mut self, front: &[u8]) {
        if let Some(marked) = wire::marked(front) {
            self.in_fragments |= marked.is_fragment;
            self.went += marked.len;
        }
    }
}

impl OrderCheck {
    /// Returns the length of the part that follows data with a higher position, as repeated data does.
    #[inline]
    pub fn comes(&mut self, start: u64, len: u64) -> u64 {
        let late = late(&mut self.top_in, start, len);
        self.late_in += late;
        late
    }

    #[inline]
    pub fn goes(&mut self, start: u64, len: u64) {
        self.late_out += late(&mut self.top_out, start, len);
    }
}

/// The length of the part of a range below the highest position `top`. Raises `top` to the range's end.
#[inline]
fn late(top: &mut u64, start: u64, len: u64) -> u64 {
    let behind = top.saturating_sub(start).min(len);
    *top = (*top).max(start + len);
    behind
}
