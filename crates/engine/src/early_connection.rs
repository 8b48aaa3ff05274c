//! Data of a narrow host and acknowledgements of its wide host -> the number to acknowledge early.
//!
//! One connection at a border that acknowledges data before the wide host does. The border owes the wide host the
//! bytes between the host's own number and the early one. It keeps a copy of each, and sends it again if the host
//! does not acknowledge it. So the early number is only raised over bytes that are kept and that the host's window
//! allows.
//!
//! The memory limit of all connections is left to the [store](crate::ack_store), and packets to the
//! [stage](crate::early_acks).

use core::time::Duration;
use packet::tcp::is_before;
use packet::{Checksum, Frame, Gso, Ingress, LinkType, Packet, Pool, TcpReply, Time, Timestamps, tcp};
use std::collections::VecDeque;

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct EarlyConnection {
    /// The sequence numbers of both SYNs, which tell this connection from a later one between the same ports.
    syns: [u32; 2],
    /// The shifts of the wide host's windows and of the narrow host's, in bits.
    shift: u8,
    narrow_shift: u8,
    /// The wide host has acknowledged the bytes before this one.
    una: u32,
    /// The narrow host was told that the bytes before this one have arrived.
    acked: u32,
    /// The byte after the last one that the narrow host sent.
    sent: u32,
    /// The byte after the window that the wide host offers, and the one that the narrow host was told.
    edge: u32,
    told_edge: u32,
    /// The next sequence number of the wide host, and its last timestamp.
    next: u32,
    stamp: Option<u32>,
    /// The narrow host's timestamp to echo (RFC 7323 section 4.3).
    recent: Option<u32>,
    /// The acknowledgement in the narrow host's last packet, for data that is sent again.
    of_narrow: OfNarrow,
    /// The largest window of the narrow host, without its shift.
    narrow_window_max: u16,
    /// The last early number that was sent, and the number of segments since.
    replied: u32,
    pending_count: usize,
    /// Copies in the order of their sequence numbers, without overlaps. Those before `acked` have no gaps.
    copies: VecDeque<SegmentCopy>,
    /// Charges of all copies, in bytes.
    charge: usize,
    repeat: Repeat,
    rtt: Option<Rtt>,
}

/// The fields of a narrow host's packet that change with its acknowledgements.
#[derive(Clone, Copy, Debug)]
struct OfNarrow {
    ack: u32,
    window: u16,
    timestamps: Option<Timestamps>,
}

/// The state of sending again.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    /// The time of the next attempt. `None` while nothing is owed.
    due: Option<Time>,
    /// Number of time-outs since the wide host last acknowledged new data.
    timeout_count: u32,
    duplicate_count: u32,
    /// Until the wide host has acknowledged the bytes before this one, each of its steps shows another loss (RFC 6582).
    recover: Option<u32>,
    is_fast: bool,
}

/// The measured time between a segment and its acknowledgement (RFC 6298).
#[derive(Clone, Copy, Debug)]
struct Rtt {
    smoothed: Duration,
    deviation: Duration,
}

/// A copy of a segment.
#[derive(Debug)]
struct SegmentCopy {
    start: u32,
    end: u32,
    kept: Time,
    is_repeated: bool,
    frame: Box<[u8]>,
    link_type: LinkType,
    ingress: Ingress,
    checksum: Checksum,
    gso: Option<Gso>,
}

/// A packet of the narrow host, without SYN and RST.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) seq: u32,
    /// The byte after its data.
    pub(crate) end: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) has_fin: bool,
    pub(crate) timestamps: Option<Timestamps>,
}

/// An acknowledgement of the wide host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostAck {
    pub(crate) seq: u32,
    /// The sequence number after its data and its FIN.
    pub(crate) end: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    /// Whether the packet carries nothing but the acknowledgement, SACK blocks and timestamps.
    pub(crate) is_pure: bool,
    /// The byte after the first SACK block, and the highest start of a block. `None` without blocks.
    pub(crate) sack: Option<[u32; 2]>,
    pub(crate) stamp: Option<u32>,
}

/// The treatment of a wide host's acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Unchanged,
    /// The narrow host knows all of it.
    Absorb,
    /// It gets this number and this window. SACK blocks up to the number are removed.
    Rewrite(u32, u16),
}

