//! Options -> measurements, printed and written to files.
//!
//! Each workload's rows are printed when they are ready. The files are written at the end.

use crate::args::Args;
use crate::child::last_processor;
use crate::grid::{Extent, workloads};
use crate::instructions;
use crate::machine::{Machine, free_memory};
use crate::measure::Measurement;
use crate::memory;
use crate::page::{Conditions, page};
use crate::peers::Peers;
use crate::rows::Row;
use crate::table::{self, thousands};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Number of rounds, and durations, of a measurement with one extent.
struct Pace {
    rounds: usize,
    ms: u64,
    /// Total time for counting other systems' instructions.
    counting: Duration,
    /// Packets that the engine must process without an allocation.
    packets: u64,
}

/// Measures the requested workloads, prints the tables and writes the files.
///
/// # Errors
/// No workload matches, a peer's folder or a file cannot be written, or a measurement fails.
pub fn measure(args: &Args) -> Result<(), String> {
    let workloads = workloads(args.extent(), &args.only);
    if workloads.is_empty() && !memory::is_meant(&args.only) {
        return Err(format!("--only {}: no workload has all of these words", args.only.join(" ")));
    }
    // Fail early if a file cannot be written.
    for path in [&args.json, &args.page].into_iter().flatten() {
        std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(|error| named(path, error))?;
    }
    let bar = ProgressBar::new(workloads.len() as u64).with_style(
        ProgressStyle::with_template("{elapsed_precise} {pos}/{len} {wide_msg}").expect("the template is right"),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let peers = peers(args, &bar)?;
    let pace = Pace::of(args.extent());
    let folder = folder()?;
    let machine = Machine::this();
    let counts = !args.quick && instructions::is_possible();
    let mut missing = peers.missing.clone();
    if !args.quick && !counts {
        missing.push("instructions: valgrind is not installed; run apt-get install valgrind".to_string());
    }
    let before = args.before.as_ref().map(|path| path.canonicalize().map_err(|error| named(path, error)));
    let measurement = Measurement {
        peers,
        before: before.transpose()?,
        rounds: args.rounds.unwrap_or(pace.rounds).max(1),
        ms: pace.ms,
        processor: last_processor().map_err(|error| format!("cannot find a processor to measure on: {error}"))?,
        largest_cache: machine.largest_cache,
        counts,
        folder: folder.path().to_path_buf(),
    };
    let conditions = Conditions {
        command: command(),
        machine,
        rounds: measurement.rounds,
        ms: measurement.ms,
        processor: measurement.processor,
        missing,
    };
    announce(&conditions, workloads.len());
    let mut rows = Vec::new();
    // The unused counting time of one workload goes to the next ones.
    let share = pace.counting / workloads.len().max(1) as u32;
    let mut counting = Duration::ZERO;
    for workload in &workloads {
        counting += share;
        let name = format!("{}: {workload}", workload.function);
        let some = measurement
            .of(workload, &mut counting, |what| bar.set_message(format!("{name} | {what}")))
            .map_err(|error| format!("{name}: {error}"))?;
        bar.suspend(|| println!("{}", table::block(&some)));
        bar.inc(1);
        rows.extend(some);
    }
    if memory::is_meant(&args.only) {
        bar.set_message(format!("memory | {} packets", thousands(pace.packets)));
        let row = memory::row(pace.packets);
        bar.suspend(|| println!("{}", table::block(std::slice::from_ref(&row))));
        rows.push(row);
    }
    bar.finish_and_clear();
    for line in &conditions.missing {
        println!("left out: {line}");
    }
    write(args, &rows, &conditions)
}

impl Pace {
    fn of(extent: Extent) -> Pace {
        match extent {
            Extent::Quick => Pace { rounds: 5, ms: 20, counting: Duration::ZERO, packets: 1_000_000 },
            Extent::Usual => Pace { rounds: 7, ms: 40, counting: Duration::from_secs(120), packets: 10_000_000 },
            Extent::Full => {
                Pace { rounds: 9, ms: 60, counting: Duration::from_secs(24 * 3_600), packets: 100_000_000 }
            }
        }
    }
}

fn peers(args: &Args, bar: &ProgressBar) -> Result<Peers, String> {
    if args.alone {
        return Ok(Peers::default());
    }
    let target =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let target = target.ancestors().nth(2).unwrap_or(Path::new("target")).join("peers");
    let dpdk = match &args.dpdk {
        Some(path) => Some(path.canonicalize().map_err(|error| named(path, error))?),
        None => None,
    };
    Peers::build(&target, args.install, dpdk.as_deref(), |family| bar.set_message(format!("building {family}")))
        .map_err(|error| format!("cannot build peers into {}: {error}", target.display()))
}

/// Creates the temporary folder for packet files and outputs. If the tmpfs `/dev/shm` has `ROOM`, the folder is
/// there, so that harnesses read files without disk access.
fn folder() -> Result<TempDir, String> {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    let has_room = room > ROOM && free_memory() as u64 > 2 * ROOM;
    let builder = || tempfile::Builder::new().prefix("wideload-bench-").to_owned();
    let folder = if has_room { builder().tempdir_in(memory) } else { builder().tempdir() };
    let folder = folder.map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let path = folder.path().to_path_buf();
    let stopped = move || {
        // Files that remain in `/dev/shm` would use memory.
        let _ = std::fs::remove_dir_all(&path);
        std::process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(stopped).map_err(|error| format!("cannot set a signal handler: {error}"))?;
    Ok(folder)
}

fn announce(conditions: &Conditions, count: usize) {
    conditions.machine.lines().iter().for_each(|line| println!("{line}"));
    let Conditions { rounds, ms, processor, .. } = conditions;
    println!("{count} workloads, {rounds} rounds, {ms} ms each, on processor {processor}");
    println!("ratio: to Wideload; above x 1, the system is slower than Wideload\n\n{}\n", table::head());
}

fn write(args: &Args, rows: &[Row], conditions: &Conditions) -> Result<(), String> {
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&rows.iter().map(Row::to_json).collect::<Vec<_>>())
            .map_err(|error| named(path, error))?;
        std::fs::write(path, json + "\n").map_err(|error| named(path, error))?;
    }
    if let Some(path) = &args.page {
        std::fs::write(path, page(rows, conditions)).map_err(|error| named(path, error))?;
    }
    Ok(())
}

/// Returns the command line as typed in a shell.
fn command() -> String {
    let words = std::env::args().skip(1).map(|word| if word.contains(' ') { format!("\"{word}\"") } else { word });
    let words: Vec<String> = words.collect();
    match words.is_empty() {
        true => "cargo run --release -p bench".to_string(),
        false => format!("cargo run --release -p bench -- {}", words.join(" ")),
    }
}

fn named(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// Exit status of a command that an interrupt ended, as shells report it.
const INTERRUPTED: i32 = 130;
/// Free space required for the files of one workload, in bytes.
const ROOM: u64 = 2 << 30;
