//! Packets drawn from a seed -> output of the live kernel, beside output of the engine.
//!
//! There are three parts: fragmented datagrams to reassemble, GSO packets to segment, and bursts to coalesce. Each
//! part uses TUN devices in a namespace of its own. The kernel and the engine get the same packets. If the outputs
//! differ, a model must explain both. The model switches the known differences, one after the other, from the
//! engine's behaviour to the kernel's. A difference without an explanation is a failure. The test repeats a failing
//! case alone, shrinks it, and prints the command that repeats it.

mod known;
mod merging;
mod merging_model;
mod reassembly;
mod reassembly_cases;
mod reassembly_draw;
mod reassembly_model;
mod segmentation;

use super::Conditions;
use fastrand::Rng;
use known::Known;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Number of cases in each part, and their seed.
#[derive(Clone, Copy, Debug)]
pub struct DifferentialSettings {
    /// Minimum number of fragmented datagrams.
    pub datagrams: u64,
    /// Minimum number of GSO packets to segment.
    pub gso_packets: u64,
    /// Minimum number of bursts to coalesce.
    pub bursts: u64,
    /// Seed of all cases.
    pub seed: u64,
    /// Number of threads, each with namespaces of its own.
    pub threads: usize,
}

impl Default for DifferentialSettings {
    fn default() -> DifferentialSettings {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        DifferentialSettings { datagrams: 5_000_000, gso_packets: 2_000_000, bursts: 1_000_000, seed: 0, threads }
    }
}

/// Results of all parts.
#[derive(Clone, Debug, Serialize)]
pub struct Differential {
    /// Machine, kernel and program of the comparison.
    pub conditions: Conditions,
    /// Seed of all cases.
    pub seed: u64,
    /// The requested parts.
    pub parts: Vec<PartReport>,
    /// Every known difference, whether it occurred or not.
    pub known: Vec<Met>,
}

/// Results of one part.
#[derive(Clone, Debug, Serialize)]
pub struct PartReport {
    /// The part of the comparison.
    pub kind: Kind,
    /// Number of datagrams, GSO packets or bursts.
    pub count: u64,
    /// Number of cases. A case has a few fragmented datagrams, one GSO packet or one burst.
    pub cases: u64,
    /// Number of packets that were written to the kernel.
    pub packets: u64,
    /// Number of cases with equal outputs.
    pub same: u64,
    /// Number of cases with known differences only.
    pub told: u64,
    /// Number of cases that differed at first, but not in every repetition.
    pub passing: u64,
    /// Cases with unknown differences.
    pub failures: Vec<Failure>,
    /// Number of cases that differed, but were not examined, because the limit of failures was reached.
    pub unjudged: u64,
    /// Duration of the part, in seconds.
    pub seconds: f64,
}

/// A known difference, and the number of cases with it.
#[derive(Clone, Debug, Serialize)]
pub struct Met {
    /// Name of the difference.
    pub id: &'static str,
    /// Description of the difference.
    pub sentence: &'static str,
    /// Reason for the difference.
    pub source: &'static str,
    /// Number of cases with the difference.
    pub count: u64,
}

/// A case in which kernel and engine differ without a known reason.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The command that repeats the case.
    pub command: String,
    /// Description of the difference.
    pub what: String,
    /// Description of the packets that were sent, after shrinking.
    pub case: String,
}

/// Part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Fragmented datagrams.
    Reassembly,
    /// GSO packets to segment.
    Segmentation,
    /// Bursts of segments and datagrams to coalesce.
    Merging,
}

/// Cases to repeat: one, or several consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cases {
    kind: Kind,
    first: u64,
    count: u64,
}

/// Result of comparing two outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Known(Vec<Known>),
    Differs(String),
}

/// Operations of one part: drawing cases, and comparing the outputs of kernel and engine.
trait Bench: Sized {
    type Case: Clone;
    const KIND: Kind;

