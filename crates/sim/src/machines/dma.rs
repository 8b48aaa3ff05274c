//! Transfer requests -> completion times of a DMA engine (G30, L16, L19).
//!
//! The DMA engine often limits the packet rate of a NIC. Each request needs a start-up time, and then the bus for
//! its bytes. The bus transfers one request at a time. Without tags, a request starts up when the previous one is
//! complete. With tags, several requests start up during the transfer of another.

use packet::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The settings of a DMA engine. G30 asks for these to be configurable.
#[derive(Clone, Debug)]
pub struct DmaSettings {
    /// Start-up time of a request, which dominates small transfers (L19).
    pub start: Duration,
    /// Rate of the bus.
    pub bytes_per_second: u64,
    /// The order in which requests are served.
    pub order: WriteOrder,
    /// Maximum number of requests in progress; 1 = no tagged queueing.
    pub tag_count: usize,
    /// Maximum number of waiting requests. Further requests are rejected.
    pub depth: usize,
    /// When the completion of a request is reported.
    pub notice: Notice,
    /// Number of transferred bytes after which the next step may use the data; `None` = after the complete
    /// transfer.
    pub threshold: Option<u32>,
}

/// The order in which waiting requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// Oldest request first.
    FirstIn,
    /// Newest request first. The engine stores requests on a stack, so busy queues starve others (L16).
    LastIn,
    /// One request of each queue in turn (L16).
    RoundRobin,
    /// The oldest request of the queue with the lowest number.
    Priority,
}

/// When the completion of a request is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Immediately (L16).
    AtOnce,
    /// In groups: after `count` completions, or when the first has waited for `within`.
    Together {
        /// Number of completions in a group.
        count: usize,
        /// Maximum delay of a report.
        within: Duration,
    },
}

/// A request to transfer data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Identifier of the request.
    pub number: u64,
    /// Number of the queue. Each thread or connection has one.
    pub queue: u32,
    /// Length of the transfer, in bytes.
    pub len: u32,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The completed request.
    pub request: Request,
    /// Time when the request was made.
    pub asked: Time,
    /// Time when enough bytes were transferred for the next step.
    pub usable: Time,
    /// Time when the transfer was complete.
    pub ended: Time,
}

/// The state of a DMA engine.
#[derive(Clone, Debug)]
pub struct Dma {
    settings: DmaSettings,
    /// Waiting requests, by queue. Orders that ignore queues use a single one.
    waiting: BTreeMap<u32, VecDeque<(Request, Time)>>,
    waiting_count: usize,
    /// The queue that was served last.
    last_turn: u32,
    /// Requests in progress, in the order of their completion.
    moving: VecDeque<Done>,
    bus_free: Time,
    ended: Vec<Done>,
}

impl Dma {
    /// An engine without requests.
    pub fn new(settings: DmaSettings) -> Dma {
        Dma {
            settings,
            waiting: BTreeMap::new(),
            waiting_count: 0,
            last_turn: u32::MAX,
            moving: VecDeque::new(),
            bus_free: Time::ZERO,
            ended: Vec::new(),
        }
    }

    /// Duration of a single transfer: start-up time and bus time.
    pub fn time_alone(&self, len: u32) -> Duration {
        self.settings.start + self.crossing(len)
    }

    /// Number of waiting requests.
    pub fn waiting_count(&self) -> usize {
        self.waiting_count
    }

    /// Adds a request. The caller must first call [`expire`](Dma::expire) with the same time. Returns false if the
    /// queue was full.
    #[must_use]
    pub fn push(&mut self, now: Time, request: Request) -> bool {
        if self.waiting_count >= self.settings.depth {
            return false;
        }
        let queue = match self.settings.order {
            WriteOrder::FirstIn | WriteOrder::LastIn => 0,
            WriteOrder::RoundRobin | WriteOrder::Priority => request.queue,
        };
        self.waiting.entry(queue).or_default().push_back((request, now));
        self.waiting_count += 1;
        self.begin(now);
        true
    }

    /// Time of the next completion or report; `None` if the engine is idle.
    pub fn next_deadline(&self) -> Option<Time> {
        [self.moving.front().map(|done| done.ended), self.notice_at()].into_iter().flatten().min()
    }

    /// Completes all requests due until `now`. Calls `out` with each reported request, in the order of completion.
    pub fn expire(&mut self, now: Time, mut out: impl FnMut(Done)) {
        while let Some(done) = self.moving.pop_front_if(|done| done.ended <= now) {
            self.tell(done.ended, &mut out);
            self.ended.push(done);
            self.begin(done.ended);
        }
        self.tell(now, &mut out);
    }

    fn tell(&mut self, now: Time, out: &mut impl FnMut(Done)) {
        if self.notice_at().is_some_and(|at| at <= now) {
            self.ended.drain(..).for_each(out);
        }
    }

    fn notice_at(&self) -> Option<Time> {
        let (first, last) = (self.ended.first()?, self.ended.last()?);
        match self.settings.notice {
            Notice::AtOnce => Some(first.ended),
            Notice::Together { count, .. } if self.ended.len() >= count => Some(last.ended),
            Notice::Together { within, .. } => Some(first.ended + within),
        }
    }

