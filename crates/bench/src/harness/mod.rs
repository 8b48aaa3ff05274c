//! Commands -> nanoseconds: Wideload's own harness, and the plain loops beside it.
//!
//! The harness uses the protocol of `crates/bench/peers/README.md`, so that Wideload and its peers are measured
//! alike. Each function has its own file with one `timed_section`, whose instructions are counted. Functions and
//! closures called from `timed_section` have other names, so that the count does not stop half-way.

pub mod arena;
mod ask;
mod checksum;
mod coalesce;
mod fragment;
mod live;
mod merge;
mod parse;
mod place;
mod plain;
mod reassemble;
mod ring;

use crate::section::Section;
use crate::workload::Function;
use ask::System;
pub use ask::{Ask, Pages};
pub use reassemble::SECRET;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

/// A system that works on the sections of one file.
pub trait Station {
    /// Puts a section's packets where a port would deliver them, and drops the state of the previous section.
    fn fill(&mut self);
    /// Works on one section. Returns the number of output packets.
    fn section(&mut self) -> usize;
    /// Works on one section and passes each output packet to `tell`.
    fn show(&mut self, tell: &mut dyn FnMut(&[u8]));
    /// Describes the output for the `ready` line.
    fn delivers(&self) -> String;
}

/// Reads commands from the parent process and answers them.
///
/// # Errors
/// An unknown command, or a file that cannot be read or written.
pub fn speak(ask: &Ask, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let section = Section::read(&ask.file)?;
    let per_packet = results(ask, &section);
    let mut station = match open(ask, section) {
        Ok(station) => station,
        Err(why) => return writeln!(output, "cannot\t{why}"),
    };
    if let Some(sections) = ask.sections {
        for _ in 0..sections {
            station.fill();
            black_box(station.section());
        }
        return Ok(());
    }
    // One section is not timed, because the first use of memory causes page faults.
    station.fill();
    station.section();
    writeln!(output, "ready\t{}\t{}", env!("CARGO_PKG_VERSION"), station.delivers())?;
    output.flush()?;
    for line in input.lines() {
        let line = line?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("run", ms) => {
                let ms = ms.trim().parse().map_err(|_| invalid(&line))?;
                let (nanos, completed, sections) = run(&mut *station, Duration::from_millis(ms));
                writeln!(output, "{:.3}\t{completed}\t{sections}", nanos / per_packet as f64)?;
            }
            ("verify", "") => writeln!(output, "done\t{}", verify(ask, &mut *station)?)?,
            ("quit", "") => break,
            _ => return Err(invalid(&line)),
        }
        output.flush()?;
    }
    Ok(())
}

fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    if ask.system != System::Wideload {
        return plain::open(ask, section);
    }
    match ask.function {
        Function::Reassemble => reassemble::open(ask, section),
        Function::Place => place::open(ask, &section),
        Function::Merge => merge::open(ask, section),
        Function::Coalesce => coalesce::open(ask, section),
        Function::Fragment | Function::Segment => fragment::open(ask, section),
        Function::Checksum => checksum::open(ask, section),
        Function::Parse | Function::Memory => parse::open(ask, section),
    }
}

/// Returns the divisor of a section's nanoseconds: the number of input packets. For the functions `fragment` and
/// `segment`, it is the number of output packets.
fn results(ask: &Ask, section: &Section) -> usize {
    match ask.function {
        Function::Fragment | Function::Segment => {
            section.packets().map(|packet| fragment::count(ask, packet)).sum()
        }
        _ => section.len(),
    }
}

/// Repeats sections until their timed parts add up to `timed`. Returns the median section's nanoseconds, the output
/// packets of the last section, and the number of sections.
fn run(station: &mut dyn Station, timed: Duration) -> (f64, usize, usize) {
    let (mut took, mut sum, mut completed) = (Vec::new(), Duration::ZERO, 0);
    while sum < timed || took.len() < SECTIONS_MIN {
        station.fill();
        let started = Instant::now();
        completed = black_box(station.section());
        let taken = started.elapsed();
        sum += taken;
        took.push(taken.as_nanos() as u64);
    }
    took.sort_unstable();
    (took[took.len() / 2] as f64, completed, took.len())
}

fn verify(ask: &Ask, station: &mut dyn Station) -> io::Result<usize> {
    let mut output = Section::default();
    station.fill();
    station.show(&mut |packet| output.push(packet));
    output.write(&ask.out)?;
    Ok(output.len())
}

