//! Arguments -> a rewrite with files, a progress bar and interrupts.
//!
//! The other subcommands use this module's exit statuses and functions for messages. The module `rewrite` processes
//! the packets.

use crate::args::Rewrite;
use crate::report::{Ended, Report, grouped};
use crate::rewrite::{self, Sink, Stop};
use capture::{Compression, Item, Reader, Record, Writer};
use daemon::json;
use engine::{Event, Reason, WirePackets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packet::{Packet, Time};
use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The command has succeeded.
    Done = 0,
    /// The command has failed, such as by a read or write error.
    Failed = 1,
    /// The arguments are wrong.
    Usage = 2,
    /// The input is damaged. Its readable part was written.
    Damaged = 3,
    /// The user has stopped the command. The part read so far was written.
    Interrupted = 130,
}

/// Runs `wideload rewrite`.
pub fn rewrite(args: &Rewrite) -> Status {
    match run(args) {
        Ok(status) => status,
        Err((status, message)) => {
            complain(&message);
            status
        }
    }
}

fn run(args: &Rewrite) -> Result<Status, (Status, String)> {
    let settings = args.settings(draw()).map_err(|message| (Status::Usage, message))?;
    refuse_own_input(args)?;
    let (input, len) = open(&args.input).map_err(failure)?;
    let name = shown(&args.input, "standard input");
    let mut reader = Reader::new(input).map_err(|error| failure(format!("{name}: {error}")))?;
    let output = create(&args.output).map_err(failure)?;
    let out_name = shown(&args.output, "standard output");
    let compression = Compression::from_path(&args.output);
    let writing = |error: capture::Error| failure(format!("{out_name}: {error}"));
    let mut sink = CaptureFile { writer: Writer::behind(output, compression).map_err(writing)? };
    let progress = progress(args, len);
    let stopped = watch_for_interrupt();
    let (outcome, ended) = rewrite::rewrite(&mut reader, &settings, &mut sink, |bytes_read| {
        if bytes_read >= progress.position() + PROGRESS_STEP {
            progress.set_position(bytes_read);
        }
        !stopped.load(Ordering::Relaxed)
    });
    progress.finish_and_clear();
    let (status, ended) = match ended {
        Ok(()) => (Status::Done, Ended::Complete),
        Err(Stop::Sink(error)) => {
            let packets = grouped(outcome.output.frames.packets);
            let message =
                format!("{out_name}: {error}; the last of the {packets} packets written so far are missing");
            return Err((Status::Failed, message));
        }
        Err(Stop::Interrupted) => (Status::Interrupted, Ended::Interrupted),
        Err(Stop::Input(error)) => damage(&error),
    };
    sink.writer.finish().map_err(writing)?;
    match &ended {
        Ended::Damaged { why, .. } => {
            complain(&format!("{name}: {why}; the packets before the damage were written"))
        }
        Ended::Interrupted => complain("interrupted; the packets read so far were written"),
        Ended::Complete => {}
    }
    if let Some(spot) = outcome.snap_cut
        && !args.json
    {
        let (packet, offset) = (grouped(spot.packet), grouped(spot.offset));
        let count = grouped(outcome.ledger.passed(Reason::SnapCut).packets);
        complain(&format!(
            "{name}: packets truncated by the snap length: {count}, the first is packet {packet} at byte {offset}; they were copied unchanged"
        ));
    }
    let too_long = outcome.ledger.event(Event::LeftOversize).packets;
    if too_long > 0 && !args.json {
        let (count, mtu) = (grouped(too_long), grouped(args.mtu.into()));
        complain(&format!(
            "{out_name}: packets left longer than {mtu} bytes: {count}; no active stage may segment or fragment them; see --segment and --fragment"
        ));
    }
    let report = Report::new(name, out_name, args.mtu, &outcome, ended);
    print(args, &report).map_err(|error| failure(format!("cannot print the report: {error}")))?;
    Ok(status)
}

/// The output file and its format.
struct CaptureFile<W: Write> {
    writer: Writer<W>,
}

impl<W: Write> Sink for CaptureFile<W> {
    type Error = capture::Error;

    fn structure(&mut self, item: &Item<'_>) -> Result<(), capture::Error> {
        match item {
            Item::Header(raw) => self.writer.header(raw),
            Item::Interface(raw) => self.writer.interface(raw),
            Item::Block(raw) => self.writer.block(raw),
            Item::Packet(record) => self.writer.copy(record),
        }
    }

    fn copy(&mut self, record: &Record<'_>) -> Result<(), capture::Error> {
        self.writer.copy(record)
    }

    fn delayed(
        &mut self,
        interface: u32,
        time: Time,
        packet: &Packet,
        options: &[u8],
    ) -> Result<(), capture::Error> {
        self.writer.packet_with_options(interface, Some(time), &[packet.frame()], options)
    }

    fn packet(&mut self, interface: u32, time: Time, packet: &Packet) -> Result<(), capture::Error> {
        let mut fragments = WirePackets::of(packet);
        while let Some(fragment) = fragments.next() {
            self.writer.packet(interface, Some(time), &[fragment.header, fragment.payload])?;
        }
        Ok(())
    }
}

