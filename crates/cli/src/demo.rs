//! Settings of the demo -> a table of its three middles, and an explanation: `wideload demo`.
//!
//! The crate `lab` measures. This module only shows the result.

use crate::args::Demo as Args;
use crate::command::{Status, complain, unless_closed};
use crate::report::grouped;
use daemon::json;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::demo::{self, Costs, Demo, LinkOffloads, Row, Settings};
use lab::experiments::{Conditions, Spread};
use linux::namespace::become_own_root;
use std::fmt::Write;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

/// Runs `wideload demo`. Call this while the process has only one thread.
pub fn demo(args: &Args) -> Status {
    if let Err(error) = become_own_root() {
        complain(&error.to_string());
        return Status::Failed;
    }
    let progress = progress(false);
    let settings = Settings::new(if args.plain { LinkOffloads::Plain } else { LinkOffloads::Usual });
    let outcome = demo::run(&settings, |step| progress.set_message(step.to_owned()));
    progress.finish_and_clear();
    match outcome.and_then(|demo| print(args, &demo).map(|()| demo)) {
        Ok(demo) => verdict(&demo),
        Err(error) => {
            complain(&error.to_string());
            Status::Failed
        }
    }
}

fn verdict(demo: &Demo) -> Status {
    if !demo.intact {
        complain("bytes were lost or corrupted");
    } else if !demo.wide {
        complain("the wide host received no wide packets from the gateway");
    }
    if demo.intact && demo.wide { Status::Done } else { Status::Failed }
}

