//! Threads that share a queue, in every interleaving. No entry is lost or overtaken, and no thread sleeps while an
//! entry waits.
//!
//! `all/handover.rs` tests that a worker clears its eventfd first.

use queue::Queue;
use sync::{Arc, EventFd};

#[path = "../src/queue.rs"]
mod queue;

/// Replaces the standard lock and the kernel's eventfd by versions that are tested in every order.
mod sync {
    use loom::sync::Condvar;
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};

    pub(crate) struct EventFd {
        rings: Mutex<bool>,
        rang: Condvar,
    }

    impl EventFd {
        pub fn new() -> EventFd {
            EventFd { rings: Mutex::new(false), rang: Condvar::new() }
        }

        pub fn wake(&self) {
            *self.rings.lock().unwrap() = true;
            self.rang.notify_one();
        }

        pub fn clear(&self) {
            *self.rings.lock().unwrap() = false;
        }

        pub fn rings(&self) -> bool {
            *self.rings.lock().unwrap()
        }

        /// Waits for a signal; a lost signal is a deadlock, which the test detects.
        pub fn wait(&self) {
            let mut rings = self.rings.lock().unwrap();
            while !*rings {
                rings = self.rang.wait(rings).unwrap();
            }
        }
    }
}

#[test]
fn no_worker_sleeps_while_a_queue_holds_items() {
    loom::model(|| {
        let (eventfd, [first, second]) = two_boxes();
        let givers = [&first, &second].map(|to| give(to, 1));
        let mut taken = 0;
        while taken < 2 {
            eventfd.wait();
            eventfd.clear();
            taken += take_all(&first) + take_all(&second);
        }
        givers.into_iter().for_each(|giver| assert_eq!(giver.join().unwrap(), 1));
    });
}

#[test]
fn queued_items_signal_the_event() {
    loom::model(|| {
        let (eventfd, [first, _]) = two_boxes();
        let giver = give(&first, 2);
        eventfd.clear();
        take_all(&first);
        giver.join().unwrap();
        assert!(eventfd.rings() || take_all(&first) == 0, "it waits, and nobody hears of it");
    });
}

#[test]
#[should_panic(expected = "it waits, and nobody hears of it")]
fn clearing_the_event_after_reading_loses_a_wake_up() {
    loom::model(|| {
        let (eventfd, [first, _]) = two_boxes();
        let giver = give(&first, 2);
        take_all(&first);
        eventfd.clear();
        giver.join().unwrap();
        assert!(eventfd.rings() || take_all(&first) == 0, "it waits, and nobody hears of it");
    });
}

#[test]
fn items_pushed_to_a_closing_queue_are_stored_or_refused() {
    loom::model(|| {
        let (_, [first, _]) = two_boxes();
        let giver = give(&first, 3);
        let taken = take_all(&first);
        let rest = first.close();
        assert!(rest.iter().copied().eq(taken..taken + rest.len()), "{rest:?} behind {taken}");
        let taken = taken + rest.len();
        assert_eq!(giver.join().unwrap(), taken);
        assert!(!first.put(0, || 0), "nobody takes it any more");
    });
}

#[test]
fn a_queue_never_exceeds_its_capacity() {
    loom::model(|| {
        let first = Arc::new(Queue::new(Arc::new(EventFd::new()), 1));
        let givers = [0, 1].map(|_| give(&first, 1));
        let early = std::iter::from_fn(|| first.take()).count();
        let put: usize = givers.into_iter().map(|giver| giver.join().unwrap()).sum();
        let late = first.close().len();
        assert_eq!(put, early + late);
        assert!(late <= 1 && put >= 1, "{put} put, {late} of them still there");
    });
}

type Shared = Arc<Queue<usize>>;

/// Two queues with one eventfd.
fn two_boxes() -> (Arc<EventFd>, [Shared; 2]) {
    let eventfd = Arc::new(EventFd::new());
    let boxes = [0, 1].map(|_| Arc::new(Queue::new(Arc::clone(&eventfd), usize::MAX)));
    (eventfd, boxes)
}

/// A thread that adds `count` entries, each of size 1. It returns the number of accepted ones.
fn give(to: &Shared, count: usize) -> loom::thread::JoinHandle<usize> {
    let to = Arc::clone(to);
    loom::thread::spawn(move || (0..count).filter(|number| to.put(1, || *number)).count())
}

/// Takes all entries. One thread added them in the order of their numbers; these are the first ones.
fn take_all(from: &Shared) -> usize {
    let all: Vec<_> = std::iter::from_fn(|| from.take()).collect();
    assert!(all.iter().copied().eq(0..all.len()), "{all:?}");
    all.len()
}
