//! Workloads in, a table of nanoseconds and instructions out: Wideload and its peers, side by side.
fn main() {}
