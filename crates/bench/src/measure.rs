//! One workload -> a row for each system.
//!
//! All systems of a workload run in turn, round by round, so that a slow phase of the machine slows all of them.

use crate::call_paths;
use crate::child::{Harness, Run};
use crate::instructions;
use crate::machine::{free_memory, gibibytes};
use crate::metrics::Figures;
use crate::peers::Peers;
use crate::recipe::{ArrivalOrder, Recipe};
use crate::reference::{Reference, Verdict};
use crate::rows::{BEST_CASE, COPY_AND_SUM, PLAIN_COPY, Row, WIDELOAD};
use crate::section::Section;
use crate::workload::{Function, Warmth, Work, Workload};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Settings of a measurement.
pub struct Measurement {
    /// Peers to measure in addition to Wideload.
    pub peers: Peers,
    /// Another build of this program to measure; `None` for no such comparison.
    pub before: Option<PathBuf>,
    /// Number of rounds of each workload.
    pub rounds: usize,
    /// Duration of the timed work of each system in each round, in milliseconds.
    pub ms: u64,
    /// The CPU that every harness runs on.
    pub processor: usize,
    /// Size of the largest cache, in bytes.
    pub largest_cache: usize,
    /// Whether instructions are counted in addition to nanoseconds.
    pub counts: bool,
    /// Folder for packets and outputs.
    pub folder: PathBuf,
}

/// The packets of a workload in a file, and the correct output.
pub struct Input {
    path: PathBuf,
    reference: Reference,
    packets: usize,
    bytes: usize,
    longest: usize,
}

/// A system of a workload, and its results so far.
struct Contender {
    system: String,
    program: PathBuf,
    arguments: Vec<String>,
    input: Rc<Input>,
    /// Copies of the section that this system gets, as a multiple of the others' copies.
    copies: usize,
    harness: Option<Harness>,
    version: String,
    delivers: String,
    verdict: Option<Verdict>,
    fault: Option<String>,
    figures: Figures,
    completed: Option<u64>,
}