impl EarlyConnection {
    /// Starts with the last acknowledgement of the wide host: its number, its right edge, and the end of the data that
    /// was sent. `first` is a packet of the narrow host.
    /// The shifts are those of the wide host's windows and of the narrow host's.
    pub(crate) fn new(
        syns: [u32; 2],
        [shift, narrow_shift]: [u8; 2],
        [una, edge, sent]: [u32; 3],
        first: &Heard,
    ) -> EarlyConnection {
        EarlyConnection {
            syns,
            shift,
            narrow_shift,
            una,
            acked: una,
            sent,
            edge,
            told_edge: edge,
            next: first.ack,
            stamp: first.timestamps.map(|stamps| stamps.echo),
            recent: first.timestamps.map(|stamps| stamps.value),
            of_narrow: OfNarrow { ack: first.ack, window: first.window, timestamps: first.timestamps },
            narrow_window_max: first.window,
            replied: una,
            pending_count: 0,
            copies: VecDeque::new(),
            charge: 0,
            repeat: Repeat { due: None, timeout_count: 0, duplicate_count: 0, recover: None, is_fast: false },
            rtt: None,
        }
    }

    /// Whether the connection began with these SYNs.
    pub(crate) fn began_with(&self, syns: [u32; 2]) -> bool {
        self.syns == syns
    }

    /// Whether bytes are owed to the wide host.
    pub(crate) fn owes(&self) -> bool {
        self.acked != self.una
    }

    /// Whether this byte is owed.
    pub(crate) fn owes_byte(&self, seq: u32) -> bool {
        !is_before(seq, self.una) && is_before(seq, self.acked)
    }

    /// Returns the number of owed bytes.
    pub(crate) fn owed_len(&self) -> usize {
        self.acked.wrapping_sub(self.una) as usize
    }

    /// Returns the bytes charged for the copies.
    pub(crate) fn charge(&self) -> usize {
        self.charge
    }

    /// Returns the time of the next attempt to send owed bytes again.
    pub(crate) fn due(&self) -> Option<Time> {
        self.repeat.due
    }

    /// Whether a RST with this sequence number ends the connection (RFC 5961 section 3.2). `is_of_narrow`: the narrow
    /// host sent it. A wide host that has closed the connection answers with the number that it was sent (RFC 9293
    /// section 3.10.7.1).
    pub(crate) fn is_ended_by(&self, seq: u32, is_of_narrow: bool) -> bool {
        if is_of_narrow { seq == self.sent } else { seq == self.next || seq == self.of_narrow.ack }
    }

    /// Whether the wide host would accept a packet of the narrow host. Others may be forged, and nothing is concluded from
    /// them:
    ///
    /// - its data is not in the window (RFC 9293 section 3.10.7.4);
    /// - it acknowledges data far from that of the wide host (RFC 5961 section 5);
    /// - its timestamp is earlier than the last one (RFC 7323 section 5).
    pub(crate) fn accepts(&self, heard: &Heard) -> bool {
        let &Heard { seq, end, ack, timestamps, .. } = heard;
        let edge = self.last_edge();
        // A probe of a closed window has one byte behind it.
        let is_in_window = !is_before(edge.wrapping_add(1), end) && edge.wrapping_sub(seq) <= 2 * self.wide_range();
        let is_early = |value| self.recent.is_some_and(|recent| is_before(value, recent));
        is_in_window
            && self.next.wrapping_sub(ack).wrapping_add(self.narrow_range()) <= 3 * self.narrow_range()
            && !timestamps.is_some_and(|stamps| is_early(stamps.value))
    }

    /// Takes a packet of the narrow host that the wide host [`accepts`](Self::accepts). Returns whether it repeats bytes
    /// that only the border has acknowledged, and so must be answered: the early number may be lost, or the host probes.
    pub(crate) fn take_packet(&mut self, heard: &Heard) -> bool {
        let &Heard { seq, end, ack, window, has_fin, timestamps } = heard;
        let last = self.of_narrow.timestamps;
        let is_later = match (last, timestamps) {
            (Some(last), Some(new)) => !is_before(new.value, last.value),
            _ => true,
        };
        if is_later {
            self.of_narrow.timestamps = timestamps.or(last);
        }
        if !is_before(ack, self.of_narrow.ack) {
            (self.of_narrow.ack, self.of_narrow.window) = (ack, window);
        }
        self.narrow_window_max = self.narrow_window_max.max(window);
        // Data of the wide host may have taken another way.
        advance(&mut self.next, ack);
        advance(&mut self.sent, end.wrapping_add(has_fin.into()));
        if let Some(Timestamps { value, .. }) = timestamps
            && !is_before(self.replied, seq)
            && self.recent.is_none_or(|recent| !is_before(value, recent))
        {
            self.recent = Some(value);
        }
        // A packet without data asks only if it is a probe: others are acknowledgements, which need no answer.
        let asks = seq != end || seq == self.acked.wrapping_sub(1);
        self.owes() && asks && is_before(seq, self.acked) && !is_before(self.acked, end)
    }