/// Returns the exit status after a reader's error, and the reason why the rewrite ended.
fn damage(error: &capture::Error) -> (Status, Ended) {
    match error {
        capture::Error::Damaged { offset, packets, .. } => {
            let ended = Ended::Damaged { why: error.to_string(), offset: Some(*offset), packets: Some(*packets) };
            (Status::Damaged, ended)
        }
        _ => (Status::Failed, Ended::Damaged { why: error.to_string(), offset: None, packets: None }),
    }
}

/// Rejects an output file that is also the input file, as writing would destroy the input.
fn refuse_own_input(args: &Rewrite) -> Result<(), (Status, String)> {
    let input = identity(&args.input, io::stdin().as_fd());
    let output = identity(&args.output, io::stdout().as_fd());
    if input.is_some() && input == output {
        let name = shown(&args.output, "standard output");
        return Err((Status::Usage, format!("{name} is the input itself; give the output another name")));
    }
    Ok(())
}

/// Returns device and inode of a regular file, or of a standard stream that is one. Does not open the file, as
/// opening a FIFO waits for its other end.
fn identity(path: &Path, standard: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let metadata =
        if is_dash(path) { File::from(standard.try_clone_to_owned().ok()?).metadata() } else { fs::metadata(path) };
    metadata.ok().filter(Metadata::is_file).map(|it| (it.dev(), it.ino()))
}

fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), String> {
    if is_dash(path) {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let file = File::open(path).map_err(|error| format!("{}: cannot open it: {error}", path.display()))?;
    let len = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
    Ok((Box::new(file), len))
}

fn create(path: &Path) -> Result<File, String> {
    if is_dash(path) {
        if io::stdout().is_terminal() {
            return Err("standard output is a terminal; give a file, or use a pipe".to_owned());
        }
        // Bypasses the standard library's buffer, which searches for line ends.
        let output = io::stdout().as_fd().try_clone_to_owned();
        return output.map(File::from).map_err(|error| format!("standard output: cannot write to it: {error}"));
    }
    File::create(path).map_err(|error| format!("{}: cannot create it: {error}", path.display()))
}

/// Makes a progress bar if the length of the input is known, otherwise a counter. Without a terminal or with
/// `--quiet`, the bar is hidden.
fn progress(args: &Rewrite, len: Option<u64>) -> ProgressBar {
    if args.quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match len {
        Some(len) => (ProgressBar::new(len), "{bar:40} {percent:>3} % {bytes} {binary_bytes_per_sec} {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} {binary_bytes_per_sec}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(PROGRESS_HZ));
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Returns a flag that is set when the user interrupts the command.
pub(crate) fn watch_for_interrupt() -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stopped);
    // The first interrupt ends the input at its current position. The second ends the process, in case a read is
    // blocked.
    let watch = move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(Status::Interrupted as i32);
        }
    };
    // Without the handler, an interrupt ends the command at once, as by default.
    let _ = ctrlc::set_handler(watch);
    stopped
}

/// Prints the report to standard output or standard error, whichever the capture does not use.
fn print(args: &Rewrite, report: &Report) -> io::Result<()> {
    if args.quiet {
        return Ok(());
    }
    let text = if args.json { json::indented(report)? } else { report.to_string() };
    unless_closed(if is_dash(&args.output) {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes())
    })
}

/// Writes the text to standard output, and returns `status`, or the status of a failure. A closed pipe counts as
/// success.
pub(crate) fn show(text: &str, status: Status) -> Status {
    match unless_closed(io::stdout().write_all(text.as_bytes())) {
        Ok(()) => status,
        Err(error) => failed(&format!("cannot write to standard output: {error}")),
    }
}

/// Returns the result of a write. A closed pipe counts as success.
pub(crate) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Prints an error message, and returns the status of a failure.
pub(crate) fn failed(message: &impl Display) -> Status {
    complain(message);
    Status::Failed
}

/// Prints a message of this command on standard error.
pub(crate) fn complain(message: &(impl Display + ?Sized)) {
    tell(&format!("wideload: {message}"));
}

/// Prints a warning on standard error.
pub fn warn(message: &str) {
    complain(&format!("warning: {message}"));
}

/// Prints a line on standard error.
pub(crate) fn tell(message: &(impl Display + ?Sized)) {
    // If standard error fails, there is no stream left to report the failure.
    let _ = writeln!(io::stderr(), "{message}");
}

/// Returns random bits from the system, or the process ID if there are none. With predictable bits, a crafted input
/// could cause collisions in the hash tables.
fn draw() -> u128 {
    let mut bits = [0; 16];
    match getrandom::fill(&mut bits) {
        Ok(()) => u128::from_ne_bytes(bits),
        Err(_) => u128::from(std::process::id()),
    }
}

fn failure(message: String) -> (Status, String) {
    (Status::Failed, message)
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn shown(path: &Path, dash: &str) -> String {
    if is_dash(path) { dash.to_owned() } else { path.display().to_string() }
}

/// Number of bytes between two updates of the progress bar.
const PROGRESS_STEP: u64 = 1 << 20;
/// Number of redraws of the progress bar per second.
const PROGRESS_HZ: u8 = 10;
