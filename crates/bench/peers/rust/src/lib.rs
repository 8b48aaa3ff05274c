//! Arguments, a file of packets and commands -> answers: the common part of all harnesses in Rust.
//!
//! `../../README.md` defines the protocol. A harness implements [`System`], and [`serve`] does the rest.

use std::fmt::Display;
use std::io::{BufRead, Write};
use std::time::Instant;

/// A measured system, which processes the packets of one section at a time.
pub trait System: Sized {
    /// Free bytes that the system needs before each packet.
    const HEADROOM: usize = 0;

    /// Prepares the system for these arguments and packets.
    ///
    /// # Errors
    /// The reason why the system cannot do the work.
    fn open(args: &Args, packets: &[Vec<u8>]) -> Result<Self, String>;

    /// Describes the system's output in a few words.
    fn delivers(&self) -> String;

    /// Returns the longest packet that a buffer must have room for behind the headroom, in bytes. `len_max` is the
    /// length of the longest input packet.
    fn capacity(_args: &Args, len_max: usize) -> usize {
        len_max
    }

    /// Processes a section's packets and passes every result to `sink`. When the call returns, all buffers are free
    /// again.
    fn section(&mut self, packets: &mut [Packet], sink: &mut impl Sink);
}

/// Receiver of a system's results.
pub trait Sink {
    /// Receives the bytes of one result.
    fn take(&mut self, bytes: &[u8]);

    /// Counts results whose bytes the system does not provide.
    fn take_unseen(&mut self, count: usize);

    /// Whether the sink reads the bytes of results.
    fn reads(&self) -> bool;
}

/// Counts results without reading them.
#[derive(Default)]
pub struct Count(pub usize);

impl Sink for Count {
    #[inline(always)]
    fn take(&mut self, bytes: &[u8]) {
        std::hint::black_box(bytes);
        self.0 += 1;
    }

    fn take_unseen(&mut self, count: usize) {
        self.0 += count;
    }

    fn reads(&self) -> bool {
        false
    }
}

/// Keeps a copy of every result.
#[derive(Default)]
pub struct Keep(pub Vec<Vec<u8>>);

impl Sink for Keep {
    fn take(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }

    fn take_unseen(&mut self, count: usize) {
        unreachable!("{count} results are kept unseen");
    }

    fn reads(&self) -> bool {
        true
    }
}

/// A packet in a buffer with headroom.
pub struct Packet {
    start: *mut u8,
    len: usize,
    capacity: usize,
}

impl Packet {
    /// Returns the headroom and the packet as one slice.
    #[inline(always)]
    pub fn whole(&self) -> &[u8] {
        // The `capacity` bytes at `start` belong to this packet alone, and are never freed.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Returns the headroom and the packet as one mutable slice.
    #[inline(always)]
    pub fn whole_mut(&mut self) -> &mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Returns the capacity of the buffer in bytes, headroom included.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the length in bytes, headroom included. Added bytes have the buffer's former contents.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "a packet of {len} bytes fits in its buffer of {}", self.capacity);
        self.len = len;
    }
}

/// Consecutive copies of a section, used in turn.
struct Ring<'a> {
    source: &'a [Vec<u8>],
    headroom: usize,
    packets: Vec<Packet>,
    next: usize,
}

impl<'a> Ring<'a> {
    fn new(source: &'a [Vec<u8>], copies: usize, headroom: usize, capacity: usize, huge: bool) -> Self {
        // The distance between packets is an odd number of cache lines, so that headers are spread over all sets of
        // a cache.
        let lines = (headroom + capacity).div_ceil(64).max(BUFFER_LEN_MIN / 64) | 1;
        let stride = lines * 64;
        let start = memory(stride * source.len() * copies, huge);
        let packets = (0..source.len() * copies)
            .map(|i| Packet { start: unsafe { start.add(i * stride) }, len: 0, capacity: headroom + capacity })
            .collect();
        let mut ring = Ring { source, headroom, packets, next: 0 };
        ring.fill();
        ring
    }

    fn fill(&mut self) {
        for (i, packet) in self.packets.iter_mut().enumerate() {
            let bytes = &self.source[i % self.source.len()];
            packet.set_len(self.headroom + bytes.len());
            let (headroom, place) = packet.whole_mut().split_at_mut(self.headroom);
            headroom.fill(UNTOUCHED);
            place.copy_from_slice(bytes);
        }
        self.next = 0;
    }

    fn turn(&mut self) -> &mut [Packet] {
        if self.next == self.packets.len() {
            self.fill();
        }
        let from = self.next;
        self.next += self.source.len();
        &mut self.packets[from..self.next]
    }
}

/// The `KEY=VALUE` arguments of a command line.
pub struct Args {
    keys: Vec<(String, String)>,
}

impl Args {
    fn from_command_line() -> Self {
        let keys = std::env::args().filter_map(|arg| arg.split_once('=').map(|(k, v)| (k.into(), v.into())));
        Args { keys: keys.collect() }
    }

    /// Returns the value of a key, or the empty string.
    pub fn text(&self, key: &str) -> &str {
        self.keys.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
    }

    /// Returns the value of a key as a number; `None` if the key is missing or the value is not a number.
    pub fn number(&self, key: &str) -> Option<usize> {
        self.text(key).parse().ok()
    }
}

/// Returns an error that says that this harness does not do the requested work.
pub fn unknown<T>(args: &Args) -> Result<T, String> {
    Err(format!("no function={} work={} here", args.text("function"), args.text("work")))
}