fn invalid(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{line}: unknown harness command"))
}

/// Fewest sections per run.
const SECTIONS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Extent, workloads};
    use crate::measure::references;
    use crate::recipe::{ArrivalOrder, Recipe};
    use crate::rows::WIDELOAD;
    use crate::workload::fragments;

    /// Returns a harness's output for these commands. The section has 64 datagrams of six fragments.
    fn said(arguments: &str, commands: &str) -> io::Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("in");
        Recipe::Fragments(fragments(6, 64, ArrivalOrder::Forward)).build().0.write(&file).unwrap();
        let places = format!("file={} out={}", file.display(), folder.path().join("out").display());
        let arguments: Vec<String> = format!("{arguments} {places}").split_whitespace().map(String::from).collect();
        let mut output = Vec::new();
        speak(&Ask::parse(&arguments).unwrap(), commands.as_bytes(), &mut output)?;
        Ok(String::from_utf8(output).unwrap())
    }

    #[test]
    fn commands_are_answered_one_by_one() {
        let said = said("function=reassemble work=contiguous datagrams=64", "run 1\nverify\nquit\n").unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 3, "{said}");
        assert!(lines[0].starts_with("ready\t"), "{said}");
        let ran: Vec<&str> = lines[1].split('\t').collect();
        assert!(ran[0].parse::<f64>().unwrap() > 0.0);
        assert_eq!(ran[1], "64");
        assert!(ran[2].parse::<usize>().unwrap() >= SECTIONS_MIN);
        assert_eq!(lines[2], "done\t64");
    }

    #[test]
    fn an_unknown_command_ends_the_harness() {
        let error = said("function=reassemble work=contiguous", "jump 1\n").unwrap_err();
        assert_eq!(error.to_string(), "jump 1: unknown harness command");
        assert!(said("function=reassemble work=contiguous", "run soon\n").is_err());
    }

    #[test]
    fn unsupported_work_is_reported_at_once() {
        let said = said("plain-copy function=parse work=contiguous", "run 1\n").unwrap();
        assert!(said.starts_with("cannot\t"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }

    #[test]
    fn sections_run_silently() {
        assert_eq!(said("function=reassemble work=contiguous sections=3", "").unwrap(), "");
    }

    #[test]
    fn all_systems_give_the_expected_output() {
        let folder = tempfile::tempdir().unwrap();
        let [file, out] = ["in", "out"].map(|name| folder.path().join(name));
        let (mut right, mut cannot) = (0, Vec::new());
        for workload in workloads(Extent::Full, &[]) {
            let (section, reference) = match &workload.recipe {
                Recipe::Fragments(fragments) | Recipe::Joinable(fragments, _) if fragments.datagrams > 64 => {
                    continue;
                }
                Recipe::Flows(flows) if flows.flows > 64 => continue,
                recipe => recipe.build(),
            };
            section.write(&file).unwrap();
            for system in [vec![WIDELOAD], references(&workload)].concat() {
                let mut words: Vec<String> =
                    workload.keys().iter().map(|(key, value)| format!("{key}={value}")).collect();
                words.extend([system.replace(' ', "-"), format!("file={}", file.display())]);
                words.extend([format!("out={}", out.display()), "pages=huge".to_string(), "ring=2".to_string()]);
                if let Recipe::Attack(attack) = &workload.recipe {
                    words.extend(attack.limit().map(|limit| format!("limit={limit}")));
                }
                let name = format!("{system}, {}: {workload}", workload.function);
                let mut said = Vec::new();
                speak(&Ask::parse(&words).unwrap(), &b"verify\n"[..], &mut said).unwrap();
                let said = String::from_utf8(said).unwrap();
                if said.starts_with("cannot") {
                    cannot.push(name);
                    continue;
                }
                let output = Section::read(&out).unwrap();
                if system == WIDELOAD || workload.function != Function::Checksum {
                    reference.check(&output, &said).unwrap_or_else(|difference| panic!("{name}: {difference}"));
                    right += 1;
                }
            }
        }
        assert!(right > 100, "{right} right");
        let lacks = |what: &str| cannot.iter().any(|name| name.starts_with("wideload") && name.contains(what));
        assert!(!lacks("contiguous") && !lacks("both checksums"), "{cannot:#?}");
    }
}