/// Makes a progress line that shows the current step. The line is hidden for JSON and without a terminal.
pub(crate) fn progress(is_for_machines: bool) -> ProgressBar {
    if is_for_machines || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.set_draw_target(ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(TICK);
    bar
}

fn print(args: &Args, demo: &Demo) -> io::Result<()> {
    let text = if args.json { json::indented(demo)? } else { table(demo) };
    unless_closed(io::stdout().write_all(text.as_bytes()))
}

/// Returns the demo's table as text for people, at most 78 columns wide.
pub fn table(demo: &Demo) -> String {
    let Conditions { kernel, processors, load, rounds, build } = &demo.conditions;
    let load = load.first().map_or_else(String::new, |load| format!(", load {load:.1} at the start"));
    let links = match demo.links {
        LinkOffloads::Usual => "GRO on at every interface; NICs compute checksums and receive into one buffer",
        LinkOffloads::Plain => "no offload and no GRO anywhere",
    };
    let mut text = format!(
        "{INTRODUCTION}\n\
         Linux {kernel}, {processors} processors{load}\n\
         Wideload {build}\n\
         {links}\n\
         medians of {rounds} rounds, each with its range (lowest-highest)\n\n\
         {:<12} {:>15} {:>11} {:>36}\n\
         {:<12} {:>15} {:>11} {:>15} {:>6} {:>6} {:>6}\n",
        "",
        "goodput,",
        "packets/GB,",
        "CPU seconds for one GB of payload",
        "",
        "Gbit/s",
        "wide host",
        "wide host",
        "narrow",
        "middle",
        "all",
    );
    for rows in demo.loads() {
        let _ = writeln!(text, "{}", rows[0].load.name());
        rows.iter().for_each(|row| line(&mut text, row));
    }
    text.push('\n');
    text.push_str(&meaning(demo));
    text.push_str(NOTES);
    text
}

fn line(text: &mut String, row: &Row) {
    let _ = write!(
        text,
        "  {:<10} {:>15} {:>11} ",
        row.middle.name(),
        with_spread(row.goodput),
        grouped(row.packets_per_gigabyte.median as u64),
    );
    let _ = match row.costs {
        Some(Costs { wide, narrow, middle, sum }) => writeln!(
            text,
            "{:>15} {:>6.2} {:>6.2} {:>6.2}",
            with_spread(wide),
            narrow.median,
            middle.median,
            sum.median
        ),
        None => writeln!(text, "{:>15} {:>6} {:>6} {:>6}", "-", "-", "-", "-"),
    };
}

/// Returns a figure with its range. The numbers have one decimal place if the largest is at least 10, otherwise
/// two.
fn with_spread(Spread { median, least, most }: Spread) -> String {
    if most < 10.0 {
        format!("{median:.2} {least:.2}-{most:.2}")
    } else {
        format!("{median:.1} {least:.1}-{most:.1}")
    }
}

/// Returns text that compares Wideload with the bridge, and states the verified properties.
fn meaning(demo: &Demo) -> String {
    let mut text = String::from("Wideload / bridge, range over the rows (1.00 = the same)\n");
    let packets = demo.beside_bridge(|sample| Some(sample.packets_per_gigabyte()));
    ratio(&mut text, "packets at the wide host", &range(&packets));
    if let Some(why) = &demo.untold {
        text.push_str("  CPU time: unknown\n");
        wrapped(&mut text, why);
    } else {
        for (host, name) in ["of the wide host", "of the narrow host", "of the middle"].into_iter().enumerate() {
            let ratios = demo.beside_bridge(|sample| Some(sample.seconds_per_gigabyte()?[host]));
            ratio(&mut text, &format!("CPU time {name}"), &range(&ratios));
        }
        let all = demo.beside_bridge(|sample| Some(sample.seconds_per_gigabyte()?.iter().sum()));
        ratio(&mut text, "CPU time in total", &range(&all));
    }
    for (to_wide, name) in [(true, "to the wide host"), (false, "to the narrow host")] {
        let is_meant = |row: &Row| row.load.pace.is_none() && row.load.to_wide == to_wide;
        let ratios = demo.beside_bridge_where(is_meant, |sample| Some(sample.transfer.rate()));
        let ratios: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        ratio(&mut text, &format!("top goodput {name}"), &ratios.join(", "));
    }
    let ours = demo.loads().map(|[_, ours, _]| ours).flat_map(|row| &row.samples);
    let (offloaded, all) = ours
        .fold((0, 0), |(offloaded, all), sample| (offloaded + sample.offloaded_bytes, all + sample.transfer.bytes));
    if offloaded == 0 {
        text.push_str("The gateway's workers forwarded every byte; flow offload needs root.\n");
    } else {
        let share = offloaded as f64 / all as f64 * 100.0;
        let _ = writeln!(text, "Flow offload: the kernel forwarded {share:.0} % of Wideload's bytes.");
    }
    let _ = writeln!(
        text,
        "Every byte arrived, by SHA-256: {}. Wide packets at the wide host: {}.",
        yes(demo.intact),
        yes(demo.wide)
    );
    text
}

fn ratio(text: &mut String, name: &str, figures: &str) {
    let _ = writeln!(text, "  {name:<31} {figures}");
}

/// Appends a sentence, wrapped to the width of the screen.
fn wrapped(text: &mut String, sentence: &str) {
    let mut len = 0;
    for word in sentence.split(' ') {
        let is_new = len == 0 || len + 1 + word.len() > LINE_LEN;
        if is_new && len > 0 {
            text.push('\n');
        }
        len = if is_new { 4 + word.len() } else { len + 1 + word.len() };
        text.push_str(if is_new { "    " } else { " " });
        text.push_str(word);
    }
    text.push('\n');
}

fn range(ratios: &[f64]) -> String {
    Spread::of(ratios.iter().copied())
        .map_or_else(|| "-".to_owned(), |Spread { least, most, .. }| format!("{least:.2} to {most:.2}"))
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "NO" }
}

/// Width of the screen, in characters.
const LINE_LEN: usize = 78;
const TICK: Duration = Duration::from_millis(100);
const INTRODUCTION: &str = "\
A host with 9,000-byte packets (wide) and a host with 1,500-byte packets
(narrow) send each other TCP, through three middles in turn:
  bridge     The kernel bridges the two links. No packet exceeds 1,500 bytes.
  Wideload   A border gateway coalesces segments toward the wide host and
             splits packets into segments toward the narrow host.
  all 9,000  The kernel bridges, and both hosts and links use 9,000 bytes.
             For bulk flows, the wide host can hardly save more.
";
const NOTES: &str = "
How to read the figures
  Every packet costs a host CPU time, whatever its length. With Wideload the
  wide host handles fewer and longer packets. The CPU columns show the savings
  of the wide host and the cost in the middle. A gateway pays off if the wide
  hosts are short of CPU time and the middle is not.
  CPU time of a host: its sending or receiving thread, and the kernel thread
  that receives for its interface.
  CPU time of the middle: the kernel threads of both its interfaces, and
  Wideload's workers.
Where to expect no gain
  - short flows: they end before many segments can be coalesced
  - requests and answers of one segment: there is nothing to coalesce
  - flows that the narrow host or its link limits: they get no faster, though
    the wide host still saves CPU time
  - UDP: datagrams keep their size
";

