//! Captures of TCP at every packet size -> the same streams, as tshark sees them.

use crate::dissect::{Seen, Verdict, dissect};
use crate::{indexed, own_captures, rewrite, shared_captures};
use libtest_mimic::Failed;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// TCP streams keep the same bytes in the same order at every packet size and back, and nothing else changes.
///
/// Each capture is tested at one wide and one narrow size; the next capture at the next ones. With
/// `WIDELOAD_EVERY_SIZE` set, or with few captures, each is tested at all sizes.
pub fn are_the_same_at_every_size() -> Result<(), Failed> {
    let mut captures = captures()?;
    // The largest first, so that no thread works on it alone at the end.
    captures.sort_by_key(|(path, _)| path.metadata().map_or(0, |metadata| metadata.len()));
    let takes_all = captures.len() < WIDE.len() * NARROW.len() || std::env::var_os("WIDELOAD_EVERY_SIZE").is_some();
    let waiting = Mutex::new(captures.into_iter().enumerate().collect());
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((turn, (path, tcp))) = next(&waiting) {
                    let result = check(&path, tcp, (!takes_all).then_some(turn))
                        .map_err(|failed| failed.message().unwrap_or_default().to_owned());
                    results.lock().unwrap().insert(name(&path), result);
                }
            });
        }
    });
    let results = results.into_inner()?;
    publish(&results)?;
    let failures: Vec<_> = results.values().filter_map(|result| result.as_ref().err()).cloned().collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// Our own captures of TCP, and third-party ones if they are present.
fn captures() -> Result<Vec<(PathBuf, Tcp)>, Failed> {
    let tcp = |is_bulk| if is_bulk { Tcp::Bulk } else { Tcp::Some };
    let own = own_captures().into_iter().filter(|path| name(path).starts_with(OWN_TCP));
    let mut captures: Vec<_> = own.map(|path| (path.clone(), tcp(path.ends_with(OWN_BULK)))).collect();
    if let Some(folder) = shared_captures() {
        let rows = indexed(&folder)?.into_iter();
        let rows = rows.filter(|row| row.is_any(&TCP_CLASSES) && !row.is_any(&OTHER_CLASSES));
        let others: Vec<_> = rows.map(|row| (folder.join(&row.file), tcp(row.is_any(&BULK_CLASSES)))).collect();
        if others.len() < CAPTURES_MIN {
            return Err(format!("only {} captures of TCP", others.len()).into());
        }
        captures.extend(others);
    }
    Ok(captures)
}

fn next<T>(waiting: &Mutex<Vec<T>>) -> Option<T> {
    waiting.lock().unwrap().pop()
}

/// Tests one capture at the sizes of its turn, or at all sizes without a turn. Returns its row of the table.
fn check(capture: &Path, tcp: Tcp, turn: Option<usize>) -> Result<Row, Failed> {
    let scratch = tempfile::tempdir()?;
    let original = Look::at(capture)?;
    let mut row = Row { packets: original.seen.len(), ..Row::default() };
    let is_due = |place: usize, of: usize, every: usize| turn.is_none_or(|turn| turn / every % of == place);
    let wide_sizes = WIDE.into_iter().enumerate().filter(|(place, _)| is_due(*place, WIDE.len(), 1));
    for (column, (role, mtu)) in wide_sizes {
        let wide = scratch.path().join(format!("{role}{mtu}"));
        let widened = step(&original, capture, &original, &wide, mtu, &["--as", role])?;
        row.widened[column] = Some(widened.seen.len());
        let narrow_sizes = NARROW.into_iter().enumerate();
        for (_, narrow_mtu) in narrow_sizes.filter(|(place, _)| is_due(*place, NARROW.len(), WIDE.len())) {
            let narrow = scratch.path().join("narrow");
            step(&original, &wide, &widened, &narrow, narrow_mtu, &["--as", role])?;
        }
    }
    let (gso_packets, back) = (scratch.path().join("trains"), scratch.path().join("back"));
    let merged = step(&original, capture, &original, &gso_packets, 65_535, &["--coalesce", "reversible"])?;
    row.reversible = merged.seen.len();
    let mtu = original.seen.iter().filter(|seen| seen.tcp.is_some()).map(|seen| seen.len).max().unwrap_or(0);
    let back = step(&original, &gso_packets, &merged, &back, mtu.clamp(576, 9_000), &["--segment"])?;
    step(&original, &gso_packets, &merged, &scratch.path().join("narrow"), 1_500, &["--segment"])?;
    row.restored = original.seen.len() - missing(&original.seen, &back.seen);
    let grew = row.widened.iter().flatten().all(|packets| *packets < row.packets);
    let is_explained = SMALL_FOR_A_REASON.iter().any(|(file, _)| capture.ends_with(file));
    if tcp == Tcp::Bulk && !grew && !is_explained {
        return Err(format!("{}: nothing grew: {row:?}", name(capture)).into());
    }
    if tcp == Tcp::Bulk && row.restored < row.packets {
        return Err(format!("{}: not all trains came apart as they were: {row:?}", name(capture)).into());
    }
    Ok(row)
}

