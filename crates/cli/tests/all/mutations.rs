//! A thousand captures with flipped bytes, truncated ends and swapped blocks -> no panic, no hang, clear messages.

use capture::{Item, Reader};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_thousand_mutated_captures_end_well() {
    let scratch = tempfile::tempdir().unwrap();
    let originals = originals();
    let (mut read_whole, mut damaged, mut refused) = (0, 0, 0);
    for seed in 0..1_000 {
        let mut random = Random(seed);
        let original = &originals[random.below(originals.len())];
        let mutated = mutate(original, &mut random);
        let input = scratch.path().join("mutated");
        fs::write(&input, &mutated).unwrap();
        let ended = rewrite(&input, &scratch.path().join("out"), seed);
        let what = format!("seed {seed}, {} bytes: {}", mutated.len(), ended.said);
        assert!(!ended.said.contains("panicked"), "{what}");
        match ended.status {
            Some(0) => {
                read_whole += 1;
                assert!(ended.said.is_empty(), "{what}");
            }
            Some(3) => {
                damaged += 1;
                assert!(ended.said.contains("damaged at byte") && ended.said.contains("were written"), "{what}");
            }
            Some(1) => {
                refused += 1;
                assert!(ended.said.starts_with("wideload: ") && ended.said.lines().count() == 1, "{what}");
            }
            status => panic!("status {status:?}, {what}"),
        }
        if ended.status != Some(1) {
            balance(&ended.report, &scratch.path().join("out"), &what);
        }
    }
    // If all mutations had the same result, they would test nothing.
    assert!(
        read_whole > 100 && damaged > 100 && refused > 10,
        "{read_whole} whole, {damaged} damaged, {refused} refused"
    );
}

struct Ended {
    status: Option<i32>,
    said: String,
    report: String,
}

/// Runs the command. If it takes longer than any of these captures needs, it is killed and the test fails.
fn rewrite(input: &Path, output: &Path, seed: u64) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wideload"))
        .args(["rewrite", "--json"])
        .args(DIRECTIONS[seed as usize % DIRECTIONS.len()])
        .args(["--even"].iter().filter(|_| seed % 2 == 1))
        .args([input, output])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let reader = std::thread::spawn({
        let mut stdout = child.stdout.take().unwrap();
        move || std::io::read_to_string(&mut stdout).unwrap()
    });
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LONGEST {
            child.kill().unwrap();
            panic!("seed {seed}: still running after {LONGEST:?}");
        }
        std::thread::yield_now();
    };
    let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    Ended { status: status.code(), said, report: reader.join().unwrap() }
}

fn balance(report: &str, output: &Path, what: &str) {
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_else(|error| panic!("{error}: {what}"));
    for side in ["read", "written"] {
        let figure = |name: &str| report[side][name].as_u64().unwrap();
        assert_eq!(figure("bytes"), figure("payload") + figure("headers") + figure("untouched"), "{side}: {what}");
    }
    // The report must agree with the content of the file.
    let mut reader = Reader::new(fs::File::open(output).unwrap()).unwrap();
    let (mut packets, mut bytes) = (0, 0);
    while let Some(item) = reader.next().unwrap() {
        if let Item::Packet(record) = item {
            (packets, bytes) = (packets + 1, bytes + record.data.len() as u64);
        }
    }
    assert_eq!(
        (&report["written"]["packets"], &report["written"]["bytes"]),
        (&packets.into(), &bytes.into()),
        "{what}"
    );
    let payload = |name: &str| report["payload"][name].as_i64().unwrap();
    let went = payload("written") + payload("retired") + payload("headers_saved");
    assert_eq!(payload("read"), went, "{what}");
}

fn mutate(original: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = original.to_vec();
    match random.below(4) {
        0 => {
            for _ in 0..=random.below(20) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        1 => bytes.truncate(random.below(bytes.len())),
        2 => swap_blocks(&mut bytes, random),
        _ => {
            // Copies a range of the file's bytes to another place, so that lengths and headers are wrong.
            let len = random.below(bytes.len().min(200)) + 1;
            let (from, to) = (random.below(bytes.len() - len + 1), random.below(bytes.len() - len + 1));
            bytes.copy_within(from..from + len, to);
        }
    }
    bytes
}

/// Swaps two blocks or records.
fn swap_blocks(bytes: &mut Vec<u8>, random: &mut Random) {
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut blocks = Vec::new();
    while let Ok(Some(item)) = reader.next() {
        blocks.push(match item {
            Item::Header(raw) | Item::Interface(raw) | Item::Block(raw) => raw.to_vec(),
            Item::Packet(record) => record.raw.to_vec(),
        });
    }
    let (one, other) = (random.below(blocks.len()), random.below(blocks.len()));
    blocks.swap(one, other);
    *bytes = blocks.concat();
}

/// The project's own captures.
fn originals() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures");
    let mut paths: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let is_capture = |path: &PathBuf| path.extension().is_some_and(|end| end == "pcap" || end == "pcapng");
    let originals: Vec<_> =
        paths.iter().filter(|path| is_capture(path)).map(|path| fs::read(path).unwrap()).collect();
    assert!(originals.len() > 5, "the captures of the project are in {}", folder.display());
    originals
}

/// A random generator (SplitMix64). Its numbers only need to differ between seeds.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }
}

/// MTUs and roles, in turn.
const DIRECTIONS: [&[&str]; 12] = [
    &["--mtu", "68"],
    &["--mtu", "1500"],
    &["--mtu", "65535"],
    &["--mtu", "1280"],
    &["--mtu", "68", "--as", "router"],
    &["--mtu", "576", "--as", "router"],
    &["--mtu", "1281", "--as", "router", "--fragment-policy", "merge"],
    &["--mtu", "9000", "--as", "router", "--fragment-policy", "reassemble-hop"],
    &["--mtu", "9000", "--as", "border"],
    &["--mtu", "576", "--as", "border"],
    &["--mtu", "65535", "--coalesce", "reversible", "--hold", "0.1"],
    &["--mtu", "9000", "--coalesce", "resize", "--segment", "--hold", "0.1"],
];
/// Time limit of one rewrite, far above the time that any of these captures needs.
const LONGEST: Duration = Duration::from_secs(20);