#[cfg(test)]
mod tests {
    use super::*;
    use lab::demo::{Load, MiddleKind, Sample};
    use lab::traffic::{Pace, Transfer, WriteEnd};

    #[test]
    fn the_table_fits_78_columns_with_large_figures_and_with_none() {
        for large in [false, true] {
            let text = table(&demo(large));
            for line in text.lines() {
                assert!(line.chars().count() <= LINE_LEN, "{line}");
            }
            assert!(text.contains("Wideload "), "{text}");
            assert_eq!(text.contains("CPU time: unknown"), !large, "{text}");
        }
    }

    #[test]
    fn the_table_reports_figures_and_what_is_unknown() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reports/demo.txt");
        testkit::golden(path, &[true, false].map(|is_known| table(&figures(is_known))).join("----\n"));
    }

    fn demo(large: bool) -> Demo {
        let spread = |median: f64| Spread { median, least: median * 0.9, most: median * 1.2 };
        let cost = spread(38.0);
        let row = |middle| Row {
            load: Load { to_wide: false, pace: None },
            middle,
            goodput: spread(55.0),
            packets_per_gigabyte: spread(9_999_999.0),
            mean_len: spread(8_948.0),
            costs: large.then_some(Costs { wide: cost, narrow: cost, middle: cost, sum: spread(114.0) }),
            samples: Vec::new(),
        };
        Demo {
            conditions: Conditions::here(3),
            links: LinkOffloads::Usual,
            mtus: [9_000, 1_500],
            rows: [MiddleKind::Bridge, MiddleKind::Wideload, MiddleKind::AllWide].map(row).into(),
            untold: (!large).then(|| ["the kernel threads are not visible"; 4].join("; ")),
            intact: true,
            wide: true,
        }
    }

    /// Returns figures that are the same on every machine: a good demo with CPU time, or a bad one without it.
    fn figures(is_known: bool) -> Demo {
        let paced = |rate, write_len, end| Some(Pace { rate, write_len, end });
        let (push, more) = (paced(1e9, 256 << 10, WriteEnd::Push), paced(1e8, 1_448, WriteEnd::More));
        let loads = [(true, push), (true, more), (true, None), (false, None)];
        let middles = [MiddleKind::Bridge, MiddleKind::Wideload, MiddleKind::AllWide];
        let rows = loads
            .into_iter()
            .flat_map(|(to_wide, pace)| middles.map(|middle| row(Load { to_wide, pace }, middle, is_known)));
        Demo {
            conditions: Conditions {
                kernel: "6.12.38".to_owned(),
                processors: 4,
                load: vec![0.5, 0.25, 1.0],
                rounds: 3,
                build: "1.2.3 release".to_owned(),
            },
            links: if is_known { LinkOffloads::Usual } else { LinkOffloads::Plain },
            mtus: [9_000, 1_500],
            rows: rows.collect(),
            untold: (!is_known).then(|| "the kernel threads are not visible; ".repeat(3) + "run as root"),
            intact: is_known,
            wide: is_known,
        }
    }

    fn row(load: Load, middle: MiddleKind, is_known: bool) -> Row {
        let (goodput, packets, seconds) = match middle {
            MiddleKind::Bridge => (9.0, 690_000_u64, [0.9, 0.7, 0.5]),
            MiddleKind::Wideload => (8.0, 115_000, [0.4, 0.75, 1.1]),
            MiddleKind::AllWide => (20.0, 112_000, [0.38, 0.4, 0.3]),
        };
        let spread = |median: f64| Spread { median, least: median * 0.9, most: median * 1.2 };
        let [wide, narrow, between] = seconds.map(spread);
        let transfer = Transfer {
            bytes: 1_000_000_000,
            seconds: 8.0 / goodput,
            sender_seconds: 0.25,
            receiver_seconds: 0.25,
            messages_sent: 0,
            messages: 0,
            sha256: String::new(),
            intact: is_known,
        };
        let offloaded_bytes = if is_known && middle == MiddleKind::Wideload { 600_000_000 } else { 0 };
        let costs = Costs { wide, narrow, middle: between, sum: spread(seconds.iter().sum()) };
        let (costs, seconds) = (is_known.then_some(costs), is_known.then_some(seconds));
        Row {
            load,
            middle,
            goodput: spread(goodput),
            packets_per_gigabyte: spread(packets as f64),
            mean_len: spread(8_948.0),
            costs,
            samples: vec![Sample { transfer, packets, bytes: 0, back_packets: 0, seconds, offloaded_bytes }],
        }
    }
}