    /// The furthest right edge: the wide host may have accepted data up to it.
    fn last_edge(&self) -> u32 {
        let mut edge = self.edge;
        advance(&mut edge, self.told_edge);
        edge
    }

    /// Returns the length of the wide host's window, and the least one that is assumed, in bytes.
    fn wide_range(&self) -> u32 {
        self.last_edge().wrapping_sub(self.una).clamp(RANGE_MIN, RANGE_MAX)
    }

    /// Returns the same of the narrow host. Data may be on the way that an earlier window allowed.
    fn narrow_range(&self) -> u32 {
        (u32::from(self.narrow_window_max) << self.narrow_shift).clamp(RANGE_MIN, RANGE_MAX)
    }

    /// Returns the charge for a copy of this segment. `None` if no copy is needed, or none can be used: its bytes are
    /// acknowledged, are kept already, or are beyond the window.
    pub(crate) fn charge_for(&self, heard: &Heard, packet: &Packet) -> Option<usize> {
        let &Heard { seq, end, .. } = heard;
        let at = self.place_of(seq);
        let overlaps_last =
            at.checked_sub(1).and_then(|last| self.copies.get(last)).is_some_and(|it| is_before(seq, it.end));
        let overlaps_next = self.copies.get(at).is_some_and(|next| is_before(next.start, end));
        let has_place = self.copies.len() - at <= EARLY_COPIES_MAX;
        let is_useful = has_place
            && !is_before(seq, self.una)
            && !is_before(self.edge, end)
            && !overlaps_last
            && !overlaps_next;
        is_useful.then_some(packet.frame().len() + COPY_CHARGE)
    }

    /// Keeps a copy of a segment. Returns whether an early acknowledgement is to be sent, because there are two
    /// unacknowledged segments (RFC 9293 section 3.8.6.3).
    pub(crate) fn keep(&mut self, now: Time, heard: &Heard, packet: &Packet) -> bool {
        let copy = SegmentCopy {
            start: heard.seq,
            end: heard.end,
            kept: now,
            is_repeated: false,
            frame: packet.frame().into(),
            link_type: packet.link_type(),
            ingress: packet.ingress(),
            checksum: packet.checksum,
            gso: packet.gso,
        };
        self.charge += copy.charge();
        self.copies.insert(self.place_of(heard.seq), copy);
        let before = self.acked;
        self.extend(now);
        if self.acked != before {
            self.pending_count += packet.wire_count();
        }
        self.pending_count >= 2
    }

