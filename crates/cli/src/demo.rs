//! Nothing in, a table of before and after out: `wideload demo`.

use crate::args::Demo as Args;
use crate::command::{Status, complain, unless_closed};
use crate::report::grouped;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::demo::{self, Demo, Row};
use port::namespace::become_own_root;
use std::fmt::Write;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

/// `wideload demo`: to be called while the process has one thread.
pub fn demo(args: &Args) -> Status {
    if let Err(error) = become_own_root() {
        complain(&error.to_string());
        return Status::Failed;
    }
    let progress = progress(args.json);
    let outcome = demo::run(|step| progress.set_message(step.to_owned()));
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
        complain("bytes were lost or changed on the way");
    } else if !demo.wide {
        complain("the wide host saw no wide packets behind the gateway");
    }
    if demo.intact && demo.wide { Status::Done } else { Status::Failed }
}

/// Tells each step to a person who waits.
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
    let text = if args.json { serde_json::to_string_pretty(demo)? + "\n" } else { table(demo) };
    unless_closed(io::stdout().write_all(text.as_bytes()))
}

/// The demo as a person reads it.
pub fn table(demo: &Demo) -> String {
    let [wide, narrow] = demo.mtus.map(|mtu| grouped(mtu.into()));
    let mut text = format!(
        "A wide host on a link of {wide} bytes and a narrow one on a link of {narrow}; between them the kernel's bridge, then Wideload.\n\n\
         {:<28} {:>8} {:>10} {:>7} {:>9}   {:>6} {:>6} {:>7}\n\
         {:<28} {:>8} {:>10} {:>7} {:>9}   {:>23}\n",
        "",
        "goodput",
        "packets at",
        "mean",
        "header",
        "wide",
        "narrow",
        "gateway",
        "",
        "Gbit/s",
        "wide host",
        "length",
        "MB",
        "processor s / GB",
    );
    let mut last = String::new();
    for row in &demo.rows_by_load() {
        let title = format!("{} {}, {}", row.protocol, row.version, row.direction);
        if title != last {
            let _ = writeln!(text, "{title}");
            last = title;
        }
        line(&mut text, row);
    }
    let _ = writeln!(
        text,
        "\nevery byte of TCP arrived, compared by SHA-256: {}; of the UDP messages arrived {}; wide packets at the wide host, both ways: {}",
        yes(demo.intact),
        messages(demo),
        yes(demo.wide)
    );
    if demo.hosts_join {
        text.push_str("The hosts' kernels joined packets themselves as they came (GRO): without the rights of root, their processor time cannot be told otherwise.\n");
    }
    text.push_str("Packets and bytes are the kernel's counts on the wide host's interface. Links without offloads: every packet is a real one.\n");
    text
}

fn line(text: &mut String, row: &Row) {
    let figure = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"));
    let header = row.wide.header_bytes.map(|bytes| bytes as f64 / 1e6);
    let gigabytes = row.transfer.bytes as f64 / 1e9;
    let _ = writeln!(
        text,
        "  {:<26} {:>8.2} {:>10} {:>7} {:>9}   {:>6} {:>6} {:>7}",
        row.middle,
        row.transfer.rate() / 1e9,
        grouped(row.wide.packets),
        grouped(row.wide.mean_len as u64),
        figure(header),
        figure(row.wide.seconds_per_gigabyte),
        figure(row.narrow.seconds_per_gigabyte),
        figure(row.gateway_seconds.map(|seconds| seconds / gigabytes)),
    );
}

/// How many messages arrived through each middle, of how many.
fn messages(demo: &Demo) -> String {
    let rows = demo.rows.iter().filter(|row| row.transfer.messages_sent > 0);
    let counts = rows.map(|row| {
        let (came, sent) = (grouped(row.transfer.messages), grouped(row.transfer.messages_sent));
        format!("{came} of {sent} ({})", row.middle)
    });
    counts.collect::<Vec<_>>().join(", ")
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "NO" }
}

const TICK: Duration = Duration::from_millis(100);
