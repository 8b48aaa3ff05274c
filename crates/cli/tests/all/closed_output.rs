//! Commands whose output has no reader -> a quiet end.

use std::process::{Command, Output, Stdio};

#[test]
fn a_reader_that_is_gone_ends_a_command_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("border.toml");
    let text = format!(
        "role = \"border\"\ncontrol = \"{}\"\n[wide]\nport = \"tap:wide0\"\nmtu = 9000\n[narrow]\nport = \"tap:narrow0\"\nmtu = 1500\n",
        folder.path().join("border.sock").display()
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let capture = folder.path().join("in.pcap");
    let header = capture::pcap_header(capture::Resolution::Nanoseconds, 101);
    let mut writer =
        capture::Writer::new(std::fs::File::create(&capture).unwrap(), capture::Compression::None).unwrap();
    writer.header(&header).unwrap();
    writer.finish().unwrap();
    let (capture, out) = (capture.to_str().unwrap(), folder.path().join("out.pcap"));
    let commands = [
        &["--help"][..],
        &["--version"],
        &["check", config],
        &["check", "--json", config],
        &["doctor"],
        &["doctor", "--json"],
        &["undo"],
        &["lab", "swarm", "--packets", "1000"],
        &["rewrite", capture, out.to_str().unwrap(), "--mtu", "1500"],
    ];
    for arguments in commands {
        let whole = run(arguments, Stdio::piped());
        let closed = run(arguments, closed());
        assert_eq!(closed.status.code(), whole.status.code(), "{arguments:?}: {}", said(&closed));
        assert_eq!(said(&closed), said(&whole), "{arguments:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let full = run(arguments, full.into());
        assert!(!said(&full).contains("panicked"), "{arguments:?}: {}", said(&full));
    }
}

fn run(arguments: &[&str], output: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wideload")).args(arguments).stdout(output).output().unwrap()
}

fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}
