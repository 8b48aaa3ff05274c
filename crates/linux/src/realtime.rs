//! A request for real-time scheduling of a thread -> the privileges that the kernel granted.
//!
//! Measurements need threads that wake up on time. A gateway uses the priority of its process instead.

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::thread::{current_timer_slack, set_current_timer_slack};
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::Mutex;

/// Real-time scheduling of a thread. The thread runs before all ordinary threads and wakes up without timer slack,
/// and the program's memory is locked. All of this ends on drop, which must happen on the same thread.
///
/// Settings that the kernel refuses are left out, and the fields contain the reasons. An ordinary user only gets
/// the timer slack.
#[derive(Debug)]
pub struct Realtime {
    /// The reason why the thread does not run with SCHED_FIFO; `None` if it does.
    pub without_fifo: Option<String>,
    /// The reason why the program's memory is not locked; `None` if it is.
    pub without_lock: Option<String>,
    former_policy: Option<(libc::c_int, libc::sched_param)>,
    former_slack: Option<NonZeroU64>,
    of_one_thread: PhantomData<*const ()>,
}

impl Realtime {
    /// Requests real-time scheduling for the calling thread. The program's current memory is locked for all
    /// threads.
    pub fn ask() -> Realtime {
        let former_slack = current_timer_slack().ok().and_then(NonZeroU64::new);
        // Under SCHED_FIFO there is no timer slack; this helps where SCHED_FIFO is refused.
        let slack = set_current_timer_slack(NonZeroU64::new(1));
        let former_policy = policy().and_then(|former| {
            let first = with_priority(1);
            // Threads that this thread starts do not inherit the policy.
            set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, first)?;
            Ok(former)
        });
        let lock = lock();
        Realtime {
            without_fifo: former_policy.as_ref().err().map(io::Error::to_string),
            without_lock: lock.err().map(|error| error.to_string()),
            former_policy: former_policy.ok(),
            former_slack: former_slack.filter(|_| slack.is_ok()),
            of_one_thread: PhantomData,
        }
    }
}

impl Drop for Realtime {
    fn drop(&mut self) {
        if let Some((policy, parameters)) = self.former_policy {
            // Without privileges a thread may return to ordinary scheduling, but only with SCHED_RESET_ON_FORK set.
            set_policy(policy, parameters)
                .or_else(|_| set_policy(policy | libc::SCHED_RESET_ON_FORK, parameters))
                .expect("a thread may go back to what it was");
        }
        if self.former_slack.is_some() {
            set_current_timer_slack(self.former_slack).expect("a thread may go back to what it was");
        }
        if self.without_lock.is_none() {
            unlock();
        }
    }
}

/// Number of requests that lock the program's memory. The memory is unlocked when the last one ends.
static LOCKED_COUNT: Mutex<usize> = Mutex::new(0);

fn lock() -> io::Result<()> {
    let mut count = LOCKED_COUNT.lock().expect("nothing panics while it counts");
    // Untouched pages, mostly reserved stacks, are locked when they are first touched.
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?;
    *count += 1;
    Ok(())
}

fn unlock() {
    let mut count = LOCKED_COUNT.lock().expect("nothing panics while it counts");
    *count -= 1;
    if *count == 0 {
        munlockall().expect("what was locked can be unlocked");
    }
}

fn with_priority(priority: libc::c_int) -> libc::sched_param {
    // SAFETY: all zeros are a value of this struct of numbers, which has more of them in some C libraries.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    parameters
}

fn policy() -> io::Result<(libc::c_int, libc::sched_param)> {
    let mut parameters = with_priority(0);
    // SAFETY: thread 0 is the calling one, and the parameters are a live, writable value for the length of the
    // call.
    let policy = unsafe {
        checked(libc::sched_getparam(0, &mut parameters))?;
        checked(libc::sched_getscheduler(0))?
    };
    Ok((policy, parameters))
}

fn set_policy(policy: libc::c_int, parameters: libc::sched_param) -> io::Result<()> {
    // SAFETY: thread 0 is the calling one, and the parameters are a live value for the length of the call.
    checked(unsafe { libc::sched_setscheduler(0, policy, &parameters) }).map(drop)
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_returns_to_its_former_priority() {
        let before = (policy().unwrap().0, current_timer_slack().unwrap());
        let realtime = Realtime::ask();
        let is_fifo = policy().unwrap().0 & libc::SCHED_FIFO != 0;
        assert_eq!(is_fifo, realtime.without_fifo.is_none(), "{realtime:?}");
        assert!(is_fifo || current_timer_slack().unwrap() == 1, "{realtime:?}");
        let child = std::thread::spawn(|| policy().unwrap().0).join().unwrap();
        assert_eq!(child, libc::SCHED_OTHER, "a thread that it starts is an ordinary one");
        drop(realtime);
        assert_eq!((policy().unwrap().0, current_timer_slack().unwrap()), before);
    }

    #[test]
    fn refused_settings_are_reported_and_the_rest_granted() {
        let thread = std::thread::spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
            let realtime = Realtime::ask();
            let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio).current;
            (realtime.without_fifo.clone(), limit, current_timer_slack().unwrap())
        });
        let (without_fifo, limit, slack) = thread.join().unwrap();
        if rustix::process::geteuid().is_root() && limit == Some(0) {
            assert_eq!(without_fifo.as_deref(), Some("Operation not permitted (os error 1)"));
            assert_eq!(slack, 1);
        }
    }
}
