//! Captures of the input and output of Linux's GRO, compared with Wideload's output.

use crate::collect::frames;
use crate::{rewrite, shared_captures};
use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::Path;

/// Our reversible coalescing makes the same packets as Linux from the same input, except for the listed cases. They
/// can be split into the same packets again.
pub fn makes_what_linux_makes() -> Result<(), Failed> {
    let folder = shared_captures().ok_or("no captures")?;
    let scratch = tempfile::tempdir()?;
    let listed = listed()?;
    let (mut compared, mut failures, mut found) = (0, Vec::new(), BTreeSet::new());
    for (input, kernels) in cases(&folder)? {
        let case = input.trim_start_matches("linuxgro__").trim_end_matches(".in.pcap").to_owned();
        let (came, theirs) = (frames(&folder.join(&input))?, frames(&folder.join(&kernels))?);
        let (merged, back) = (scratch.path().join("merged"), scratch.path().join("back"));
        rewrite(&folder.join(&input), &merged, &["--coalesce", "reversible", "--mtu", "65535"])?;
        let ours = frames(&merged)?;
        compared += 1;
        if let Some(difference) = difference(&theirs, &ours)? {
            let row = (case.clone(), difference);
            if !listed.contains_key(&row) {
                failures.push(format!("not in the list: {}\t{}\t", row.0, row.1));
            }
            found.insert(row);
        }
        let mtu = longest(&missing(&came, &ours)).or(longest(&came)).ok_or("an empty capture")?.max(MTU_MIN);
        failures.extend(made_up(&came, &ours).map(|fault| format!("{case}: {fault}")));
        rewrite(&merged, &back, &["--segment", "--mtu", &mtu.to_string()])?;
        let ids = if ids_stay(&came) { Ids::Left } else { Ids::Compared };
        if by_flow(&frames(&back)?, ids) != by_flow(&came, ids) {
            failures.push(format!("{case}: cut to {mtu} bytes, the trains are not what came"));
        }
    }
    failures.extend(listed.keys().filter(|row| !found.contains(*row)).map(|row| format!("no longer so: {row:?}")));
    if compared < CASES_MIN {
        failures.push(format!("only {compared} cases were compared"));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// Captures of TCP directly in IP: the input, and the kernel's output.
fn cases(folder: &Path) -> Result<Vec<(String, String)>, Failed> {
    let table = read_to_string(folder.join("gro_expected.tsv"))?;
    let rows = table.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let plain = rows.filter(|row| matches!(row.get(2), Some(&"ipv4" | &"ipv6")));
    Ok(plain.map(|row| (row[0].to_owned(), row[1].to_owned())).collect())
}

/// The difference between our packets and the kernel's, if there is one: in length and order, otherwise in a header
/// or a byte. The kernel leaves partial checksums, so [`made_up`] checks that field instead.
fn difference(theirs: &[Vec<u8>], ours: &[Vec<u8>]) -> Result<Option<String>, Failed> {
    let lens = |frames: &[Vec<u8>]| {
        let lens: Option<Vec<_>> =
            frames.iter().map(|frame| Some(Parts::of(frame)?.payload_len().to_string())).collect();
        lens.map(|lens| lens.join(" ")).ok_or("a packet that is not TCP")
    };
    let (their_lens, our_lens) = (lens(theirs)?, lens(ours)?);
    if their_lens != our_lens {
        return Ok(Some(format!("{their_lens}\t{our_lens}")));
    }
    let bare = |frames: &[Vec<u8>]| {
        let mut bare: Vec<_> = frames.iter().map(|frame| without_checksum(frame)).collect();
        bare.sort();
        bare
    };
    let (their_frames, our_frames) = (bare(theirs), bare(ours));
    let differing = their_frames.iter().zip(&our_frames).find(|(theirs, ours)| theirs != ours);
    Ok(differing.map(|(theirs, ours)| {
        let at = theirs.iter().zip(ours).position(|(theirs, ours)| theirs != ours).unwrap_or(theirs.len());
        format!("{their_lens}\tbyte {at} of a frame differs")
    }))
}

/// A packet of ours that is not in the input and has no correct checksum.
fn made_up(came: &[Vec<u8>], ours: &[Vec<u8>]) -> Option<String> {
    let wrong = missing(ours, came).into_iter().find(|frame| !checksum_is_right(frame))?;
    Some(format!("a packet of {} bytes has a wrong checksum", wrong.len()))
}

/// Whether two successive packets have one IPv4 ID. A capture cannot show this of a GSO packet: its segments' IDs
/// rise.
fn ids_stay(frames: &[Vec<u8>]) -> bool {
    let id = |frame: &Vec<u8>| {
        (frame[ETHERNET_LEN] >> 4 == 4).then(|| [frame[ETHERNET_LEN + 4], frame[ETHERNET_LEN + 5]])
    };
    frames.windows(2).any(|pair| id(&pair[0]).is_some() && id(&pair[0]) == id(&pair[1]))
}

/// Packets of each flow, in order. A packet with a wrong header checksum belongs to no flow, for the kernel too.
fn by_flow(frames: &[Vec<u8>], ids: Ids) -> BTreeMap<Option<[u8; 4]>, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for frame in frames {
        let parts = Parts::of(frame).filter(|_| header_checksum_is_right(frame));
        let ports = parts.and_then(|parts| frame.get(parts.tcp_at..parts.tcp_at + 4)?.try_into().ok());
        let mut frame = frame.clone();
        if ports.is_some() && ids == Ids::Left && frame[ETHERNET_LEN] >> 4 == 4 {
            frame[ETHERNET_LEN + 4..ETHERNET_LEN + 6].fill(0);
            frame[ETHERNET_LEN + 10..ETHERNET_LEN + 12].fill(0);
        }
        flows.entry(ports).or_default().push(frame);
    }
    flows
}

/// The packets of `these` that are not among `those`.
fn missing<'a>(these: &'a [Vec<u8>], those: &[Vec<u8>]) -> Vec<&'a Vec<u8>> {
    these.iter().filter(|frame| !those.contains(frame)).collect()
}

