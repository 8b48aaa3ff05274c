//! Commands -> their reports and errors in tests/reports, so that a change of wording shows in review.
//!
//! `WIDELOAD_GOLDEN=write cargo test -p wideload --test all reports` writes the files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use testkit::golden;

#[test]
fn reports_of_rewrite() {
    compare("rewrite", REWRITES);
}

#[test]
fn errors_of_rewrite() {
    compare("rewrite_errors", REWRITE_ERRORS);
}

#[test]
fn reports_of_check() {
    compare("check", CHECKS);
}

// README.md and docs/rewrite.md show parts of the same reports.
#[test]
fn excerpts_of_the_pages_are_lines_of_the_reports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let reports =
        fs::read_to_string(root.join("crates/cli/tests/reports/rewrite.txt")).expect("it is a golden file");
    for page in ["README.md", "docs/rewrite.md"] {
        let text = fs::read_to_string(root.join(page)).expect("the page is readable");
        let blocks = text.split("```text\n").skip(1).filter_map(|block| block.split("```").next());
        let excerpts: Vec<&str> = blocks.filter(|block| block.contains("TCP: 156 segments in 31 runs")).collect();
        assert!(!excerpts.is_empty(), "{page} shows no report");
        for line in excerpts.iter().flat_map(|block| block.lines()) {
            assert!(reports.lines().any(|known| known == line), "{page}: no report has this line: {line}");
        }
    }
}

/// Runs commands in a temporary directory, and compares their output with a golden file.
fn compare(name: &str, commands: &[&str]) {
    let folder = folder();
    let mut page = String::new();
    for command in commands {
        let ran = Command::new(env!("CARGO_BIN_EXE_wideload"))
            .args(command.split(' '))
            .current_dir(folder.path())
            .env("COLUMNS", "80")
            .output()
            .expect("the program starts");
        let [out, err] = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).expect("text is UTF-8"));
        let status = ran.status.code().expect("no signal ended it");
        page.push_str(&format!("$ wideload {command}\n{out}{err}status {status}\n\n"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/reports/{name}.txt"));
    golden(path, &page);
}

/// Captures of the repository, damaged ones, and configurations.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it exists");
    symlink(root.join("captures"), folder.path().join("captures")).expect("links are possible");
    let whole = fs::read(root.join("captures/tcp_bulk.pcap")).expect("the capture is readable");
    let text = |text: &str| text.as_bytes().to_vec();
    let files = [
        ("short.pcap", whole[..20_000].to_vec()),
        ("empty.pcap", vec![]),
        ("text.pcap", text("not a capture\n")),
        ("twins.toml", text("role = \"border\"\nwide = { port = \"packet:lan0\", mtu = 9000 }\n")),
        ("old.toml", text(OLD)),
    ];
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("there is room");
    }
    folder
}

const REWRITES: &[&str] = &[
    "rewrite captures/tcp_bulk.pcap wide.pcap --mtu 9000",
    "rewrite wide.pcap narrow.pcap --mtu 1500 --as border",
    "rewrite captures/fragments.pcapng whole.pcapng --mtu 65535",
    "rewrite captures/incomplete.pcap whole.pcap --mtu 65535",
    "rewrite captures/udp4_mtu576.pcap merged.pcap --mtu 1500 --as router --fragment-policy merge",
    "rewrite captures/jumbo_udp.pcap cut.pcap --mtu 1500 --as border",
    "rewrite short.pcap wide.pcap --mtu 9000",
];

const REWRITE_ERRORS: &[&str] = &[
    "rewrite absent.pcap out.pcap --mtu 9000",
    "rewrite empty.pcap out.pcap --mtu 9000",
    "rewrite text.pcap out.pcap --mtu 9000",
    "rewrite captures/tcp_bulk.pcap absent/out.pcap --mtu 9000",
    "rewrite captures/tcp_bulk.pcap captures/tcp_bulk.pcap --mtu 9000",
    "rewrite captures/tcp_bulk.pcap out.pcap --mtu 9",
    "rewrite captures/tcp_bulk.pcap out.pcap",
    "rewrite captures/tcp_bulk.pcap out.pcap --mtu 9000 --as bridge",
    "rewrite captures/tcp_bulk.pcap out.pcap --mtu 9000 --hold x",
    "rewrite captures/tcp_bulk.pcap out.pcap --mtu 9000 --as router --hold 1",
    "rewrite captures/tcp_bulk.pcap out.pcap --mtu 9000 --fragment-policy merge --reassemble",
    "rewrite captures/tcp_bulk.pcap out.pcap --mtu 9000 --exempt 300.1.1.1",
];

const CHECKS: &[&str] = &["check absent.toml", "check twins.toml", "check old.toml", "check --json twins.toml"];

/// Keys of version 0.1, and interfaces that do not exist.
const OLD: &str = "\
role = \"router\"
[wide]
port = \"packet:absent0\"
mtu = 9000
join = \"graceful\"
patience = \"20ms\"
[narrow]
port = \"packet:absent1\"
mtu = 1500
";