    /// Opens the part's devices in namespaces of their own. Keys and initial values are drawn from `rng`.
    fn open(rng: &mut Rng) -> io::Result<Self>;
    fn draw(rng: &mut Rng) -> Self::Case;
    /// Returns a verdict for each case.
    fn compare(&mut self, cases: &[Self::Case]) -> io::Result<Vec<Verdict>>;
    /// Returns cases that are smaller than this one.
    fn smaller(case: &Self::Case) -> Vec<Self::Case>;
    fn words(case: &Self::Case) -> String;
    /// Returns the number of datagrams, GSO packets or bursts, and the number of packets.
    fn counts(case: &Self::Case) -> (u64, u64);
}

/// Compares all cases, and passes a description of the progress to `tell`.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn differential(settings: &DifferentialSettings, tell: impl Fn(&str) + Sync) -> io::Result<Differential> {
    let conditions = Conditions::here(1);
    let mut met = Tallies::default();
    let parts = vec![
        part::<reassembly::Reassembly>(settings, settings.datagrams, &mut met, &tell)?,
        part::<segmentation::Segmentation>(settings, settings.gso_packets, &mut met, &tell)?,
        part::<merging::Merging>(settings, settings.bursts, &mut met, &tell)?,
    ];
    let parts = parts.into_iter().filter(|part| part.cases > 0).collect();
    Ok(Differential { conditions, seed: settings.seed, parts, known: met.rows() })
}

/// Compares the given cases of a seed again.
///
/// # Errors
/// The same as those of [`differential`].
pub fn repeat(seed: u64, cases: Cases) -> io::Result<Differential> {
    let conditions = Conditions::here(1);
    let mut met = Tallies::default();
    let part = match cases.kind {
        Kind::Reassembly => repeat_part::<reassembly::Reassembly>(seed, cases, &mut met)?,
        Kind::Segmentation => repeat_part::<segmentation::Segmentation>(seed, cases, &mut met)?,
        Kind::Merging => repeat_part::<merging::Merging>(seed, cases, &mut met)?,
    };
    Ok(Differential { conditions, seed, parts: vec![part], known: met.rows() })
}

fn repeat_part<B: Bench>(seed: u64, cases: Cases, met: &mut Tallies) -> io::Result<PartReport> {
    let began = Instant::now();
    let mut part = PartReport::new(B::KIND);
    run_batch(&mut B::open(&mut for_thread(seed, B::KIND, 0))?, seed, cases, &mut part, met)?;
    part.seconds = began.elapsed().as_secs_f64();
    Ok(part)
}

fn part<B: Bench>(
    settings: &DifferentialSettings,
    wanted: u64,
    met: &mut Tallies,
    tell: &(impl Fn(&str) + Sync),
) -> io::Result<PartReport> {
    if wanted == 0 {
        return Ok(PartReport::new(B::KIND));
    }
    let began = Instant::now();
    let (next, done, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let whole = Mutex::new((PartReport::new(B::KIND), Tallies::default()));
    let work = |thread: u64| -> io::Result<()> {
        let mut bench = B::open(&mut for_thread(settings.seed, B::KIND, thread))?;
        while !is_over.load(Ordering::Relaxed) {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            let cases = Cases { kind: B::KIND, first, count: BATCH };
            let (mut part, mut met) = (PartReport::new(B::KIND), Tallies::default());
            run_batch(&mut bench, settings.seed, cases, &mut part, &mut met)?;
            let so_far = done.fetch_add(part.count, Ordering::Relaxed) + part.count;
            let mut whole = whole.lock().expect("who holds it does not panic");
            whole.0.add(part);
            whole.1.add(&met);
            if so_far >= wanted || whole.0.failures.len() >= FAILURES_MAX {
                is_over.store(true, Ordering::Relaxed);
            }
            if first.is_multiple_of(BATCH * TELL_EACH) {
                let (so_far, of) = (so_far as f64 / 1e6, wanted as f64 / 1e6);
                let rate = so_far / began.elapsed().as_secs_f64();
                tell(&format!("{}: {so_far:.2} of {of:.2} million, {rate:.3} million a second", B::KIND));
            }
        }
        Ok(())
    };
    let work = |thread| {
        // When the first thread is done or fails, the others end too.
        let ended = work(thread);
        is_over.store(true, Ordering::Relaxed);
        ended
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..settings.threads.max(1) as u64).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that panics has said why"))
    })?;
    let (mut part, more) = whole.into_inner().expect("who held it did not panic");
    part.seconds = began.elapsed().as_secs_f64();
    met.add(&more);
    Ok(part)
}

