//! Captures by other programs -> datagrams, compared with those that other programs reassemble.

use crate::collect::{Datagram, Datagrams, rejoined};
use crate::{captures_in, shared_captures};
use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;

/// A line of differences.tsv: a case in which we and another program reassemble different datagrams.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    file: String,
    peer: String,
    only_ours: usize,
    only_theirs: usize,
}

/// We reassemble exactly the datagrams that tshark, scapy or Linux reassemble, except for the listed differences.
pub fn compare() -> Result<(), Failed> {
    let folder = shared_captures().ok_or("no captures")?;
    let incomparable = incomparable(&folder)?;
    let (mut found, mut compared) = (BTreeSet::new(), 0);
    for path in captures_in(&folder) {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ours = rejoined(&path)?.0;
        for peer in PEERS {
            let Ok(truth) = read_to_string(folder.join(format!("truth/{file}.{peer}.tsv"))) else { continue };
            if peer == "linux" && incomparable.contains(&file) {
                continue;
            }
            let theirs = parse(&truth)?;
            compared += theirs.values().sum::<usize>();
            let (only_ours, only_theirs) = (missing(&ours, &theirs), missing(&theirs, &ours));
            if only_ours + only_theirs > 0 {
                found.insert(Difference { file: file.clone(), peer: peer.to_owned(), only_ours, only_theirs });
            }
        }
    }
    let listed = listed()?;
    let unlisted: Vec<_> = found.iter().filter(|difference| !listed.contains_key(difference)).collect();
    let gone: Vec<_> = listed.keys().filter(|difference| !found.contains(difference)).collect();
    if !unlisted.is_empty() || !gone.is_empty() {
        let rows = |rows: &[&Difference]| rows.iter().map(|row| row.row()).collect::<Vec<_>>().join("\n");
        return Err(format!("not in the list:\n{}\n\nno longer so:\n{}", rows(&unlisted), rows(&gone)).into());
    }
    if compared < COMPARED_MIN {
        return Err(format!("only {compared} datagrams were compared").into());
    }
    Ok(())
}

/// Every capture is rewritten to every MTU, as host and as router. The exit status is a documented one, and the
/// counters add up.
pub fn rewrite_all() -> Result<(), Failed> {
    let folder = shared_captures().ok_or("no captures")?;
    let scratch = tempfile::tempdir()?;
    let output = scratch.path().join("out");
    for path in captures_in(&folder) {
        for (mtu, role) in
            [("68", "host"), ("1500", "host"), ("65535", "host"), ("576", "router"), ("9000", "border")]
        {
            let run = Command::new(env!("CARGO_BIN_EXE_wideload"))
                .args(["rewrite", "--json", "--mtu", mtu, "--as", role])
                .args([&path, &output])
                .output()?;
            let said = String::from_utf8_lossy(&run.stderr);
            if !matches!(run.status.code(), Some(0 | 3)) {
                return Err(format!("{} at {mtu} as {role}: {}: {said}", path.display(), run.status).into());
            }
            let report: serde_json::Value = serde_json::from_slice(&run.stdout)?;
            let figure = |name: &str| report["payload"][name].as_i64().unwrap_or(i64::MIN / 4);
            if figure("read") != figure("written") + figure("retired") + figure("headers_saved") {
                return Err(format!("{} at {mtu} as {role}: {}", path.display(), report["payload"]).into());
            }
        }
    }
    Ok(())
}

/// The number of `these` that are not among `those`.
fn missing(these: &Datagrams, those: &Datagrams) -> usize {
    these.iter().map(|(datagram, count)| count.saturating_sub(*those.get(datagram).unwrap_or(&0))).sum()
}

/// A table of ground truth; its columns are found by name.
fn parse(table: &str) -> Result<Datagrams, Failed> {
    let mut lines = table.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| names.iter().position(|it| *it == name).ok_or(format!("no column {name}"));
    let [source, destination, len, sha256] =
        [column("src")?, column("dst")?, column("total_len")?, column("sha256")?];
    let mut datagrams = Datagrams::new();
    for line in lines {
        let fields: Vec<_> = line.split('\t').collect();
        let datagram = Datagram {
            source: fields[source].parse()?,
            destination: fields[destination].parse()?,
            len: fields[len].parse()?,
            sha256: fields[sha256].to_owned(),
        };
        *datagrams.entry(datagram).or_default() += 1;
    }
    Ok(datagrams)
}

/// Captures whose frames in the file differ from those that Linux received.
fn incomparable(folder: &Path) -> Result<BTreeSet<String>, Failed> {
    let table = read_to_string(folder.join("truth_summary.tsv"))?;
    let mut lines = table.lines();
    let column = lines.next().unwrap_or_default().split('\t').position(|name| name == "linux_comparable");
    let column = column.ok_or("no column linux_comparable")?;
    let rows = lines.map(|line| line.split('\t').collect::<Vec<_>>());
    Ok(rows.filter(|row| row.get(column) != Some(&"yes")).map(|row| row[0].to_owned()).collect())
}

/// The listed differences, each with its reason.
fn listed() -> Result<BTreeMap<Difference, String>, Failed> {
    let mut listed = BTreeMap::new();
    for line in include_str!("differences.tsv").lines().skip(1) {
        let fields: Vec<_> = line.split('\t').collect();
        let [file, peer, only_ours, only_theirs, reason] = fields[..] else {
            return Err(format!("differences.tsv: five columns, not {line:?}").into());
        };
        let difference = Difference {
            file: file.to_owned(),
            peer: peer.to_owned(),
            only_ours: only_ours.parse()?,
            only_theirs: only_theirs.parse()?,
        };
        listed.insert(difference, reason.to_owned());
    }
    Ok(listed)
}

impl Difference {
    fn row(&self) -> String {
        format!("{}\t{}\t{}\t{}\t", self.file, self.peer, self.only_ours, self.only_theirs)
    }
}

const PEERS: [&str; 3] = ["tshark", "linux", "scapy"];
/// With fewer captures the comparison tests too little.
const COMPARED_MIN: usize = 1_000;