    /// Whether the narrow host has not been told the early number.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending_count > 0
    }

    /// Returns the early acknowledgement.
    pub(crate) fn reply(&mut self) -> TcpReply {
        self.pending_count = 0;
        let window = self.window();
        self.tell(window);
        let timestamps = self.stamp.zip(self.recent).map(|(stamp, recent)| [stamp, recent]);
        TcpReply { seq: self.next, ack: self.acked, window, flags: tcp::ACK, timestamps }
    }

    /// Returns the RST for the narrow host, whose data the wide host does not acknowledge.
    pub(crate) fn reset(&self) -> TcpReply {
        TcpReply { seq: self.next, ack: self.acked, window: 0, flags: tcp::RST | tcp::ACK, timestamps: None }
    }

    /// Takes an acknowledgement of the wide host.
    pub(crate) fn take_ack(&mut self, now: Time, said: &HostAck) -> Treatment {
        let &HostAck { seq, end, ack, window, is_pure, sack, stamp } = said;
        // As the narrow host would judge: the number is in its window, and the acknowledgement is of its data, and not old.
        let range = self.narrow_range();
        let is_forged = seq.wrapping_sub(self.of_narrow.ack).wrapping_add(range) > 2 * range
            || is_before(self.last_edge().wrapping_add(1), ack)
            || is_before(ack, self.una.wrapping_sub(self.wide_range()));
        if is_forged {
            return Treatment::Unchanged;
        }
        advance(&mut self.next, end);
        // Data may have taken another way.
        advance(&mut self.sent, ack);
        if let Some(stamp) = stamp
            && !is_before(seq, self.of_narrow.ack)
            && !is_before(ack, self.una)
        {
            self.stamp = Some(self.stamp.filter(|last| is_before(stamp, *last)).unwrap_or(stamp));
        }
        let (owed, acked) = (self.owes(), self.acked);
        if !is_before(ack, self.una) {
            let edge = ack.wrapping_add(u32::from(window) << self.shift);
            let is_duplicate = ack == self.una && owed && is_pure && edge == self.edge;
            self.edge = edge;
            // A host with a closed window answers, but takes no data.
            if edge == ack {
                self.repeat.timeout_count = self.repeat.timeout_count.min(TIMEOUT_COUNT_MAX - 1);
            }
            if ack != self.una {
                self.advance_to(now, ack);
            } else if is_duplicate && sack.is_none_or(|[first_end, _]| is_before(ack, first_end)) {
                self.count_duplicate(now);
            }
        }
        if !owed && self.acked == acked || is_before(acked, ack) && self.acked == ack {
            // The narrow host needs the wide host's own acknowledgement.
            advance(&mut self.told_edge, ack.wrapping_add(u32::from(window) << self.shift));
            return Treatment::Unchanged;
        }
        let window = self.window();
        let tells_window = is_before(self.told_edge, self.edge_with(window));
        let tells_hole = sack.is_some_and(|[_, last_start]| is_before(self.acked, last_start));
        if is_pure && !tells_window && !tells_hole && self.acked == acked {
            return Treatment::Absorb;
        }
        self.tell(window);
        Treatment::Rewrite(self.acked, window)
    }

    /// Takes the time at which bytes are to be sent again. Calls `send` with a fresh copy of each segment: the first owed
    /// ones, up to `len_max` bytes. Returns false after the last attempt.
    pub(crate) fn repeat(&mut self, now: Time, len_max: usize, pool: &mut Pool, send: impl FnMut(Packet)) -> bool {
        let is_fast = core::mem::take(&mut self.repeat.is_fast);
        if !is_fast {
            self.repeat.timeout_count += 1;
            self.repeat.recover = Some(self.acked);
        }
        if self.repeat.timeout_count > TIMEOUT_COUNT_MAX {
            return false;
        }
        self.repeat.due = Some(now + self.timeout());
        self.send_owed(len_max, pool, send);
        true
    }

    /// Calls `send` with a fresh copy of each owed segment, up to `len_max` bytes, and at least one.
    pub(crate) fn send_owed(&mut self, len_max: usize, pool: &mut Pool, mut send: impl FnMut(Packet)) {
        let mut len = 0;
        let EarlyConnection { copies, of_narrow, acked, .. } = self;
        for copy in copies.iter_mut().take_while(|copy| is_before(copy.start, *acked)) {
            len += copy.frame.len();
            if len > len_max && len > copy.frame.len() {
                return;
            }
            let Some(packet) = copy.packet(of_narrow, pool) else { return };
            copy.is_repeated = true;
            send(packet);
        }
    }

    /// Returns the number of copies of owed segments.
    pub(crate) fn owed_count(&self) -> usize {
        self.copies.iter().take_while(|copy| is_before(copy.start, self.acked)).count()
    }

    /// Returns a packet of the narrow host that the border owes, to be answered.
    pub(crate) fn first(&self, pool: &mut Pool) -> Option<Packet> {
        self.copies.front()?.packet(&self.of_narrow, pool)
    }

    /// Takes a new number of the wide host.
    fn advance_to(&mut self, now: Time, ack: u32) {
        self.una = ack;
        // A copy behind a hole whose first part arrived otherwise may be forged.
        let is_doubtful = |copy: &SegmentCopy| is_before(copy.start, ack) && is_before(ack, copy.end);
        let acked = self.acked;
        advance(&mut self.acked, ack);
        advance(&mut self.replied, ack);
        let mut sample = None;
        while let Some(copy) = self
            .copies
            .pop_front_if(|copy| !is_before(ack, copy.end) || is_doubtful(copy) && is_before(acked, copy.end))
        {
            self.charge -= copy.charge();
            sample = Some(copy.kept).filter(|_| !copy.is_repeated && !is_before(ack, copy.end));
        }
        if self.copies.capacity() / 4 > self.copies.len().max(16) {
            self.copies.shrink_to(2 * self.copies.len());
        }
        if let Some(kept) = sample {
            self.rtt = Some(Rtt::with(self.rtt, now.since(kept)));
        }
        let Repeat { recover, .. } = self.repeat;
        let recover = recover.filter(|recover| is_before(ack, *recover));
        self.repeat =
            Repeat { due: None, timeout_count: 0, duplicate_count: 0, recover, is_fast: recover.is_some() };
        self.extend(now);
        if recover.is_some() && self.owes() {
            self.repeat.due = Some(now);
        }
    }

    fn count_duplicate(&mut self, now: Time) {
        self.repeat.duplicate_count += 1;
        if self.repeat.duplicate_count == DUPLICATE_COUNT && self.repeat.recover.is_none() {
            self.repeat = Repeat { due: Some(now), recover: Some(self.acked), is_fast: true, ..self.repeat };
        }
    }

    /// Raises the early number over the bytes that are kept.
    fn extend(&mut self, now: Time) {
        let from = self.copies.partition_point(|copy| !is_before(self.acked, copy.end));
        for copy in self.copies.range(from..) {
            if is_before(self.acked, copy.start) {
                break;
            }
            self.acked = copy.end;
        }
        if self.owes() && self.repeat.due.is_none() {
            self.repeat.due = Some(now + self.timeout());
        }
    }

    /// Returns the place of a copy that starts at this number.
    fn place_of(&self, seq: u32) -> usize {
        self.copies.partition_point(|copy| is_before(copy.start, seq))
    }

    /// Returns the window behind the early number, up to the right edge of the wide host (L21).
    fn window(&self) -> u16 {
        let len = self.edge.wrapping_sub(self.acked) as i32;
        (len.max(0) >> self.shift).min(u16::MAX.into()) as u16
    }

    fn edge_with(&self, window: u16) -> u32 {
        self.acked.wrapping_add(u32::from(window) << self.shift)
    }

    /// Records that the narrow host is told the early number with this window.
    fn tell(&mut self, window: u16) {
        self.replied = self.acked;
        let edge = self.edge_with(window);
        advance(&mut self.told_edge, edge);
    }

    /// Returns the time-out until bytes are sent again, doubled for each time-out before (RFC 6298).
    fn timeout(&self) -> Duration {
        let first = self.rtt.map_or(TIMEOUT_FIRST, |rtt| rtt.smoothed + (4 * rtt.deviation).max(TIMEOUT_MIN));
        first.saturating_mul(1 << self.repeat.timeout_count.min(TIMEOUT_COUNT_MAX)).min(TIMEOUT_MAX)
    }
}