impl Measurement {
    /// Measures every system that does the work of `workload`, and passes progress to `tell`. Wideload's
    /// instructions are counted without a time limit. Other systems' instructions are counted until the time
    /// `counting` is used up; the rest of the time stays in `counting`.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn of(
        &self,
        workload: &Workload,
        counting: &mut Duration,
        mut tell: impl FnMut(&str),
    ) -> io::Result<Vec<Row>> {
        tell("packets");
        let input = Rc::new(Input::write(&workload.recipe, &self.folder)?);
        let mut contenders = self.contenders(workload, &input)?;
        let plan = self.plan(workload, &contenders);
        let rows = match plan {
            Err(why) => vec![Row { fault: Some(why), ..contenders[0].row(workload, None) }],
            Ok(plan) => {
                for contender in &mut contenders {
                    tell(&contender.system);
                    contender.prove(workload, &plan, self);
                    if plan.one_at_a_time {
                        contender.harness = None;
                    }
                }
                self.rounds(workload, &plan, &mut contenders, &mut tell);
                contenders.iter_mut().for_each(|contender| contender.harness = None);
                let base = contenders[0].figures.clone();
                let mut rows: Vec<Row> = contenders.iter().map(|one| one.row(workload, Some(&base))).collect();
                compare_with_best_case(&mut rows);
                for (row, contender) in rows.iter_mut().zip(&contenders) {
                    self.count(workload, contender, row, counting, &mut tell);
                }
                rows
            }
        };
        for contender in &contenders {
            // Contenders may share a file, so it might already be removed.
            let _ = fs::remove_file(&contender.input.path);
        }
        Ok(rows)
    }

    fn count(
        &self,
        workload: &Workload,
        contender: &Contender,
        row: &mut Row,
        counting: &mut Duration,
        tell: &mut impl FnMut(&str),
    ) {
        let is_first = contender.system == WIDELOAD;
        let is_quick = contender.input.packets <= instructions::PACKETS_MAX && contender.fault.is_none();
        if !self.counts || !is_quick || !is_first && counting.is_zero() {
            return;
        }
        tell(&format!("{}, instructions", contender.system));
        let started = Instant::now();
        row.instructions = contender.instructions(workload, &self.folder);
        if !is_first {
            *counting = counting.saturating_sub(started.elapsed());
        }
    }

    /// Returns the systems of a workload: Wideload, another build of it, the plain loops, then peers.
    fn contenders(&self, workload: &Workload, input: &Rc<Input>) -> io::Result<Vec<Contender>> {
        let harness = std::env::current_exe()?;
        let own = |system: &str, words: Vec<String>, input: &Rc<Input>| {
            let arguments = [vec!["harness".to_string()], words].concat();
            Contender::new(system, harness.clone(), arguments, input)
        };
        let mut all = vec![own(WIDELOAD, own_words(&workload.recipe), input)];
        if let Some(before) = &self.before {
            let arguments = all[0].arguments.clone();
            all.push(Contender::new(&name_before(before), before.clone(), arguments, input));
        }
        for system in references(workload) {
            all.push(own(system, vec![system.replace(' ', "-")], input));
        }
        if let Recipe::Attack(attack) = &workload.recipe {
            // The question is the attack's cost for Wideload; peers are measured with benign traffic.
            let best = Rc::new(Input::write(&attack.best_case(), &self.folder)?);
            let mut best = own(BEST_CASE, vec!["wideload".to_string()], &best);
            // The number of packets in memory is equal, so that caches are no part of the difference.
            best.copies = input.packets.div_ceil(best.input.packets);
            all.push(best);
            return Ok(all);
        }
        for offer in self.peers.of(workload) {
            all.push(Contender::new(&offer.system, offer.program.clone(), offer.arguments.clone(), input));
        }
        Ok(all)
    }

    /// Chooses the number of copies of the section, and whether all harnesses run at the same time, by the
    /// available memory.
    fn plan(&self, workload: &Workload, contenders: &[Contender]) -> Result<Plan, String> {
        let input = &contenders[0].input;
        let room = free_memory() / 100 * MEMORY_PERCENT;
        let section_len = input.packets * input.longest.max(MEMORY_A_PACKET);
        let held_len = workload.recipe.held_len();
        let ring = match workload.warmth {
            Warmth::Hot => 1,
            Warmth::Cold => (CACHES_PASSED * self.largest_cache).div_ceil(input.bytes.max(1)),
        };
        let one_len = ring * section_len + held_len;
        if one_len > room {
            let (needed, room) = (gibibytes(one_len), gibibytes(room));
            return Err(format!("left out: takes {needed:.1} GiB of memory, {room:.1} GiB may be used"));
        }
        Ok(Plan { ring, one_at_a_time: one_len * contenders.len() > room })
    }

    /// Runs every system in each round. Each round begins with a different system.
    fn rounds(&self, workload: &Workload, plan: &Plan, contenders: &mut [Contender], tell: &mut impl FnMut(&str)) {
        let count = contenders.len();
        for round in 0..self.rounds {
            tell(&format!("round {} of {}", round + 1, self.rounds));
            for turn in 0..count {
                let contender = &mut contenders[(turn + round) % count];
                if contender.fault.is_some() && contender.verdict.is_none() {
                    continue;
                }
                contender.measure(workload, plan, self);
                if plan.one_at_a_time {
                    contender.harness = None;
                }
            }
        }
    }
}

/// How the harnesses of a workload are started.
struct Plan {
    ring: usize,
    one_at_a_time: bool,
}

impl Input {
    /// Generates a section and writes it to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(recipe: &Recipe, folder: &Path) -> io::Result<Input> {
        let (section, reference) = recipe.build();
        let (_, path) = tempfile::Builder::new().prefix("section-").tempfile_in(folder)?.keep()?;
        section.write(&path)?;
        let (packets, bytes, longest) = (section.len(), section.bytes_len(), section.longest());
        Ok(Input { path, reference, packets, bytes, longest })
    }

    /// Returns the divisor of a section's nanoseconds and instructions, in packets.
    fn units(&self, function: Function) -> usize {
        match function {
            Function::Fragment | Function::Segment => self.reference.count().unwrap_or(self.packets),
            _ => self.packets,
        }
    }
}

