//! Workloads in, a table of nanoseconds and instructions out: Wideload and its peers, side by side.
#![forbid(unsafe_code)]
mod figures;
mod harness;
mod recipe;
mod reference;
mod section;
mod wire;
mod workload;
fn main() {
    let args: Vec<String> = std::env::args().skip(2).collect();
    let ask = harness::Ask::parse(&args).unwrap();
    harness::speak(&ask, std::io::stdin().lock(), std::io::stdout()).unwrap();
}