/// One rewrite of `input`, with the checks between it, its output and the original.
fn step(
    original: &Look,
    input: &Path,
    before: &Look,
    output: &Path,
    mtu: usize,
    args: &[&str],
) -> Result<Look, Failed> {
    let report = rewrite(input, output, &[&["--mtu", &mtu.to_string()], args].concat())?;
    let after = Look::at(output)?;
    let faults = [
        streams_differ(&original.streams, &after.streams),
        late_bytes(&original.flows, &after.flows),
        wrong_checksums(original, &after),
        too_long(&after.seen, mtu, &report),
        changed_others(&before.seen, &after.seen, mtu),
    ];
    let what = format!("{} to {mtu} {}", input.display(), args.join(" "));
    match faults.into_iter().flatten().collect::<Vec<_>>() {
        faults if faults.is_empty() => Ok(after),
        faults => Err(format!("{what}: {}", faults.join("; ")).into()),
    }
}

fn streams_differ(before: &Streams, after: &Streams) -> Option<String> {
    let differ: Vec<_> = before
        .keys()
        .chain(after.keys().filter(|key| !before.contains_key(key)))
        .filter(|key| before.get(key) != after.get(key))
        .collect();
    let key = differ.first()?;
    let count = differ.len();
    Some(format!("{count} streams differ, {key:?} first: {:?} became {:?}", before.get(key), after.get(key)))
}

/// Bytes that arrive after later bytes of their stream: no direction may have more of them than before.
fn late_bytes(before: &Flows, after: &Flows) -> Option<String> {
    after.iter().find_map(|(flow, order)| {
        let came_late = before.get(flow).map_or(0, |before| before.late_bytes);
        (order.late_bytes > came_late).then(|| format!("{flow}: {} bytes late, {came_late} were", order.late_bytes))
    })
}

/// Packets with a correct checksum keep one. Packets with a wrong one may be split, but no bytes are added to them.
fn wrong_checksums(before: &Look, after: &Look) -> Option<String> {
    let ((bytes, bare), (bytes_after, bare_after)) = (before.wrong, after.wrong);
    let grew = bytes_after > bytes || bare_after > bare;
    grew.then(|| {
        format!(
            "wrong checksums over {bytes} bytes and in {bare} without any became {bytes_after} and {bare_after}"
        )
    })
}

fn too_long(after: &[Seen], mtu: usize, report: &Value) -> Option<String> {
    let long = after.iter().filter(|seen| seen.len > mtu).count() as u64;
    let allowed = crate::fate(report, "done", "left_oversize") + crate::passed(report);
    (long > allowed)
        .then(|| format!("{long} packets are too long, {allowed} were left alone or are no packets to us"))
}

/// Unfragmented packets within the MTU that are not TCP leave unchanged and in order, unless their checksum was
/// partial.
fn changed_others(before: &[Seen], after: &[Seen], mtu: usize) -> Option<String> {
    let is_other = |seen: &&Seen| seen.tcp.is_none() && !seen.is_fragment && seen.len <= mtu;
    let mut left = after.iter().filter(is_other);
    let stays = |seen: &&Seen| is_other(seen) && seen.checksum != Verdict::Wrong;
    let lost = before.iter().filter(stays).find(|other| !left.any(|seen| seen.frame == other.frame))?;
    Some(format!("a packet that should stay as it came is gone: {}", lost.protocols.join(":")))
}

