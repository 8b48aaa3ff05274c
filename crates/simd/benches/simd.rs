//! Bytes -> the time to sum and to copy them, in nanoseconds: by length, by path, from cache and from memory.
//!
//! `cargo bench -p wideload-simd` prints the table. A word as argument selects the rows whose name contains the
//! word. All cases of a length take turns, so that disturbances of the machine affect them equally. Each figure is
//! the median of a case's turns. Source and destination have the alignment of a payload behind its headers, so they
//! do not start at a cache line boundary.
#![allow(missing_docs)]

use internet_checksum::Checksum;
use std::hint::black_box;
use std::time::Instant;
use wideload_simd::{self as simd, Path};

fn main() {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let cases: Vec<_> = cases().into_iter().filter(|case| case.name.contains(&wanted)).collect();
    println!("ns a call, median of {ROUNDS}; path {}", simd::path().name());
    let far: Vec<u8> = (0..FAR_LEN).map(|index| (index as u8).wrapping_mul(151)).collect();
    for (source, near) in [("near", true), ("far", false)] {
        print!("{:<28}", format!("source {source}, bytes:"));
        LENS.iter().for_each(|len| print!("{len:>10}"));
        println!();
        let columns: Vec<Vec<f64>> = LENS.iter().map(|len| medians(&cases, &far, *len, near)).collect();
        for (index, case) in cases.iter().enumerate() {
            print!("{:<28}", case.name);
            columns.iter().for_each(|column| print!("{:>10.1}", column[index]));
            println!();
        }
    }
}

struct Case {
    name: &'static str,
    is_here: bool,
    time: fn(&mut Work) -> f64,
}

fn cases() -> Vec<Case> {
    let case = |name, time| Case { name, is_here: true, time };
    let on = |path: Path, name, time| Case { name, is_here: path.is_here(), time };
    vec![
        case("copy: copy_from_slice", |work| work.time(|to, from| to.copy_from_slice(from))),
        case("copy: simd", |work| work.time(simd::copy)),
        case("sum: internet-checksum", |work| {
            work.time(|_, from| {
                let mut checksum = Checksum::new();
                checksum.add_bytes(from);
                checksum.checksum()
            })
        }),
        case("sum: simd", |work| work.time(|_, from| simd::sum(from))),
        on(Path::Avx2, "sum: avx2", |work| work.time(|_, from| Path::Avx2.sum(from))),
        case("sum: scalar", |work| work.time(|_, from| Path::Scalar.sum(from))),
        case("both: two passes of simd", |work| {
            work.time(|to, from| {
                simd::copy(to, from);
                simd::sum(from)
            })
        }),
        case("both: simd", |work| work.time(simd::copy_and_sum)),
        on(Path::Avx2, "both: avx2", |work| work.time(|to, from| Path::Avx2.copy_and_sum(to, from))),
        case("both: scalar", |work| work.time(|to, from| Path::Scalar.copy_and_sum(to, from))),
    ]
}

fn medians(cases: &[Case], far: &[u8], len: usize, near: bool) -> Vec<f64> {
    let mut work = Work::new(far, len, near);
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, figures) in cases.iter().zip(&mut figures) {
            figures.push(if case.is_here { (case.time)(&mut work) } else { f64::NAN });
        }
    }
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    figures.into_iter().map(median).collect()
}

/// The sources of one length and their destination. Sources in main memory are read in an order that no CPU can
/// predict.
struct Work<'far> {
    to: Vec<u8>,
    far: &'far [u8],
    starts: Vec<usize>,
    next: usize,
    len: usize,
    count: usize,
}

impl Work<'_> {
    fn new(far: &[u8], len: usize, near: bool) -> Work<'_> {
        let stride = (len + GAP_LEN).next_multiple_of(LINE_LEN);
        let count = (SECTION_LEN / len).clamp(16, 20_000);
        let mut starts = vec![0];
        if !near {
            starts = (0..(FAR_LEN - 2 * LINE_LEN) / stride).map(|fragment| fragment * stride).collect();
            let mut state = 1usize;
            for place in (1..starts.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                starts.swap(place, (state >> 33) % (place + 1));
            }
        }
        Work { to: vec![0; len + 2 * LINE_LEN], far, starts, next: 0, len, count }
    }

    fn time<T>(&mut self, call: impl Fn(&mut [u8], &[u8]) -> T) -> f64 {
        let to = behind_a_line(&self.to, TO_OFFSET);
        let to = &mut self.to[to..][..self.len];
        let from = behind_a_line(self.far, SOURCE_OFFSET);
        let far = &self.far[from..];
        let started = Instant::now();
        for _ in 0..self.count {
            let from = &far[self.starts[self.next]..][..self.len];
            black_box(call(black_box(&mut *to), black_box(from)));
            self.next = if self.next + 1 < self.starts.len() { self.next + 1 } else { 0 };
        }
        started.elapsed().as_nanos() as f64 / self.count as f64
    }
}

/// Returns the index that is `offset` bytes behind the first cache line boundary in `bytes`.
fn behind_a_line(bytes: &[u8], offset: usize) -> usize {
    bytes.as_ptr().addr().wrapping_neg() % LINE_LEN + offset
}

/// Measured lengths, in bytes: a header, two short copies, the payload of a full frame, a jumbo frame, a long
/// datagram.
const LENS: [usize; 6] = [20, 64, 256, 1_460, 9_000, 64_000];
const ROUNDS: usize = 45;
/// Offset of a source from a cache line boundary, in bytes: the length of Ethernet and IPv4 headers.
const SOURCE_OFFSET: usize = 34;
/// Offset of the destination from a cache line boundary, in bytes: the length of an IPv4 header.
const TO_OFFSET: usize = 20;
/// Gap between two sources, in bytes.
const GAP_LEN: usize = 800;
const LINE_LEN: usize = 64;
/// Bytes for each turn, so many that reading the clock does not affect the figure.
const SECTION_LEN: usize = 1 << 19;
/// Length of the memory with the sources, in bytes: more than any cache holds.
const FAR_LEN: usize = 512 << 20;