fn run_batch<B: Bench>(
    bench: &mut B,
    seed: u64,
    which: Cases,
    part: &mut PartReport,
    met: &mut Tallies,
) -> io::Result<()> {
    let cases: Vec<B::Case> = (which.first..which.first + which.count)
        .map(|number| B::draw(&mut Rng::with_seed(mix(seed, B::KIND, number))))
        .collect();
    for case in &cases {
        let (count, packets) = B::counts(case);
        (part.count, part.packets, part.cases) = (part.count + count, part.packets + packets, part.cases + 1);
    }
    for (index, verdict) in bench.compare(&cases)?.into_iter().enumerate() {
        match verdict {
            Verdict::Same => part.same += 1,
            Verdict::Known(known) => {
                part.told += 1;
                met.count(&known);
            }
            Verdict::Differs(what) if part.failures.len() < FAILURES_MAX => {
                match judge(bench, seed, which, &cases, index, what)? {
                    Some(failure) => part.failures.push(failure),
                    None => part.passing += 1,
                }
            }
            Verdict::Differs(_) => part.unjudged += 1,
        }
    }
    Ok(())
}

/// Repeats a case that differed, alone and then among its neighbours. The case is a failure if it differs each
/// time. The engine always gives the same output for the same packets, so an occasional difference comes from the
/// kernel's clock.
fn judge<B: Bench>(
    bench: &mut B,
    seed: u64,
    which: Cases,
    cases: &[B::Case],
    index: usize,
    what: String,
) -> io::Result<Option<Failure>> {
    let case = &cases[index];
    let command = |first, count| {
        format!("wideload lab differential --seed {seed} --case {}", Cases { first, count, ..which })
    };
    if let Some(what) = always_differs(bench, std::slice::from_ref(case), 0)? {
        let (case, what) = shrink(bench, case.clone(), what)?;
        let command = command(which.first + index as u64, 1);
        return Ok(Some(Failure { command, what, case: B::words(&case) }));
    }
    Ok(always_differs(bench, cases, index)?.map(|_| {
        let command = command(which.first, which.count);
        Failure { command, what, case: B::words(case) }
    }))
}

/// Returns the difference if the case at `index` differs in every repetition; `None` otherwise.
fn always_differs<B: Bench>(bench: &mut B, cases: &[B::Case], index: usize) -> io::Result<Option<String>> {
    let mut said = None;
    for _ in 0..REPEATS {
        match bench.compare(cases)?.into_iter().nth(index) {
            Some(Verdict::Differs(what)) => said = Some(what),
            _ => return Ok(None),
        }
    }
    Ok(said)
}

fn differs<B: Bench>(bench: &mut B, case: &B::Case) -> io::Result<Option<String>> {
    Ok(match bench.compare(std::slice::from_ref(case))?.pop() {
        Some(Verdict::Differs(what)) => Some(what),
        _ => None,
    })
}

/// Removes all parts of a case that the difference does not need.
fn shrink<B: Bench>(bench: &mut B, mut case: B::Case, mut what: String) -> io::Result<(B::Case, String)> {
    let mut trials = 0;
    'smaller: loop {
        for smaller in B::smaller(&case) {
            trials += 1;
            if trials > TRIALS_MAX {
                break 'smaller;
            }
            if let Some(still) = differs(bench, &smaller)? {
                (case, what) = (smaller, still);
                continue 'smaller;
            }
        }
        break;
    }
    Ok((case, what))
}