/// The number of `these` that are not among `those`, byte for byte.
fn missing(these: &[Seen], those: &[Seen]) -> usize {
    let mut frames: BTreeMap<&str, usize> = BTreeMap::new();
    those.iter().for_each(|seen| *frames.entry(&seen.frame).or_default() += 1);
    let is_missing = |seen: &&Seen| match frames.get_mut(seen.frame.as_str()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    these.iter().filter(is_missing).count()
}

/// The amount of TCP in a capture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tcp {
    Some,
    Bulk,
}

/// A capture as tshark dissects it.
struct Look {
    seen: Vec<Seen>,
    streams: Streams,
    flows: Flows,
    /// Bytes under wrong TCP checksums, and packets without payload that have one.
    wrong: (usize, usize),
}

/// Streams by connection, direction and incarnation.
type Streams = BTreeMap<(String, usize), Stream>;
/// Directions of connections.
type Flows = BTreeMap<String, Order>;

/// The bytes that a receiver gets: the first copy of each.
#[derive(Debug, PartialEq, Eq)]
struct Stream {
    first_seq: u32,
    len: usize,
    sha256: String,
    /// The place of FIN, and the number of packets with RST.
    fin_seq: Option<u32>,
    resets: usize,
}

/// The order in which a direction's bytes arrive.
#[derive(Default)]
struct Order {
    late_bytes: usize,
}

/// A stream in progress: its segments by their place relative to the first one.
struct Reading<'a> {
    base: u32,
    syn_seq: Option<u32>,
    fragments: Vec<(i64, &'a [u8])>,
    high: i64,
    fin_seq: Option<u32>,
    resets: usize,
}

impl Look {
    fn at(capture: &Path) -> Result<Look, Failed> {
        let seen = dissect(capture)?;
        let (streams, flows) = follow(&seen)?;
        let wrong = seen.iter().filter(|seen| seen.checksum == Verdict::Wrong).filter_map(|seen| seen.tcp.as_ref());
        let wrong = wrong.fold((0, 0), |(bytes, bare), tcp| {
            (bytes + tcp.payload.len(), bare + usize::from(tcp.payload.is_empty()))
        });
        Ok(Look { seen, streams, flows, wrong })
    }
}

fn follow(seen: &[Seen]) -> Result<(Streams, Flows), Failed> {
    let mut readings: BTreeMap<String, Vec<Reading>> = BTreeMap::new();
    let mut flows = Flows::new();
    for seen in seen {
        let Some(tcp) = &seen.tcp else { continue };
        let [source, destination] = &seen.addresses;
        let flow = format!("{} {source}:{} > {destination}:{}", seen.link, tcp.ports[0], tcp.ports[1]);
        let incarnations = readings.entry(flow.clone()).or_default();
        let opens = tcp.flags & SYN != 0;
        if incarnations.last().is_none_or(|reading| opens && reading.syn_seq != Some(tcp.seq)) {
            let base = tcp.seq.wrapping_add(u32::from(opens));
            let syn_seq = opens.then_some(tcp.seq);
            incarnations.push(Reading { base, syn_seq, fragments: Vec::new(), high: 0, fin_seq: None, resets: 0 });
        }
        let Some(reading) = incarnations.last_mut() else { continue };
        let seq = tcp.seq.wrapping_add(u32::from(opens));
        let at = reading.high + i64::from(seq.wrapping_sub(reading.base.wrapping_add(reading.high as u32)) as i32);
        let end = at + tcp.payload.len() as i64;
        let late = (reading.high.min(end) - at).max(0) as usize;
        flows.entry(flow).or_default().late_bytes += if reading.fragments.is_empty() { 0 } else { late };
        if !tcp.payload.is_empty() {
            reading.fragments.push((at, &tcp.payload));
        }
        reading.high = reading.high.max(end);
        if tcp.flags & FIN != 0 {
            reading.fin_seq.get_or_insert(seq.wrapping_add(tcp.payload.len() as u32));
        }
        reading.resets += usize::from(tcp.flags & RST != 0);
    }
    let mut streams = Streams::new();
    for (flow, incarnations) in readings {
        for (number, reading) in incarnations.into_iter().enumerate() {
            streams.insert((flow.clone(), number), reading.stream()?);
        }
    }
    Ok((streams, flows))
}

