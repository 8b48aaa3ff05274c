//! The outcome of a rewrite -> a report, as a table or as JSON.
//!
//! The report accounts for every byte of the input. The module `rewrite` counts the packets and bytes.

use crate::rewrite::{CapturePosition, Outcome, Traffic};
use engine::{Event, Ledger, Reason, Tally};
use serde::Serialize;
use std::fmt::{self, Write};

/// The report of a rewrite. Its figures add up.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name of the input capture.
    pub input: String,
    /// Name of the output capture.
    pub output: String,
    /// Length of the longest allowed output packet, in bytes.
    pub mtu: u16,
    /// The reason why the rewrite ended.
    pub ended: Ended,
    /// Position of the first packet that the input contains only in part; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snap_cut: Option<CapturePosition>,
    /// Figures of the input.
    pub read: Side,
    /// Figures of the output.
    pub written: Side,
    /// The account of the payload bytes: read, written and lost.
    pub payload: Balance,
    /// Statistics of runs of TCP segments; `None` if no run was coalesced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Runs>,
    /// Every fate that occurred, with its number of packets.
    pub fates: Vec<Fate>,
    /// Number of packets by length.
    pub sizes: Vec<Size>,
}

/// The reason why a rewrite ended.
#[derive(Debug, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ended {
    /// The end of the input was reached.
    #[serde(rename = "whole")]
    Complete,
    /// The input is damaged.
    Damaged {
        /// Position and cause of the damage.
        why: String,
        /// Offset of the damage in the decompressed input, in bytes; `None` if unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        /// Number of packets read before the damage; `None` if unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        packets: Option<u64>,
    },
    /// The user interrupted the rewrite.
    Interrupted,
}

/// Figures of the input or of the output. `bytes` is the sum of `payload`, `headers` and `untouched`.
#[derive(Debug, Serialize)]
pub struct Side {
    /// Number of frames.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Payload bytes: all bytes after the part of the IP headers that every fragment repeats.
    pub payload: u64,
    /// Bytes of link headers, IP headers, generated ICMP errors and padding.
    pub headers: u64,
    /// Bytes of frames that the engine did not process. They were forwarded unchanged.
    pub untouched: u64,
}

/// Account of the payload: `read` is the sum of `written`, `retired` and `headers_saved`.
#[derive(Debug, Serialize)]
pub struct Balance {
    /// Payload bytes of the input.
    pub read: u64,
    /// Payload bytes of the output.
    pub written: u64,
    /// Payload bytes of packets that were dropped or rejected.
    pub retired: u64,
    /// Bytes of TCP headers that coalescing removed, less the bytes of TCP headers that segmentation added.
    pub headers_saved: i64,
}

/// Statistics of runs: sequences of consecutive TCP segments of one flow.
#[derive(Debug, Serialize)]
pub struct Runs {
    /// Number of segments in all runs.
    pub segments: u64,
    /// Number of runs, including runs of one segment.
    pub count: u64,
    /// Mean number of segments in a run.
    pub mean: f64,
    /// The rules that ended runs, each with its number of runs.
    pub ended_by: Vec<RunEnd>,
}

/// Number of runs that one rule ended.
#[derive(Debug, Serialize)]
pub struct RunEnd {
    /// Name of the rule's counter.
    pub name: &'static str,
    /// The counter's name in version 0.1; `None` if the name has not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_name: Option<&'static str>,
    /// Number of runs.
    pub count: u64,
}

/// One fate, and the number of packets that had it.
#[derive(Debug, Serialize)]
pub struct Fate {
    /// Kind of the fate.
    pub kind: Kind,
    /// Name of the counter.
    pub name: &'static str,
    /// The counter's name in version 0.1; `None` if the name has not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_name: Option<&'static str>,
    /// Number of packets.
    pub packets: u64,
    /// Payload bytes; for frames that passed unchanged, bytes of the complete frames.
    pub bytes: u64,
    /// Description of the counter in one sentence.
    pub what: &'static str,
}

/// The kinds of fates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The frame passed unchanged; the fate is the reason.
    #[serde(rename = "passed")]
    PassedThrough,
    /// The packet was processed; the fate is the processing step.
    Done,
    /// The packet was dropped or rejected; the fate is the reason.
    Retired,
}

/// Number of packets of one range of lengths.
#[derive(Debug, Serialize)]
pub struct Size {
    /// Largest length of the range, in bytes; `None` if there is no limit.
    pub up_to: Option<usize>,
    /// Number of packets read.
    pub read: u64,
    /// Number of packets written.
    pub written: u64,
}

impl Report {
    /// Makes the report of an outcome.
    pub fn new(input: String, output: String, mtu: u16, outcome: &Outcome, ended: Ended) -> Report {
        let ledger = &outcome.ledger;
        let untouched = ledger.passed_all().bytes;
        let side = |traffic: &Traffic, payload: u64| Side {
            packets: traffic.frames.packets,
            bytes: traffic.frames.bytes,
            payload,
            headers: traffic.frames.bytes - payload - untouched,
            untouched,
        };
        let sizes = Traffic::BOUNDS.iter().zip(outcome.input.histogram).zip(outcome.output.histogram);
        Report {
            input,
            output,
            mtu,
            ended,
            snap_cut: outcome.snap_cut,
            read: side(&outcome.input, ledger.received.bytes),
            written: side(&outcome.output, ledger.forwarded.bytes),
            payload: Balance {
                read: ledger.received.bytes,
                written: ledger.forwarded.bytes,
                retired: ledger.retired_all().bytes,
                headers_saved: headers_saved(ledger),
            },
            runs: runs(outcome),
            fates: fates(outcome),
            sizes: sizes
                .map(|((bound, read), written)| Size {
                    up_to: (*bound != usize::MAX).then_some(*bound),
                    read,
                    written,
                })
                .collect(),
        }
    }
}

