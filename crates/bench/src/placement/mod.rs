//! Receiving payloads in place: nanoseconds saved, and how often predictions are right.
//!
//!     cargo run --release -p bench -- placement
//!
//! The loop works in memory alone. Copying moves a frame from the device's memory to a buffer, and its payload from
//! there to its datagram. Placement moves the payload from the device's memory straight to its datagram. Each
//! method is compared with a loop that makes only the copies of the method. The ratio of the two loops is the gain
//! of fewer copies. Any gain beyond this ratio is due to fewer header reads.

mod device;
mod plain;
mod receiver;
mod success;

pub use device::Device;
pub use receiver::Receiver;

use crate::child::stay_on_last_processor;
use crate::harness::Pages;
use crate::section::Section;
use crate::wire::{Pair, Place, UDP, noise};
use engine::PlacementMode;
use packet::{LinkType, Time};
use plain::{Copies, Plain};
use std::process::ExitCode;
use std::time::Instant;

/// Measures all cases, and prints the tables of times and of successful predictions.
///
/// # Errors
/// The process cannot be pinned to a CPU.
pub fn show(rounds: usize) -> Result<ExitCode, String> {
    stay_on_last_processor().map_err(|error| format!("cannot run on the last processor: {error}"))?;
    println!(
        "Nanoseconds per fragment, from the device's memory to the complete datagram: medians of {rounds} rounds."
    );
    println!(
        "ceiling: time of two copies divided by the time of one; B/B: bytes copied again per byte delivered.\n"
    );
    head("ring of 512 frames or 1 MiB");
    for step in [STEP, LONG_STEP] {
        for len in [9_000, 16_000, 32_000, 65_000] {
            time(&PlacementCase { len, step, ring_len: RING_LEN, hosts: 1 }, rounds);
        }
    }
    for (ring_len, name) in [(RING_LEN / 4, "ring of 256 KiB"), (4 * RING_LEN, "ring of 4 MiB")] {
        head(name);
        for len in [9_000, 32_000, 65_000] {
            time(&PlacementCase { len, step: STEP, ring_len, hosts: 1 }, rounds);
        }
    }
    head("two alternating hosts: every prediction is wrong");
    for step in [STEP, LONG_STEP] {
        time(&PlacementCase { len: 32_000, step, ring_len: RING_LEN, hosts: 2 }, rounds);
    }
    success::show();
    Ok(ExitCode::SUCCESS)
}

fn head(name: &str) {
    let columns = ["copied", "landed", "ratio", "itself", "ratio", "2 copies", "1 copy", "ceiling", "B/B"];
    let columns: String = columns.iter().map(|column| format!("{column:>9}")).collect();
    println!("{name}\n{:>9}{:>9}{columns}", "datagram", "fragment");
}

/// The frames of one row of the table.
struct PlacementCase {
    len: usize,
    step: usize,
    ring_len: usize,
    hosts: u8,
}

/// Measures each placement mode with the same frames in turn, and prints a line.
fn time(shape: &PlacementCase, rounds: usize) {
    let frames = ring(shape);
    let count = frames.len();
    let device = Device::new(&frames, 1, LinkType::Ethernet, Pages::Huge);
    let mut arms = ARMS.map(|guessing| Receiver::new(device.same_memory(), guessing, Pages::Huge));
    let mut plain = Plain::new(device, shape.len, shape.step);
    let passes = FRAMES_MIN.div_ceil(count);
    let mut times: [Vec<f64>; 5] = Default::default();
    for round in 0..rounds {
        for turn in 0..times.len() {
            let number = (round + turn) % times.len();
            let mut pass = || match number {
                3 => plain.receive_all(Copies::Two),
                4 => plain.receive_all(Copies::One),
                arm => arms[arm].receive_all(NOW, count, |_| {}),
            };
            // One untimed pass first, so that the cache contents of the previous mode do not affect the result.
            pass();
            let started = Instant::now();
            (0..passes).for_each(|_| pass());
            times[number].push(started.elapsed().as_nanos() as f64 / (passes * count) as f64);
        }
    }
    let [copied, split_frame, itself, two, one] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    assert!(arms.iter().all(|arm| arm.whole() == arms[0].whole()), "landing loses nothing");
    let [ratio, own_ratio, ceiling] = [copied / split_frame, copied / itself, two / one];
    println!(
        "{:>9}{:>9}{copied:>9.1}{split_frame:>9.1}{ratio:>9.2}{itself:>9.1}{own_ratio:>9.2}{two:>9.1}{one:>9.1}{ceiling:>9.2}{:>9.2}",
        shape.len,
        shape.step,
        arms[1].copied_per_byte()
    );
}

/// Returns complete datagrams, as many as the device's memory has room for.
fn ring(PlacementCase { len, step, ring_len, hosts }: &PlacementCase) -> Section {
    let mut section = Section::default();
    let count = ring_len / len / usize::from(*hosts);
    for id in 0..count.max(1) as u32 {
        for index in 0..len.div_ceil(*step) {
            (0..*hosts).for_each(|host| section.push(&fragment(host, id, index, *len, *step)));
        }
    }
    section
}

/// Returns a frame with a fragment of a datagram.
fn fragment(host: u8, id: u32, index: usize, len: usize, step: usize) -> Vec<u8> {
    let range = index * step..len.min((index + 1) * step);
    let place = Place { id, offset: range.start, more: range.end < len };
    let pair = Pair { version: 4, source: 1 + u32::from(host), destination: 1_000 };
    let packet = pair.fragment(UDP, place, &noise(index as u64, range.len()));
    [&[2; 12][..], &[8, 0], &packet].concat()
}

/// Compared placement modes: never, always, and only where placement pays.
const ARMS: [PlacementMode; 3] = [PlacementMode::Never, PlacementMode::Always, PlacementMode::WherePays];
/// Payload of a fragment on a link with an MTU of 1,500 bytes.
const STEP: usize = 1_480;
/// Payload of a fragment on a link with an MTU of 9,000 bytes.
const LONG_STEP: usize = 8_976;
/// Total payload in a device's memory, in bytes.
const RING_LEN: usize = 1 << 20;
/// Fewest frames in a timed stretch, so that the clock's own cost does not show.
const FRAMES_MIN: usize = 2_048;
const NOW: Time = Time::from_nanos(1_000_000_000);