/// Length of the longest packet.
fn longest<T: AsRef<[u8]>>(frames: &[T]) -> Option<usize> {
    frames.iter().map(|frame| frame.as_ref().len() - ETHERNET_LEN).max()
}

/// Whether IPv4 IDs, and with them header checksums, are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    Compared,
    Left,
}

/// Offsets of a frame's parts, parsed here as plainly as possible.
struct Parts {
    tcp_at: usize,
    payload_at: usize,
    end: usize,
}

impl Parts {
    fn of(frame: &[u8]) -> Option<Parts> {
        let short = |at: usize| Some(usize::from(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?])));
        let (tcp_at, end) = match frame.get(ETHERNET_LEN)? >> 4 {
            4 => {
                (ETHERNET_LEN + usize::from(frame[ETHERNET_LEN] & 15) * 4, ETHERNET_LEN + short(ETHERNET_LEN + 2)?)
            }
            _ => {
                let has_fragment_header = *frame.get(ETHERNET_LEN + 6)? == FRAGMENT;
                let tcp_at = ETHERNET_LEN + IPV6_HEADER_LEN + if has_fragment_header { 8 } else { 0 };
                (tcp_at, ETHERNET_LEN + IPV6_HEADER_LEN + short(ETHERNET_LEN + 4)?)
            }
        };
        let payload_at = tcp_at + usize::from(frame.get(tcp_at + 12)? >> 4) * 4;
        (payload_at <= end && end <= frame.len()).then_some(Parts { tcp_at, payload_at, end })
    }

    fn payload_len(&self) -> usize {
        self.end - self.payload_at
    }
}

fn without_checksum(frame: &[u8]) -> Vec<u8> {
    let mut bare = frame.to_vec();
    if let Some(parts) = Parts::of(frame) {
        bare[parts.tcp_at + 16..parts.tcp_at + 18].fill(0);
    }
    bare
}

/// The checksum of RFC 9293 section 3.1, word by word.
fn checksum_is_right(frame: &[u8]) -> bool {
    let Some(parts) = Parts::of(frame) else { return false };
    let addresses = if frame[ETHERNET_LEN] >> 4 == 4 { 12..20 } else { 8..40 };
    let addresses = &frame[ETHERNET_LEN + addresses.start..ETHERNET_LEN + addresses.end];
    let segment = &frame[parts.tcp_at..parts.end];
    let sum = words(addresses) + words(segment) + segment.len() as u64 + TCP;
    sum > 0 && sum.is_multiple_of(0xFFFF)
}

/// The checksum of an IPv4 header; IPv6 has none.
fn header_checksum_is_right(frame: &[u8]) -> bool {
    let header_len = usize::from(frame[ETHERNET_LEN] & 15) * 4;
    let header = &frame[ETHERNET_LEN..frame.len().min(ETHERNET_LEN + header_len)];
    frame[ETHERNET_LEN] >> 4 == 6 || words(header).is_multiple_of(0xFFFF)
}

/// The sum of 16-bit words, the last one padded with zeros.
fn words(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))).sum()
}

/// The listed cases: a case, the lengths of Linux's packets, ours, and the ruling.
fn listed() -> Result<BTreeMap<(String, String), String>, Failed> {
    let mut listed = BTreeMap::new();
    for line in include_str!("gro_differences.tsv").lines().skip(1) {
        let fields: Vec<_> = line.split('\t').collect();
        let [case, theirs, ours, ruling] = fields[..] else {
            return Err(format!("gro_differences.tsv: four columns, not {line:?}").into());
        };
        listed.insert((case.to_owned(), format!("{theirs}\t{ours}")), ruling.to_owned());
    }
    Ok(listed)
}

const ETHERNET_LEN: usize = 14;
const IPV6_HEADER_LEN: usize = 40;
/// Smallest MTU of `--mtu`.
const MTU_MIN: usize = 68;
const FRAGMENT: u8 = 44;
const TCP: u64 = 6;
/// With fewer cases the comparison tests too little.
const CASES_MIN: usize = 30;