impl SegmentCopy {
    fn charge(&self) -> usize {
        self.frame.len() + COPY_CHARGE
    }

    /// Returns a fresh copy. It has the narrow host's last acknowledgement, so that the wide host accepts it (RFC 5961
    /// section 5, RFC 7323 section 5). It has no ECN (RFC 3168 section 6.1.5).
    fn packet(&self, of_narrow: &OfNarrow, pool: &mut Pool) -> Option<Packet> {
        let mut packet = Frame::copy(&self.frame, self.link_type, self.ingress, pool).ok()?;
        (packet.checksum, packet.gso) = (self.checksum, self.gso);
        packet.clear_ecn();
        packet.set_ack(of_narrow.ack, of_narrow.window);
        if let (Some(own), Some(last)) = (packet.timestamps(), of_narrow.timestamps) {
            packet.set_timestamps(&Timestamps { at: own.at, ..last });
        }
        Some(packet)
    }
}

impl Rtt {
    fn with(rtt: Option<Rtt>, sample: Duration) -> Rtt {
        let Some(Rtt { smoothed, deviation }) = rtt else {
            return Rtt { smoothed: sample, deviation: sample / 2 };
        };
        Rtt {
            smoothed: smoothed * 7 / 8 + sample / 8,
            deviation: deviation * 3 / 4 + smoothed.abs_diff(sample) / 4,
        }
    }
}

/// Raises a sequence number to a later one.
fn advance(number: &mut u32, later: u32) {
    if is_before(*number, later) {
        *number = later;
    }
}

/// Charge of a copy beside its frame, in bytes.
const COPY_CHARGE: usize = 128;
/// Number of equal acknowledgements that show a loss (RFC 5681 section 3.2).
const DUPLICATE_COUNT: u32 = 3;
/// Number of time-outs after which a connection is given up. With the others, it takes a quarter of an hour, as in
/// Linux (tcp_retries2).
const TIMEOUT_COUNT_MAX: u32 = 15;
/// The time-out before the first measurement (RFC 6298 section 2), the least one above a measured time, and the longest
/// one. Hosts delay acknowledgements by up to 200 ms.
const TIMEOUT_FIRST: Duration = Duration::from_secs(1);
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
const TIMEOUT_MAX: Duration = Duration::from_secs(120);
/// The least and the largest window that numbers are compared with, in bytes (RFC 7323 section 2.3).
const RANGE_MIN: u32 = 1 << 16;
const RANGE_MAX: u32 = 1 << 29;
/// Largest number of copies behind a new one, which move to make place.
const EARLY_COPIES_MAX: usize = 1_024;