impl Reading<'_> {
    /// The stream of all segments. Of repeated bytes the first copy counts; gaps remain gaps.
    fn stream(self) -> Result<Stream, Failed> {
        let low = self.fragments.iter().map(|(at, _)| *at).min().unwrap_or(0);
        let high = self.fragments.iter().map(|(at, fragment)| at + fragment.len() as i64).max().unwrap_or(0);
        if high - low > STREAM_LEN_MAX {
            return Err(format!("a stream of {} bytes", high - low).into());
        }
        let mut bytes: Vec<Option<u8>> = vec![None; (high - low) as usize];
        for (at, fragment) in self.fragments.iter().rev() {
            let start = (at - low) as usize;
            bytes[start..start + fragment.len()]
                .iter_mut()
                .zip(*fragment)
                .for_each(|(byte, came)| *byte = Some(*came));
        }
        let mut hash = Sha256::new();
        let spelled: Vec<u8> =
            bytes.iter().flat_map(|byte| [u8::from(byte.is_some()), byte.unwrap_or(0)]).collect();
        hash.update(&spelled);
        Ok(Stream {
            first_seq: self.base.wrapping_add(low as u32),
            len: bytes.iter().flatten().count(),
            sha256: hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
            fin_seq: self.fin_seq,
            resets: self.resets,
        })
    }
}

/// The numbers of packets of one capture.
#[derive(Debug, Default)]
struct Row {
    packets: usize,
    /// At the wide sizes; `None` for sizes of other turns.
    widened: [Option<usize>; WIDE.len()],
    reversible: usize,
    /// Packets of the capture that come back byte for byte. Its GSO packets are split to its longest TCP packet
    /// before.
    restored: usize,
}

/// Writes the growth of captures to `target/tmp/tcp_streams.tsv`.
fn publish(results: &BTreeMap<String, Result<Row, String>>) -> Result<(), Failed> {
    let mut table =
        "capture\tpackets\thost 9000\thost 65535\tborder 9000\tborder 65535\treversible\trestored\tratios\n"
            .to_owned();
    for (file, row) in results {
        let Ok(row) = row else { continue };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let ratio = |packets: usize| format!("{:.2}", row.packets as f64 / packets.max(1) as f64);
        let ratios = row.widened.map(|packets| or_dash(packets.map(ratio))).join(" ");
        let widened = row.widened.map(|packets| or_dash(packets.map(|packets| packets.to_string()))).join("\t");
        writeln!(table, "{file}\t{}\t{widened}\t{}\t{}\t{ratios}", row.packets, row.reversible, row.restored)?;
    }
    Ok(std::fs::write(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tcp_streams.tsv"), table)?)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The wide sizes, and the role of the rewrite.
const WIDE: [(&str, usize); 4] = [("host", 9_000), ("host", 65_535), ("border", 9_000), ("border", 65_535)];
/// The narrow sizes, to which each wide result is rewritten.
const NARROW: [usize; 2] = [1_500, 576];
const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
/// Longest stream, in bytes: a longer one means that sequence numbers jump.
const STREAM_LEN_MAX: i64 = 1 << 28;
/// With fewer captures the comparison tests too little.
const CAPTURES_MIN: usize = 5;
/// Start of the names of our own TCP captures.
const OWN_TCP: &str = "tcp_";
/// Our capture with so much TCP that it must grow.
const OWN_BULK: &str = "tcp_bulk.pcap";
/// Third-party captures with as much TCP: flows of 1 MB, and runs of 100 segments.
const BULK_CLASSES: [&str; 2] = ["bulk_tcp_1MB", "tcp_run_ge100"];
/// Captures with TCP, some with GSO packets already.
const TCP_CLASSES: [&str; 5] = ["bulk_tcp_1MB", "tcp_run_ge100", "tcp_run_ge20", "tcp6_bulk", "tcp_super_seg"];
/// Captures that tshark and we may read differently: truncated, damaged, or in an unsupported format. TCP in
/// tunnels stays unchanged.
const OTHER_CLASSES: [&str; 8] =
    ["snaplen_cut", "malformed", "bad_file", "fmt_snoop", "tun_ipip", "tun_6in4", "vxlan", "geneve"];
/// Long runs that do not grow, with the reason.
const SMALL_FOR_A_REASON: [(&str, &str); 1] =
    [("ICS-Security-Tools__wrapup.pcapng", "60 bytes every 20 ms, each with PSH: its sender has nothing to add")];