    /// Starts waiting requests as long as tags are free.
    fn begin(&mut self, now: Time) {
        while self.moving.len() < self.settings.tag_count.max(1)
            && let Some((request, asked)) = self.next_turn()
        {
            let starts = (now + self.settings.start).max(self.bus_free);
            let ended = starts + self.crossing(request.len);
            let usable = self.settings.threshold.map_or(ended, |len| starts + self.crossing(len.min(request.len)));
            self.bus_free = ended;
            self.moving.push_back(Done { request, asked, usable, ended });
        }
    }

    fn next_turn(&mut self) -> Option<(Request, Time)> {
        let mut queue = match self.settings.order {
            WriteOrder::FirstIn | WriteOrder::LastIn | WriteOrder::Priority => self.waiting.first_entry()?,
            WriteOrder::RoundRobin => {
                let next = self.waiting.range(self.last_turn.wrapping_add(1)..).next().map(|(queue, _)| *queue);
                let next = next.or_else(|| self.waiting.keys().next().copied())?;
                self.last_turn = next;
                match self.waiting.entry(next) {
                    std::collections::btree_map::Entry::Occupied(queue) => queue,
                    std::collections::btree_map::Entry::Vacant(_) => return None,
                }
            }
        };
        let requests = queue.get_mut();
        let turn =
            if self.settings.order == WriteOrder::LastIn { requests.pop_back() } else { requests.pop_front() };
        if requests.is_empty() {
            queue.remove();
        }
        self.waiting_count -= usize::from(turn.is_some());
        turn
    }

    fn crossing(&self, len: u32) -> Duration {
        let nanos = u128::from(len) * 1_000_000_000 / u128::from(self.settings.bytes_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: DmaSettings = DmaSettings {
        start: Duration::from_micros(10),
        bytes_per_second: 1_000_000_000,
        order: WriteOrder::FirstIn,
        tag_count: 1,
        depth: 4,
        notice: Notice::AtOnce,
        threshold: None,
    };

    /// Number and report time (in microseconds) of each request. There is one request of 1,000 bytes at time 0 for
    /// each entry of `queues`.
    fn told(settings: &DmaSettings, queues: &[u32]) -> Vec<(u64, u64)> {
        let mut dma = Dma::new(settings.clone());
        for (number, queue) in queues.iter().enumerate() {
            assert!(dma.push(Time::ZERO, Request { number: number as u64, queue: *queue, len: 1_000 }));
        }
        let mut told = Vec::new();
        while let Some(at) = dma.next_deadline() {
            dma.expire(at, |done| told.push((done.request.number, at.nanos() / 1_000)));
        }
        told
    }

    fn order(order: WriteOrder, queues: &[u32]) -> Vec<u64> {
        told(&DmaSettings { order, ..ENGINE }, queues).into_iter().map(|(number, _)| number).collect()
    }

    // L16, G30
    #[test]
    fn each_order_serves_requests_by_its_rule() {
        let queues = [3, 3, 1, 2];
        assert_eq!(order(WriteOrder::FirstIn, &queues), [0, 1, 2, 3]);
        assert_eq!(order(WriteOrder::LastIn, &queues), [0, 3, 2, 1], "what has begun ends first");
        assert_eq!(order(WriteOrder::RoundRobin, &queues), [0, 2, 3, 1]);
        assert_eq!(order(WriteOrder::Priority, &queues), [0, 2, 3, 1]);
        assert_eq!(order(WriteOrder::Priority, &[3, 1, 3, 1]), [0, 1, 3, 2]);
        assert_eq!(order(WriteOrder::RoundRobin, &[1, 1, 3, 3]), [0, 2, 1, 3]);
    }

    // L19, G30
    #[test]
    fn a_transfer_takes_its_start_and_its_bytes_and_tags_hide_the_start() {
        assert_eq!(told(&ENGINE, &[0; 3]), [(0, 11), (1, 22), (2, 33)]);
        assert_eq!(told(&DmaSettings { tag_count: 2, ..ENGINE }, &[0; 3]), [(0, 11), (1, 12), (2, 22)]);
        assert_eq!(Dma::new(ENGINE).time_alone(2_000), Duration::from_micros(12));
    }

    // G30
    #[test]
    fn completions_are_batched_by_count_or_age() {
        let notice = Notice::Together { count: 2, within: Duration::from_micros(50) };
        assert_eq!(told(&DmaSettings { notice, ..ENGINE }, &[0; 3]), [(0, 22), (1, 22), (2, 83)]);
    }

    #[test]
    fn a_request_beyond_the_queue_is_refused() {
        let mut dma = Dma::new(ENGINE);
        let request = |number| Request { number, queue: 0, len: 1 };
        let taken = (0..7).filter(|number| dma.push(Time::ZERO, request(*number))).count();
        assert_eq!((taken, dma.waiting_count()), (5, 4), "one moves, four wait");
    }
}
