//! Requests of a worker process -> their results from the supervisor.
//!
//! The control socket is served in the worker process, but reload, restart and stop need the supervisor.

use crate::messages::{Done, SupervisorRequest, ToSupervisor, say};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A client that sends requests to the supervisor.
#[derive(Clone, Debug)]
pub struct SupervisorClient {
    socket: Arc<OwnedFd>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The clients that wait for a result, by the number of their request.
#[derive(Debug, Default)]
struct Waiting {
    last_number: u64,
    answers: HashMap<u64, Reply>,
}

/// The channel through which a client receives the result of its request.
type Reply = Sender<Result<Done, String>>;

impl SupervisorClient {
    /// Makes a client of the supervisor on this socket.
    pub(crate) fn new(socket: Arc<OwnedFd>) -> SupervisorClient {
        SupervisorClient { socket, waiting: Arc::default() }
    }

    /// Sends a request, and waits for its result.
    ///
    /// # Errors
    /// The request was not carried out. The error contains the reason.
    pub fn ask(&self, wish: SupervisorRequest) -> io::Result<Done> {
        let timeout = if wish == SupervisorRequest::Restart { RESTART_TIMEOUT } else { WISH_TIMEOUT };
        self.ask_within(timeout, wish)
    }

    fn ask_within(&self, timeout: Duration, wish: SupervisorRequest) -> io::Result<Done> {
        let (to, from) = mpsc::channel();
        let mut waiting = self.pending_requests();
        waiting.last_number += 1;
        let number = waiting.last_number;
        say(&self.socket, &ToSupervisor::SupervisorRequest { number, request: wish }, &[])?;
        waiting.answers.insert(number, to);
        drop(waiting);
        let heard = from.recv_timeout(timeout);
        self.pending_requests().answers.remove(&number);
        match heard {
            Ok(said) => said.map_err(io::Error::other),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the supervisor does not answer")),
        }
    }

    /// Hands a result to the client that waits for it. A late result is dropped.
    pub(crate) fn answer(&self, number: u64, outcome: Result<Done, String>) {
        if let Some(to) = self.pending_requests().answers.remove(&number) {
            // The client may have ended.
            let _ = to.send(outcome);
        }
    }

    fn pending_requests(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest wait for the result of a request.
const WISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a restart: the new program takes over, and a worker process starts.
const RESTART_TIMEOUT: Duration = Duration::from_secs(12);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Received, receive};
    use std::path::PathBuf;
    use std::thread;

    #[test]
    fn replies_reach_their_requests_out_of_order_and_after_timeouts() {
        let [ours, theirs] = linux::descriptors::pair().expect("descriptors are free");
        let desk = SupervisorClient::new(Arc::new(ours));
        let asked = || loop {
            match receive(&theirs).expect("it is understood") {
                Received::Said(ToSupervisor::SupervisorRequest { number, request: wish }, _) => {
                    break (number, wish);
                }
                Received::Said(other, _) => panic!("{other:?} is no wish"),
                Received::Nothing => thread::sleep(Duration::from_millis(1)),
                Received::Gone => panic!("it is there"),
            }
        };
        let done = |said: &str| Ok(Done { said: said.to_owned(), control: PathBuf::new() });
        // The answer does not come in time, and a late answer is ignored.
        assert!(desk.ask_within(Duration::from_millis(1), SupervisorRequest::Reload).is_err());
        let (late, _) = asked();
        thread::scope(|scope| {
            let ask = |wish| {
                let desk = &desk;
                let asks =
                    scope.spawn(move || desk.ask(wish).map(|done| done.said).map_err(|error| error.to_string()));
                (asks, asked().0)
            };
            let [(restart, first), (reload, second)] =
                [SupervisorRequest::Restart, SupervisorRequest::Reload].map(ask);
            desk.answer(late, done("late"));
            desk.answer(second, done("reloaded"));
            desk.answer(first, Err("not restarted".to_owned()));
            assert_eq!(reload.join().expect("it lives"), Ok("reloaded".to_owned()));
            assert_eq!(restart.join().expect("it lives"), Err("not restarted".to_owned()));
        });
        assert!(desk.pending_requests().answers.is_empty());
    }
}