impl Contender {
    fn new(system: &str, program: PathBuf, arguments: Vec<String>, input: &Rc<Input>) -> Contender {
        Contender {
            system: system.to_string(),
            program,
            arguments,
            input: Rc::clone(input),
            copies: 1,
            harness: None,
            version: String::new(),
            delivers: String::new(),
            verdict: None,
            fault: None,
            figures: Figures::default(),
            completed: None,
        }
    }

    fn command(&self, workload: &Workload, ring: usize, out: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        let keys = match &workload.recipe {
            Recipe::Attack(attack) if self.system == BEST_CASE => {
                Workload { recipe: attack.best_case(), ..workload.clone() }.keys()
            }
            _ => workload.keys(),
        };
        command.args(keys.iter().map(|(key, value)| format!("{key}={value}")));
        command.args([format!("file={}", self.input.path.display()), format!("out={}", out.display())]);
        command.args([format!("ring={ring}"), "pages=huge".to_string()]);
        command
    }

    fn start(&mut self, workload: &Workload, plan: &Plan, how: &Measurement) -> Result<&mut Harness, String> {
        let out = self.out(how);
        let harness =
            Harness::start(&mut self.command(workload, plan.ring * self.copies, &out), how.processor, &how.folder)?;
        self.version.clone_from(&harness.version);
        self.delivers.clone_from(&harness.delivers);
        Ok(self.harness.insert(harness))
    }

    fn out(&self, how: &Measurement) -> PathBuf {
        how.folder.join(format!("out-{}", self.system.replace([' ', '/'], "-")))
    }

    /// Starts the system's harness, and compares its output with the correct output.
    fn prove(&mut self, workload: &Workload, plan: &Plan, how: &Measurement) {
        let result = self.start(workload, plan, how).and_then(Harness::verify).and_then(|()| {
            let out = self.out(how);
            let output = Section::read(&out).map_err(|error| error.to_string());
            let _ = fs::remove_file(&out);
            output
        });
        let output = match result {
            Ok(output) => output,
            Err(fault) => {
                self.harness = None;
                self.fault = Some(fault);
                return;
            }
        };
        if self.system == PLAIN_COPY && workload.function == Function::Checksum {
            self.verdict = Some(Verdict::Exact);
            return;
        }
        match self.input.reference.check(&output, &self.delivers) {
            Ok(verdict) => self.verdict = Some(verdict),
            Err(difference) => {
                // The cost of a wrong answer is still reported, with its fault.
                self.verdict = Some(Verdict::Exact);
                self.fault = Some(format!("answers wrong: {difference}"));
            }
        }
    }

    fn measure(&mut self, workload: &Workload, plan: &Plan, how: &Measurement) {
        if self.harness.is_none()
            && let Err(fault) = self.start(workload, plan, how).map(drop)
        {
            return self.fail(fault);
        }
        let Some(harness) = &mut self.harness else { return };
        match harness.run(how.ms) {
            Ok(Run { ns, completed }) => {
                self.figures.push(ns);
                self.completed = Some(completed);
            }
            Err(fault) => self.fail(fault),
        }
    }

    fn fail(&mut self, fault: String) {
        self.harness = None;
        self.verdict = None;
        self.fault = Some(fault);
    }

    fn instructions(&self, workload: &Workload, folder: &Path) -> Option<f64> {
        let command = self.command(workload, 1, Path::new("/dev/null"));
        let units = self.input.units(workload.function);
        instructions::per_packet(&command, units, folder, TIMEOUT).ok()
    }

    fn row(&self, workload: &Workload, base: Option<&Figures>) -> Row {
        let ns = self.figures.median();
        let spread = self.figures.spread();
        let bits = self.input.bytes as f64 * 8.0 / self.input.units(workload.function) as f64;
        let verdict = match &self.verdict {
            Some(Verdict::ChecksumsLeft(what)) => Some(format!("{what} left to a later stage")),
            _ => None,
        };
        Row {
            function: workload.function,
            workload: workload.to_string(),
            system: self.system.clone(),
            ns,
            ns_min: spread.map(|(least, _)| least),
            ns_max: spread.map(|(_, greatest)| greatest),
            ratio: base.and_then(|base| self.figures.ratio(base)),
            instructions: None,
            gbit_s: ns.map(|ns| bits / ns),
            completed: self.completed,
            delivers: self.delivers.clone(),
            version: self.version.clone(),
            fault: self.fault.clone(),
            remark: verdict,
        }
    }
}