/// Returns a separate seed for each case.
fn mix(seed: u64, kind: Kind, number: u64) -> u64 {
    let mut rng = Rng::with_seed(seed ^ (kind as u64 + 1) << 56);
    rng.u64(..) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns a generator for a thread's bench, distinct from those of all cases.
fn for_thread(seed: u64, kind: Kind, thread: u64) -> Rng {
    Rng::with_seed(mix(seed, kind, u64::MAX - thread))
}

/// Number of cases with each known difference.
#[derive(Clone, Debug)]
struct Tallies([u64; Known::ALL.len()]);

impl Default for Tallies {
    fn default() -> Tallies {
        Tallies([0; Known::ALL.len()])
    }
}

impl Tallies {
    fn count(&mut self, known: &[Known]) {
        let known: BTreeSet<usize> = known.iter().map(|known| *known as usize).collect();
        known.into_iter().for_each(|at| self.0[at] += 1);
    }

    fn add(&mut self, more: &Tallies) {
        self.0.iter_mut().zip(more.0).for_each(|(sum, more)| *sum += more);
    }

    fn rows(&self) -> Vec<Met> {
        let row = |known: Known| {
            let [id, sentence, source] = known.said();
            Met { id, sentence, source, count: self.0[known as usize] }
        };
        Known::ALL.into_iter().map(row).collect()
    }
}

impl PartReport {
    fn new(kind: Kind) -> PartReport {
        let failures = Vec::new();
        PartReport {
            kind,
            count: 0,
            cases: 0,
            packets: 0,
            same: 0,
            told: 0,
            passing: 0,
            failures,
            unjudged: 0,
            seconds: 0.0,
        }
    }

    fn add(&mut self, more: PartReport) {
        self.count += more.count;
        self.cases += more.cases;
        self.packets += more.packets;
        self.same += more.same;
        self.told += more.told;
        self.passing += more.passing;
        self.failures.extend(more.failures);
        self.unjudged += more.unjudged;
    }

    /// Whether the part has no failure, and almost no case depended on timing.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.passing * PASSING_SHARE <= self.cases.max(PASSING_SHARE)
    }
}

impl Differential {
    /// Whether every part is good, and only a small share of the bursts met a clock tick at every try.
    pub fn is_good(&self) -> bool {
        let early = self.known.iter().find(|met| met.id == Known::Early.said()[0]).map_or(0, |met| met.count);
        let bursts =
            self.parts.iter().filter(|part| part.kind == Kind::Merging).map(|part| part.cases).sum::<u64>();
        self.parts.iter().all(PartReport::is_good) && early * EARLY_SHARE <= bursts.max(EARLY_SHARE)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Reassembly => "reassembly",
            Kind::Segmentation => "segmentation",
            Kind::Merging => "merging",
        })
    }
}

impl fmt::Display for Cases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.first)?;
        if self.count > 1 { write!(f, "+{}", self.count) } else { Ok(()) }
    }
}

impl FromStr for Cases {
    type Err = String;

