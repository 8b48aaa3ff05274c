//! Wideload's workloads -> their instructions, and whether they exceed the baseline.
//!
//! A count is repeatable, so CI can fail on it. `instructions.rs` counts, `baseline.rs` compares.

use crate::baseline::{Baseline, PATH};
use crate::grid::{Extent, workloads};
use crate::instructions;
use crate::measure::{own_instructions, own_way};
use crate::recipe::Recipe;
use crate::workload::Workload;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;

/// Counts all guarded workloads and compares them with the committed baseline. Returns exit status 1 if any count
/// exceeds the baseline by more than 3 %.
///
/// # Errors
/// A workload that cannot be counted, or a baseline that cannot be read.
pub fn check() -> Result<ExitCode, String> {
    let table = std::fs::read_to_string(PATH)
        .map_err(|error| format!("{PATH}: {error}; create it with --write-baseline"))?;
    let baseline = Baseline::parse(&table).map_err(|error| format!("{PATH}: {error}"))?;
    if let Some(stranger) = baseline.strangers().first() {
        return Err(format!("{PATH}: {stranger}: no such workload; update the file with --write-baseline"));
    }
    let mut failed = 0;
    count(baseline.workloads(), |workload, now| {
        let Some(change) = baseline.change(workload, now?) else { return Ok(()) };
        let verdict = match (change.is_too_much(), change.is_much_less()) {
            (true, _) => "TOO MUCH",
            (_, true) => "much less: record it with --write-baseline",
            _ => "",
        };
        failed += usize::from(change.is_too_much());
        println!(
            "{:>9.1} {:>9.1} {:>+7.1} %  {} {verdict}",
            change.before,
            change.now,
            change.percent(),
            change.name
        );
        Ok(())
    })?;
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("bench: {failed} workloads take over 3 % more instructions than the baseline in {PATH}");
    Ok(ExitCode::FAILURE)
}

/// Counts all guarded workloads and writes the counts as the new baseline.
///
/// # Errors
/// A workload that cannot be counted, or a file that cannot be written.
pub fn write() -> Result<ExitCode, String> {
    let mut baseline = Baseline::default();
    count(guarded(), |workload, now| {
        match now {
            Ok(count) => baseline.insert(workload, count),
            // A missing function has no count to guard.
            Err(why) => eprintln!("left out: {}: {workload}: {why}", workload.function),
        }
        Ok(())
    })?;
    std::fs::write(PATH, baseline.to_table()).map_err(|error| format!("{PATH}: {error}"))?;
    println!("{PATH}: {} workloads", baseline.workloads().len());
    Ok(ExitCode::SUCCESS)
}

/// Prints the instructions per packet of the matching workloads.
///
/// # Errors
/// Valgrind is missing, or a workload that cannot be counted.
pub fn show(extent: Extent, words: &[String]) -> Result<ExitCode, String> {
    println!("instructions a packet, by callgrind");
    count(workloads(extent, words), |workload, now| {
        match now {
            Ok(count) => println!("{count:>9.1}  {}: {workload}", workload.function),
            Err(why) => println!("{:>9}  {}: {workload}: {why}", "-", workload.function),
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the number of functions and of calls into other crates on a packet's call path, for each matching
/// workload. With `all`, also lists every function.
///
/// # Errors
/// Valgrind is missing, or a workload that cannot be traced.
pub fn show_call_paths(words: &[String], all: bool) -> Result<ExitCode, String> {
    let words = if words.is_empty() { &WAYS.map(str::to_string)[..] } else { words };
    println!("calls a packet, by callgrind: functions, calls into another crate, TCP headers parsed");
    let folder = folder()?;
    for name in words {
        let workloads = workloads(Extent::Usual, std::slice::from_ref(name));
        for workload in workloads {
            let way = own_way(&workload, folder.path())?;
            let parses = way.count_of("tcp::Segment::parse");
            let functions = way.functions().count();
            if functions < FEWEST_FUNCTIONS {
                let build =
                    "RUSTFLAGS=\"-C no-prepopulate-passes\" cargo run --profile call-paths -p bench -- call-paths";
                return Err(format!(
                    "{workload}: only {functions} functions seen, because this build inlines calls; use {build}"
                ));
            }
            println!("{functions:>5} {:>7.1} {parses:>6.2}  {}: {workload}", way.crossings, workload.function);
            println!("{:>22}of {:?}", "", way.crates());
            if all {
                way.functions().for_each(|(name, count)| println!("{count:>22.2}  {name}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Fewest functions on a packet's path in a build without inlining. Fewer mean that calls were inlined.
const FEWEST_FUNCTIONS: usize = 10;

/// Workloads traced if no words are given.
const WAYS: [&str; 2] =
    ["reassemble 44 1 datagram, in order, contiguous", "coalesce 1 flow, in order, held contiguous"];

/// Returns the usual workloads that are quick to count.
fn guarded() -> Vec<Workload> {
    let mut all = workloads(Extent::Usual, &[]);
    all.retain(|workload| !matches!(&workload.recipe, Recipe::Fragments(fragments) if fragments.datagrams > 64));
    all.retain(|workload| !matches!(&workload.recipe, Recipe::Flows(flows) if flows.flows > 64));
    all.retain(|workload| !workload.to_string().contains("cold"));
    all
}

fn folder() -> Result<tempfile::TempDir, String> {
    if !instructions::is_possible() {
        return Err("valgrind is not installed; run apt-get install valgrind".to_string());
    }
    tempfile::tempdir().map_err(|error| format!("cannot create a temporary folder: {error}"))
}

fn count(
    workloads: Vec<Workload>,
    mut take: impl FnMut(&Workload, Result<f64, String>) -> Result<(), String>,
) -> Result<(), String> {
    let folder = folder()?;
    let style = ProgressStyle::with_template("{pos}/{len} {wide_msg}").expect("the template is right");
    let bar = ProgressBar::new(workloads.len() as u64).with_style(style);
    for workload in workloads {
        bar.set_message(format!("{}: {workload}", workload.function));
        let count = own_instructions(&workload, folder.path());
        bar.suspend(|| take(&workload, count))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}