/// Returns the version of a crate in this build, or the kernel's version if there is no such crate.
fn version(name: &str) -> String {
    if name == "linux" {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        return format!("linux {}", release.trim());
    }
    let mut lines = include_str!("../Cargo.lock").lines();
    let head = format!("name = \"{name}\"");
    lines.find(|line| *line == head).expect("the crate is in the lock file");
    let version = lines.next().expect("a version follows a name");
    format!("{name} {}", version.trim_start_matches("version = ").trim_matches('"'))
}

/// Runs a harness for system `S`: reads the packets, then executes the commands on standard input. `name` is the
/// crate whose version is reported.
pub fn serve<S: System>(name: &str) {
    stay_here();
    let args = Args::from_command_line();
    let opened = read(args.text("file")).and_then(|packets| Ok((S::open(&args, &packets)?, packets)));
    let (mut system, packets) = match opened {
        Ok(opened) => opened,
        Err(why) => return answer(format_args!("cannot\t{why}")),
    };
    let len_max = packets.iter().map(Vec::len).max().unwrap_or(0);
    let copies = args.number("ring").unwrap_or(1).max(1);
    let huge = args.text("pages") == "huge";
    let mut ring = Ring::new(&packets, copies, S::HEADROOM, S::capacity(&args, len_max), huge);
    answer(format_args!("ready\t{}\t{}", version(name), system.delivers()));

    if let Some(sections) = args.number("sections") {
        for _ in 0..sections {
            timed_section(&mut system, ring.turn());
        }
        return;
    }
    let per_packet_out = matches!(args.text("function"), "fragment" | "segment");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["run", ms] => {
                let ms: u64 = ms.parse().expect("milliseconds are a number");
                let (mut spent, mut costs, mut completed) = (0, Vec::new(), 0);
                while spent < ms * 1_000_000 || costs.len() < SECTION_COUNT_MIN {
                    let section = ring.turn();
                    let begin = Instant::now();
                    completed = timed_section(&mut system, section);
                    let ns = begin.elapsed().as_nanos() as u64;
                    spent += ns;
                    let count = if per_packet_out { completed } else { packets.len() };
                    costs.push(ns as f64 / count.max(1) as f64);
                }
                costs.sort_by(f64::total_cmp);
                answer(format_args!("{:.3}\t{completed}\t{}", costs[costs.len() / 2], costs.len()));
            }
            ["verify"] => {
                let mut keep = Keep::default();
                system.section(ring.turn(), &mut keep);
                write(args.text("out"), &keep.0);
                answer(format_args!("done\t{}", keep.0.len()));
            }
            ["quit"] => return,
            _ => panic!("a command is run MS, verify or quit, not: {line}"),
        }
    }
}

#[inline(never)]
fn timed_section<S: System>(system: &mut S, packets: &mut [Packet]) -> usize {
    let mut count = Count(0);
    system.section(packets, &mut count);
    count.0
}

fn answer(line: impl Display) {
    println!("{line}");
    std::io::stdout().flush().expect("standard output takes a line");
}

fn read(path: &str) -> Result<Vec<Vec<u8>>, String> {
    let file = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let broken = || format!("{path}: not a file of packets");
    let mut rest = file.strip_prefix(MAGIC).ok_or_else(broken)?;
    let mut number = |len: Option<usize>| {
        let (taken, behind) = rest.split_at_checked(len.unwrap_or(4)).ok_or_else(broken)?;
        rest = behind;
        Ok::<_, String>(taken)
    };
    let count = u32::from_le_bytes(number(None)?.try_into().expect("four bytes"));
    (0..count)
        .map(|_| {
            let len = u32::from_le_bytes(number(None)?.try_into().expect("four bytes"));
            Ok(number(Some(len as usize))?.to_vec())
        })
        .collect()
}

fn write(path: &str, packets: &[Vec<u8>]) {
    let mut file = MAGIC.to_vec();
    file.extend((packets.len() as u32).to_le_bytes());
    for packet in packets {
        file.extend((packet.len() as u32).to_le_bytes());
        file.extend(packet);
    }
    std::fs::write(path, file).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Allocates zeroed memory for the life of the process, aligned to 2 MiB.
fn memory(len: usize, huge: bool) -> *mut u8 {
    let len = len.next_multiple_of(HUGE_PAGE_LEN) + HUGE_PAGE_LEN;
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0);
        assert!(at != libc::MAP_FAILED, "no memory of {len} bytes: {}", std::io::Error::last_os_error());
        if huge && len <= HUGE_LEN_MAX {
            libc::madvise(at, len, libc::MADV_HUGEPAGE);
        }
        at.cast::<u8>().add(at.align_offset(HUGE_PAGE_LEN))
    }
}

/// Pins the process to its present CPU.
fn stay_here() {
    unsafe {
        let mut here: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
        libc::sched_setaffinity(0, size_of_val(&here), &here);
    }
}

/// Fill byte of the headroom.
pub const UNTOUCHED: u8 = 0xff;
/// First bytes of a file of packets.
const MAGIC: &[u8] = b"WLBENCH1";
/// Length of the shortest buffer, in bytes: room for a packet of 1,500 bytes and its headroom.
const BUFFER_LEN_MIN: usize = 2048;
/// Length of a huge page, in bytes.
const HUGE_PAGE_LEN: usize = 2 << 20;
/// Largest total length of huge pages, in bytes. With long buffers and short packets, most of a larger area would
/// be unused.
const HUGE_LEN_MAX: usize = 4 << 30;
/// Fewest sections in a run.
const SECTION_COUNT_MIN: usize = 3;
