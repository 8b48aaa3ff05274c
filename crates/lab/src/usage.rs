//! Thread or process -> its CPU time.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the CPU time of this process so far, including the kernel's work on its behalf.
pub fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the CPU time of the calling thread so far, including the kernel's work on its behalf.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
