//! A thread in, the processor time that it took out.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of the calling thread so far, with the kernel's work in its name.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