fn headers_saved(ledger: &Ledger) -> i64 {
    let bytes = |event| ledger.event(event).bytes as i64;
    bytes(Event::Resized) - bytes(Event::Segments) + bytes(Event::EqualisedIn) - bytes(Event::EqualisedOut)
}

fn runs(outcome: &Outcome) -> Option<Runs> {
    let count_of = |event: Event| outcome.ledger.event(event).packets;
    let ended_by: Vec<_> = Event::RUN_ENDS
        .iter()
        .map(|event| RunEnd { name: event.name(), former_name: event.former_name(), count: count_of(*event) })
        .filter(|end| end.count > 0)
        .collect();
    let (segments, count) = (count_of(Event::Coalesced), ended_by.iter().map(|end| end.count).sum());
    (count > 0).then(|| Runs { segments, count, mean: segments as f64 / count as f64, ended_by })
}

fn fates(outcome: &Outcome) -> Vec<Fate> {
    let ledger = &outcome.ledger;
    let fate = |kind, name, former_name, what, tally: Tally| {
        let Tally { packets, bytes } = tally;
        (tally != Tally::NONE).then_some(Fate { kind, name, former_name, packets, bytes, what })
    };
    let reason = |kind, it: &Reason, tally| fate(kind, it.name(), it.former_name(), it.what(), tally);
    let passed = Reason::ALL.iter().filter_map(|it| reason(Kind::PassedThrough, it, ledger.passed(*it)));
    let done = Event::ALL
        .iter()
        .filter_map(|it| fate(Kind::Done, it.name(), it.former_name(), it.what(), ledger.event(*it)));
    let retired = Reason::ALL.iter().filter_map(|it| reason(Kind::Retired, it, ledger.retired(*it)));
    passed.chain(done).chain(retired).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} -> {}, at most {} bytes a packet\n",
            self.input,
            self.output,
            grouped(u64::from(self.mtu))
        )?;
        writeln!(f, "{:<22}{:>16}{:>16}", "", "in", "out")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, read: u64, written: u64| {
            writeln!(f, "{name:<22}{:>16}{:>16}", grouped(read), grouped(written))
        };
        row(f, "packets", self.read.packets, self.written.packets)?;
        row(f, "bytes", self.read.bytes, self.written.bytes)?;
        row(f, "  payload", self.read.payload, self.written.payload)?;
        row(f, "  headers, padding", self.read.headers, self.written.headers)?;
        row(f, "  unchanged frames", self.read.untouched, self.written.untouched)?;
        let Balance { read, written, retired, headers_saved } = &self.payload;
        write!(f, "payload: {} in = {} out + {} retired", grouped(*read), grouped(*written), grouped(*retired))?;
        match headers_saved {
            0 => writeln!(f)?,
            1.. => writeln!(f, " + {} of TCP headers saved", grouped(headers_saved.unsigned_abs()))?,
            _ => writeln!(f, " - {} of TCP headers added", grouped(headers_saved.unsigned_abs()))?,
        }
        if let Some(runs) = &self.runs {
            let ends: Vec<_> =
                runs.ended_by.iter().map(|end| format!("{} {}", end.name, grouped(end.count))).collect();
            let (segments, count) = (grouped(runs.segments), grouped(runs.count));
            writeln!(f, "TCP: {segments} segments in {count} runs, mean {:.1}: {}", runs.mean, ends.join(", "))?;
        }
        self.histogram(f)?;
        self.table_of_fates(f)
    }
}

impl Report {
    fn histogram(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.sizes.iter().map(|size| size.read.max(size.written)).max().unwrap_or(0);
        if most == 0 {
            return Ok(());
        }
        writeln!(f, "\n{:<22}{:<38}out", "packets by length", "in")?;
        for size in self.sizes.iter().filter(|size| size.read + size.written > 0) {
            let label = match size.up_to {
                Some(bound) => format!("to {} bytes", grouped(bound as u64)),
                None => "longer".to_owned(),
            };
            let [read, written] = [size.read, size.written].map(|count| bar(count, most));
            writeln!(f, "{}", format!("{label:<22}{read:<38}{written}").trim_end())?;
        }
        Ok(())
    }

    fn table_of_fates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, title) in
            [(Kind::PassedThrough, "forwarded unchanged"), (Kind::Done, "events"), (Kind::Retired, "retired")]
        {
            let mut fates = self.fates.iter().filter(|fate| fate.kind == kind).peekable();
            if fates.peek().is_some() {
                writeln!(f, "\n{title:<22}{:>10}{:>16}", "packets", "bytes")?;
            }
            for fate in fates {
                let (packets, bytes) = (grouped(fate.packets), grouped(fate.bytes));
                writeln!(f, "  {:<20}{packets:>10}{bytes:>16}  {}", fate.name, fate.what)?;
            }
        }
        Ok(())
    }
}

/// Returns a bar for `count` and the number itself. The bar for the largest number, `most`, has the full length.
fn bar(count: u64, most: u64) -> String {
    if count == 0 {
        return String::new();
    }
    let eighths = (count as f64 / most as f64 * (BAR_LEN * 8) as f64).ceil() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if let Some(part) = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8) {
        bar.push_str(part);
    }
    let _ = write!(bar, " {}", grouped(count));
    bar
}

/// Returns a number with commas as thousands separators.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Length of the longest bar, in characters.
const BAR_LEN: usize = 24;
