//! Arguments of version 0.1 -> the same output as with the names of today, and a warning.
//!
//! `src/args/renamed.rs` tests each former name without running the command.

use crate::scratch::{Scratch, said};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[test]
fn a_former_option_gives_the_same_output_and_a_warning() {
    let scratch = Scratch::new();
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/udp4_mtu576.pcap");
    let [former, now] = ["former.pcap", "now.pcap"].map(|name| scratch.path(name));
    let ran = scratch.rewrite(&[&input, &now], &[&MERGING[..], &["--fragment-policy", "merge"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    assert!(!said(&ran).contains("is now called"), "{}", said(&ran));
    let ran = scratch.rewrite(&[&input, &former], &[&MERGING[..], &["--join", "graceful"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    for sentence in ["--join is now called --fragment-policy", "--fragment-policy graceful is now called merge"] {
        assert!(said(&ran).contains(sentence), "{}", said(&ran));
    }
    assert_eq!(fs::read(former).unwrap(), fs::read(now).unwrap());
}

#[test]
fn file_names_need_not_be_utf8() {
    let scratch = Scratch::new();
    let bulk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/tcp_bulk.pcap");
    let [input, output] = [b"\xe9.pcap", b"\xe8.pcap"].map(|name| scratch.0.path().join(OsStr::from_bytes(name)));
    fs::copy(&bulk, &input).unwrap();
    let expected = scratch.path("expected.pcap");
    for (paths, timeout) in [([&bulk, &expected], "--timeout"), ([&input, &output], "--patience")] {
        let ran = scratch.rewrite(&paths.map(|path| path.as_path()), &["--mtu", "9000", timeout, "20"]);
        assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
        assert_eq!(said(&ran).contains("--patience is now called --timeout"), timeout == "--patience");
    }
    assert_eq!(fs::read(output).unwrap(), fs::read(expected).unwrap());
}

const MERGING: [&str; 4] = ["--mtu", "1500", "--as", "router"];