    fn from_str(text: &str) -> Result<Cases, String> {
        let wrong = || {
            format!(
                "{text:?} is not a case; write it as a failure shows it, such as reassembly:17 or reassembly:64+64, \
                 at most {REPEATED_MAX}"
            )
        };
        let (kind, numbers) = text.split_once(':').ok_or_else(wrong)?;
        let kinds = [Kind::Reassembly, Kind::Segmentation, Kind::Merging];
        let kind = kinds.into_iter().find(|known| known.to_string() == kind).ok_or_else(wrong)?;
        let (first, count) = numbers.split_once('+').unwrap_or((numbers, "1"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let (first, count) = (number(first)?, number(count)?);
        let is_possible = (1..=REPEATED_MAX).contains(&count) && first.checked_add(count).is_some();
        if is_possible { Ok(Cases { kind, first, count }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Differential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "The live kernel and the engine, with the same packets.\n")?;
        writeln!(
            f,
            "{:<13}{:>11}{:>11}{:>12}{:>11}{:>11}{:>9}{:>10}{:>9}",
            "", "compared", "cases", "packets", "same", "known", "transient", "failures", "seconds"
        )?;
        for part in &self.parts {
            let PartReport { kind, count, cases, packets, same, told, passing, failures, seconds, .. } = part;
            writeln!(
                f,
                "{kind:<13}{count:>11}{cases:>11}{packets:>12}{same:>11}{told:>11}{passing:>9}{:>10}{seconds:>9.1}",
                failures.len()
            )?;
        }
        for PartReport { kind, failures, unjudged, .. } in &self.parts {
            if failures.len() >= FAILURES_MAX {
                writeln!(
                    f,
                    "{kind}: ended early after {} failures; {unjudged} more cases that differed were not analysed",
                    failures.len()
                )?;
            }
        }
        writeln!(f, "\n{:>9}  known difference", "cases")?;
        for Met { id, sentence, source, count } in &self.known {
            writeln!(f, "{count:>9}  {id}: {sentence} ({source})")?;
        }
        writeln!(
            f,
            "\nThe kernel forwards GSO packets and bursts, so it decrements the TTL (RFC 791); the comparison accounts for that."
        )?;
        for Failure { command, what, case } in self.parts.iter().flat_map(|part| &part.failures) {
            writeln!(f, "\nfailed: {what}\n{case}  repeat with: {command}")?;
        }
        writeln!(f, "\nseed {}; {}", self.seed, self.conditions)
    }
}

/// Number of cases that a thread compares together.
const BATCH: u64 = 64;
/// Largest number of cases that one command repeats.
const REPEATED_MAX: u64 = 1 << 20;
/// Number of batches between progress reports.
const TELL_EACH: u64 = 64;
/// Number of failures that ends a part, because shrinking them takes time.
const FAILURES_MAX: usize = 10;
/// Repetitions of a case that differed.
const REPEATS: usize = 5;
/// Largest number of smaller cases that are tried while a failing case is shrunk.
const TRIALS_MAX: usize = 400;
/// Inverse of the allowed share of cases that depend on timing, such as the kernel's clock ticks and timers.
const PASSING_SHARE: u64 = 1_000;
/// Inverse of the allowed share of bursts that meet a clock tick at every try.
const EARLY_SHARE: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// A test bench that reports a difference if a case contains a seven.
    struct Sevens;

    impl Bench for Sevens {
        type Case = Vec<u8>;
        const KIND: Kind = Kind::Merging;

        fn open(_: &mut Rng) -> io::Result<Sevens> {
            Ok(Sevens)
        }

        fn draw(rng: &mut Rng) -> Vec<u8> {
            (0..20).map(|_| rng.u8(..10)).collect()
        }

        fn compare(&mut self, cases: &[Vec<u8>]) -> io::Result<Vec<Verdict>> {
            let verdict = |case: &Vec<u8>| match (case.contains(&7), case.contains(&8)) {
                (true, _) => Verdict::Differs("a seven".to_owned()),
                (false, true) => Verdict::Known(vec![Known::Empty, Known::Empty]),
                (false, false) => Verdict::Same,
            };
            Ok(cases.iter().map(verdict).collect())
        }

        fn smaller(case: &Vec<u8>) -> Vec<Vec<u8>> {
            (0..case.len()).map(|at| [&case[..at], &case[at + 1..]].concat()).collect()
        }

        fn words(case: &Vec<u8>) -> String {
            format!("{case:?}")
        }

        fn counts(_: &Vec<u8>) -> (u64, u64) {
            (1, 1)
        }
    }

    #[test]
    fn an_unknown_difference_is_a_minimal_failure_with_its_command() {
        let (mut part, mut met) = (PartReport::new(Kind::Merging), Tallies::default());
        let cases = Cases { kind: Kind::Merging, first: 5, count: 3 };
        run_batch(&mut Sevens, 9, cases, &mut part, &mut met).unwrap();
        let differing: Vec<u64> = (5..8)
            .filter(|number| Sevens::draw(&mut Rng::with_seed(mix(9, Kind::Merging, *number))).contains(&7))
            .collect();
        let commands =
            differing.iter().map(|number| format!("wideload lab differential --seed 9 --case merging:{number}"));
        assert!(!differing.is_empty());
        assert_eq!(
            part.failures.iter().map(|failure| failure.command.clone()).collect::<Vec<_>>(),
            commands.collect::<Vec<_>>()
        );
        assert!(part.failures.iter().all(|failure| failure.case == "[7]"), "{:?}", part.failures);
        assert!(!part.is_good());
    }

    #[test]
    fn a_difference_counts_once_per_case_and_unmet_ones_are_shown() {
        let (mut part, mut met) = (PartReport::new(Kind::Merging), Tallies::default());
        let cases = Cases { kind: Kind::Merging, first: 0, count: 200 };
        run_batch(&mut Sevens, 1, cases, &mut part, &mut met).unwrap();
        assert!(part.told > 0 && part.same > 0);
        for row in met.rows() {
            assert_eq!(row.count, if row.id == "empty" { part.told } else { 0 }, "{}", row.id);
        }
    }

    #[test]
    fn cases_read_back() {
        for text in ["reassembly:17", "segmentation:0", "merging:64+64"] {
            assert_eq!(text.parse::<Cases>().unwrap().to_string(), text);
        }
        let endless = format!("reassembly:{}", u64::MAX);
        for text in [
            "reassembly",
            "17",
            "joining:17",
            "merging:x",
            "merging:1+",
            "merging:1+0",
            "merging:1+1048577",
            &endless,
        ] {
            let error = text.parse::<Cases>().unwrap_err();
            assert!(error.contains("reassembly:17"), "{error}");
        }
    }

    #[test]
    fn differences_have_names_of_their_own() {
        let names: BTreeSet<&str> = Known::ALL.iter().map(|known| known.said()[0]).collect();
        assert_eq!(names.len(), Known::ALL.len());
        assert!(Known::ALL.iter().enumerate().all(|(at, known)| *known as usize == at));
    }

    #[test]
    fn differences_cite_known_standards() {
        let rows =
            include_str!("../../../../../docs/STANDARDS.tsv").lines().filter_map(|row| row.split('\t').next());
        let rows: BTreeSet<&str> = rows.collect();
        let is_id = |word: &&str| {
            word.strip_prefix('R').is_some_and(|rest| rest.len() == 3 && rest.bytes().all(|it| it.is_ascii_digit()))
        };
        let named = Known::ALL.iter().flat_map(|known| known.said()[2].split([' ', ',', ';'])).filter(is_id);
        let (standing, missing): (Vec<&str>, Vec<&str>) = named.partition(|id| rows.contains(id));
        assert!(standing.len() > 3 && missing.is_empty(), "{standing:?}, missing {missing:?}");
    }

    #[test]
    fn failures_after_the_tenth_are_only_counted() {
        let (mut part, mut met) = (PartReport::new(Kind::Merging), Tallies::default());
        let cases = Cases { kind: Kind::Merging, first: 0, count: 64 };
        run_batch(&mut Sevens, 1, cases, &mut part, &mut met).unwrap();
        assert_eq!(part.failures.len(), FAILURES_MAX);
        assert!(part.unjudged > 0);
        assert_eq!(part.same + part.told + part.failures.len() as u64 + part.unjudged, part.cases);
        let told = format!("ended early after 10 failures; {} more cases", part.unjudged);
        let (conditions, known) = (Conditions::here(1), met.rows());
        let whole = Differential { conditions, seed: 1, parts: vec![part], known };
        assert!(whole.to_string().contains(&told), "{whole}");
    }

    #[test]
    fn a_comparison_reports_every_known_difference_and_the_failures() {
        let failure = |number: usize| Failure {
            command: format!("wideload lab differential --seed 7 --case reassembly:{number}"),
            what: "kernel: 2 packets; engine: 1 packet".to_owned(),
            case: "  the first of the packets that were sent\n  the second\n".to_owned(),
        };
        let reassembly = PartReport {
            kind: Kind::Reassembly,
            count: 640,
            cases: 128,
            packets: 2_560,
            same: 100,
            told: 14,
            passing: 1,
            failures: (0..FAILURES_MAX).map(failure).collect(),
            unjudged: 3,
            seconds: 2.5,
        };
        let merging = PartReport { count: 64, cases: 64, same: 64, ..PartReport::new(Kind::Merging) };
        let mut met = Tallies::default();
        met.count(&[Known::UnequalRepeat, Known::Early]);
        let conditions = Conditions::made_up();
        let whole = Differential { conditions, seed: 7, parts: vec![reassembly, merging], known: met.rows() };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reports/differential.txt");
        testkit::golden(path, &whole.to_string());
    }
}