/// Counts the instructions of Wideload's own work.
///
/// # Errors
/// Valgrind is missing, or the harness failed under it.
pub fn own_instructions(workload: &Workload, folder: &Path) -> Result<f64, String> {
    of_own(workload, folder, |command, packets| instructions::per_packet(command, packets, folder, TIMEOUT))
}

/// Returns the functions that a packet of this workload goes through.
///
/// # Errors
/// Valgrind is missing, or the harness failed under it.
pub fn own_way(workload: &Workload, folder: &Path) -> Result<call_paths::CallPath, String> {
    of_own(workload, folder, |command, packets| call_paths::of_packet(command, packets, folder, TIMEOUT))
}

fn of_own<T>(
    workload: &Workload,
    folder: &Path,
    count: impl FnOnce(&Command, usize) -> Result<T, String>,
) -> Result<T, String> {
    let input = Rc::new(Input::write(&workload.recipe, folder).map_err(|error| error.to_string())?);
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let arguments = [vec!["harness".to_string()], own_words(&workload.recipe)].concat();
    let contender = Contender::new(WIDELOAD, program, arguments, &input);
    let command = contender.command(workload, 1, Path::new("/dev/null"));
    let count = count(&command, input.units(workload.function));
    let _ = fs::remove_file(&input.path);
    count
}

/// Adds a remark to an attack's row: the rate in percent of the rate with the cheapest traffic.
fn compare_with_best_case(rows: &mut [Row]) {
    let best = rows.iter().find(|row| row.system == BEST_CASE).and_then(|row| row.ratio);
    if let (Some(ratio), Some(first)) = (best, rows.first_mut()) {
        first.remark = Some(format!("at {:.0} % of the best case's rate", ratio * 100.0));
    }
}

/// Returns the name for another build's rows.
fn name_before(program: &Path) -> String {
    format!("{WIDELOAD} {}", program.file_name().unwrap_or_default().to_string_lossy())
}

/// Returns the arguments for Wideload's own harness in addition to the common ones.
fn own_words(recipe: &Recipe) -> Vec<String> {
    let limit = match recipe {
        Recipe::Attack(attack) => attack.limit().map(|limit| format!("limit={limit}")),
        _ => None,
    };
    ["wideload".to_string()].into_iter().chain(limit).collect()
}

/// Returns the plain loops that show the memory limit of a workload.
pub fn references(workload: &Workload) -> Vec<&'static str> {
    let in_order = match &workload.recipe {
        Recipe::Joinable(fragments, _) => fragments.order == ArrivalOrder::Forward,
        Recipe::Attack(_) => false,
        _ => true,
    };
    match (workload.function, workload.work) {
        _ if !in_order => Vec::new(),
        (Function::Reassemble | Function::Place | Function::Merge, Work::Contiguous) => vec![PLAIN_COPY],
        (Function::Reassemble, Work::Checksummed) => vec![PLAIN_COPY, COPY_AND_SUM],
        (Function::Coalesce, Work::Contiguous) => vec![PLAIN_COPY],
        (Function::Coalesce, Work::Checksummed) => vec![PLAIN_COPY, COPY_AND_SUM],
        (Function::Checksum, _) => vec![PLAIN_COPY],
        _ => Vec::new(),
    }
}

/// Largest share of the free memory that harnesses may use, in percent.
const MEMORY_PERCENT: usize = 40;
/// Assumed minimum memory per packet in any system, in bytes.
const MEMORY_A_PACKET: usize = 2_560;
/// Total length of the copies of a cold section, as a multiple of the largest cache.
const CACHES_PASSED: usize = 2;
/// Longest time for counting one system's instructions.
const TIMEOUT: Duration = Duration::from_secs(100);
