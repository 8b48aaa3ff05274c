//! The command as a new user sees it: exit statuses, messages, files.

use crate::scratch::{
    COOKED2, DONT_FRAGMENT, MORE_FRAGMENTS, RAW, Scratch, cut, fate, frames, json, said, seal_ip, udp,
};
use capture::{Compression, Resolution, Writer, pcap_header};
use packet::Time;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn fragments_become_a_datagram_and_a_datagram_fragments() {
    let scratch = Scratch::new();
    let datagram = udp(3_000, 7, DONT_FRAGMENT);
    let wide = scratch.pcap("wide.pcap", &[(1, datagram.clone())]);
    let narrow = scratch.path("narrow.pcap");
    let run = scratch.rewrite(&[&wide, &narrow], &["--mtu", "1500"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let fragments = frames(&narrow);
    assert_eq!(fragments.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [1_500, 1_500, 40]);
    assert!(fragments.iter().all(|(_, frame)| frame[6] & 0x40 == 0), "pieces leave with DF clear");
    let again = scratch.path("again.pcap");
    scratch.rewrite(&[&narrow, &again], &["--mtu", "65535"]);
    let [(_, rejoined)] = &frames(&again)[..] else { panic!("one datagram") };
    assert_eq!(rejoined[20..], datagram[20..]);
}

#[test]
fn a_router_refuses_df_packets_and_writes_icmp_errors() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(3_000, 7, DONT_FRAGMENT)), (2, udp(3_000, 8, 0))]);
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "1500", "--as", "router", "--json"]);
    let out = frames(&output);
    assert_eq!(out.len(), 1 + 3, "an answer and three pieces");
    let answer = &out[0].1;
    assert_eq!((answer[9], &answer[12..16], answer[20], answer[21]), (1, &[192, 0, 0, 8][..], 3, 4));
    assert_eq!(answer[26..28], 1_500u16.to_be_bytes());
    assert_eq!(out[1].1[4..6], 8u16.to_be_bytes(), "a router keeps the sender's identification");
    let report = json(&run);
    assert_eq!(fate(&report, "retired", "too_big")["packets"], 1);
    assert_eq!(fate(&report, "done", "icmp_sent")["packets"], 1);
    let other =
        scratch.rewrite(&[&input, &output], &["--mtu", "1500", "--as", "router", "--icmp-source", "198.51.100.1"]);
    assert_eq!(other.status.code(), Some(0));
    assert_eq!(frames(&output)[0].1[12..16], [198, 51, 100, 1]);
}

#[test]
fn incomplete_datagrams_leave_late_with_the_same_bytes() {
    let scratch = Scratch::new();
    let fragments = cut(&udp(2_000, 9, 0), 520);
    let second = |number: u64| number * 1_000_000_000;
    let records = [
        (second(10), fragments[1].clone()),
        (second(11), fragments[3].clone()),
        (second(39), udp(100, 1, 0)),
        (second(41), udp(100, 2, 0)),
    ];
    let input = scratch.pcap("in.pcap", &records);
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "1500", "--json"]);
    let out = frames(&output);
    let times: Vec<_> = out.iter().map(|(time, _)| time / 1_000_000_000).collect();
    assert_eq!(times, [39, 40, 40, 41], "30 s after the first piece came");
    assert_eq!((&out[1].1[20..], &out[2].1[20..]), (&fragments[1][20..], &fragments[3][20..]));
    assert_eq!(fate(&json(&run), "done", "released_timeout")["packets"], 1);
    // With a shorter time-out they are released earlier.
    scratch.rewrite(&[&input, &output], &["--mtu", "1500", "--timeout", "2.5"]);
    assert_eq!(frames(&output)[0].0, 12_500_000_000);
}

#[test]
fn output_times_are_capture_times_even_where_those_leap() {
    let scratch = Scratch::new();
    let fragments = |id| cut(&udp(1_000, id, 0), 504);
    let second = |number: u64| number * 1_000_000_000;
    // Datagrams in 1970, in 2096, at the end of time, and an hour before the first. Each datagram is complete
    // within a second.
    let mut records = Vec::new();
    for (id, start) in [(1, second(5_000)), (2, second(4_000_000_000)), (3, u64::MAX - 5), (4, second(1_400))] {
        let [first, last] = &fragments(id)[..] else { panic!("two pieces") };
        records.extend([(start, first.clone()), (start + 1, last.clone())]);
    }
    // An incomplete datagram leaves 30 s later by the same clock.
    records.extend([(second(1_500), fragments(5)[0].clone()), (second(1_600), udp(100, 6, 0))]);
    let input = scratch.pcap("in.pcap", &records);
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "65535"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    // A pcap file has 32 bits for seconds, so the end of time can be written.
    let times: Vec<_> = frames(&output).iter().map(|(time, _)| time / 1_000_000_000).collect();
    let end_of_time = frames(&input)[5].0 / 1_000_000_000;
    assert_eq!(times, [5_000, 4_000_000_000, end_of_time, 1_400, 1_530, 1_600]);
}

#[test]
fn a_fragment_past_65535_bytes_is_not_fragmented() {
    let scratch = Scratch::new();
    let mut fragment = udp(120, 1, 0x1FFF);
    seal_ip(&mut fragment);
    let input = scratch.pcap("in.pcap", &[(1, fragment)]);
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "68", "--as", "router", "--json"]);
    assert_eq!(frames(&output).len(), 0);
    assert_eq!(fate(&json(&run), "retired", "frag_oversize")["packets"], 1);
}

#[test]
fn truncated_packets_pass_and_are_counted() {
    let scratch = Scratch::new();
    // A packet whose sender leaves the length field to the NIC, in a capture with 96 bytes of each packet.
    let mut offloaded = udp(3_000, 1, 0);
    offloaded[2..4].fill(0);
    offloaded[9] = 6;
    seal_ip(&mut offloaded);
    for front in [&udp(3_000, 1, 0)[..96], &offloaded[..96]] {
        let mut record = 1u64.to_le_bytes().to_vec();
        record.extend([96u32, 3_000].iter().flat_map(|len| len.to_le_bytes()));
        record.extend(front);
        let input = scratch.path("in.pcap");
        fs::write(&input, [&pcap_header(Resolution::Nanoseconds, RAW)[..], &record].concat()).unwrap();
        let output = scratch.path("out.pcap");
        let run = scratch.rewrite(&[&input, &output], &["--mtu", "68"]);
        assert_eq!((run.status.code(), fs::read(&input).unwrap()), (Some(0), fs::read(&output).unwrap()));
        assert!(said(&run).contains("the first is packet 1 at byte 24"), "{}", said(&run));
        let report = json(&scratch.rewrite(&[&input, &output], &["--mtu", "68", "--json"]));
        assert_eq!(fate(&report, "passed", "snap_cut")["packets"], 1);
        assert_eq!((&report["snap_cut"]["packet"], &report["snap_cut"]["offset"]), (&1.into(), &24.into()));
    }
}

#[test]
fn fragments_of_two_interfaces_are_two_datagrams() {
    let scratch = Scratch::new();
    let fragments = cut(&udp(1_000, 1, 0), 504);
    let input = scratch.path("in.pcap");
    let mut writer = Writer::new(File::create(&input).unwrap(), Compression::None).unwrap();
    writer.header(&pcap_header(Resolution::Nanoseconds, COOKED2)).unwrap();
    for fragment in &fragments {
        for interface in [2u8, 3] {
            let cooked = [8, 0, 0, 0, 0, 0, 0, interface, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
            writer.packet(0, Some(Time::from_nanos(1)), &[&cooked, fragment]).unwrap();
        }
    }
    writer.finish().unwrap().flush().unwrap();
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "65535", "--json"]);
    assert_eq!(fate(&json(&run), "done", "reassembled")["packets"], 2);
    assert_eq!(frames(&output).iter().map(|(_, frame)| frame[7]).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn non_ip_frames_pass_unchanged_and_are_counted() {
    let scratch = Scratch::new();
    let mut bad_sum = udp(3_000, 1, 0);
    bad_sum[10] ^= 1;
    let mut bad_version = udp(100, 2, 0);
    bad_version[0] = 0x75;
    let truncated = udp(3_000, 3, 0)[..2_000].to_vec();
    // A sender's packet of more than 65,535 bytes, which a length field cannot express.
    let mut too_long = udp(100, 4, 0);
    too_long[2..4].fill(0);
    too_long[9] = 6;
    seal_ip(&mut too_long);
    too_long.resize(70_000, 4);
    let records = [(1, bad_sum), (2, bad_version), (3, truncated), (4, too_long)];
    let input = scratch.pcap("in.pcap", &records);
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "576", "--json"]);
    assert_eq!(fs::read(&input).unwrap(), fs::read(&output).unwrap());
    let report = json(&run);
    for name in ["bad_header_sum", "bad_version", "truncated", "too_long"] {
        assert_eq!(fate(&report, "passed", name)["packets"], 1, "{name}: {report:#}");
    }
    assert_eq!(report["read"]["untouched"], report["read"]["bytes"]);
}

#[test]
fn ipv6_is_left_alone_below_its_smallest_mtu() {
    let scratch = Scratch::new();
    let mut packet = vec![0x60, 0, 0, 0, 0x04, 0, 59, 64];
    packet.extend([0x20; 32]);
    packet.resize(40 + 1_024, 7);
    let input = scratch.pcap("in.pcap", &[(1, packet)]);
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "576", "--json"]);
    assert_eq!(fs::read(&input).unwrap(), fs::read(&output).unwrap());
    assert_eq!(fate(&json(&run), "done", "left_oversize")["packets"], 1);
}

#[test]
fn exhausted_identifications_drop_packets_with_a_reason() {
    let scratch = Scratch::new();
    let records: Vec<_> = (0..70_000).map(|number| (number * 1_000, udp(104, 0, DONT_FRAGMENT))).collect();
    let input = scratch.pcap("in.pcap", &records);
    let output = scratch.path("out.pcap");
    // 70,000 datagrams in 70 ms exceed the IPv4 IDs of a pair of hosts for one second, but not for 10 ms.
    for (lifetime, out_of_identifiers) in [("1", true), ("0.01", false)] {
        let run = scratch.rewrite(&[&input, &output], &["--mtu", "68", "--lifetime", lifetime, "--json"]);
        let ended = fate(&json(&run), "retired", "no_identifier")["packets"].as_u64();
        assert_eq!(ended, out_of_identifiers.then_some(70_000 - 65_536), "{lifetime} s");
    }
}

#[test]
fn every_wrong_argument_is_refused_with_a_reason() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(100, 1, 0))]);
    let output = scratch.path("out.pcap");
    for (args, word) in [
        (&["--mtu", "67"][..], "67"),
        (&["--mtu", "65536"], "65536"),
        (&["--mtu", "many"], "many"),
        (&[], "--mtu"),
        (&["--mtu", "1500", "--as", "bridge"], "bridge"),
        (&["--mtu", "1500", "--icmp-source", "nobody"], "nobody"),
        (&["--mtu", "1500", "--as", "router", "--icmp-source", "224.0.0.1"], "224.0.0.1"),
        (&["--mtu", "1500", "--timeout", "-1"], "timeout"),
        (&["--mtu", "1500", "--timeout", "soon"], "soon"),
        (&["--mtu", "1500", "--memory", "0"], "memory"),
        (&["--mtu", "1500", "--json", "--quiet"], "--quiet"),
    ] {
        let run = scratch.rewrite(&[&input, &output], args);
        assert_eq!(run.status.code(), Some(2), "{args:?}: {}", said(&run));
        assert!(said(&run).contains(word), "{args:?}: {}", said(&run));
        assert!(!output.exists(), "{args:?}");
    }
}

#[test]
fn output_onto_its_own_input_is_refused_under_any_name() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(3_000, 1, 0))]);
    let before = fs::read(&input).unwrap();
    let link = scratch.path("link.pcap");
    std::os::unix::fs::symlink(&input, &link).unwrap();
    let hard = scratch.path("hard.pcap");
    fs::hard_link(&input, &hard).unwrap();
    for output in [&input, &link, &hard] {
        let run = scratch.rewrite(&[&input, output], &["--mtu", "576"]);
        assert_eq!(run.status.code(), Some(2), "{}", said(&run));
        assert!(said(&run).contains("is the input itself"), "{}", said(&run));
        assert_eq!(fs::read(&input).unwrap(), before);
    }
}

#[test]
fn fifos_are_read_and_written() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(4_000, 7, 0)), (2, udp(100, 8, 0))]);
    let plain = scratch.path("plain.pcap");
    assert_eq!(scratch.rewrite(&[&input, &plain], &["--mtu", "1500"]).status.code(), Some(0));
    let [from, to] = ["from", "to"].map(|name| {
        let path = scratch.path(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        path
    });
    let bytes = std::fs::read(&input).unwrap();
    let (source, sink) = (from.clone(), to.clone());
    let writer = std::thread::spawn(move || std::fs::write(source, bytes));
    let reader = std::thread::spawn(move || std::fs::read(sink));
    let mut run = Command::new(env!("CARGO_BIN_EXE_wideload"))
        .args(["rewrite".as_ref(), from.as_os_str(), to.as_os_str()])
        .args(["--mtu", "1500", "--quiet"])
        .spawn()
        .unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let status = loop {
        match run.try_wait().unwrap() {
            Some(status) => break status,
            None if std::time::Instant::now() > until => {
                run.kill().unwrap();
                panic!("it hangs");
            }
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    assert_eq!(status.code(), Some(0));
    writer.join().unwrap().unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), std::fs::read(&plain).unwrap());
}

#[test]
fn file_errors_name_the_file() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(60_000, 1, 0))]);
    let output = scratch.path("out.pcap");
    let no_capture = scratch.path("text.pcap");
    fs::write(&no_capture, "this is no capture\n").unwrap();
    let empty = scratch.path("empty.pcap");
    fs::write(&empty, "").unwrap();
    let cases = [
        (scratch.path("missing.pcap"), output.clone(), "missing.pcap"),
        (no_capture, output.clone(), "text.pcap"),
        (empty, output.clone(), "empty"),
        (input.clone(), scratch.path("no/such/folder.pcap"), "folder.pcap"),
        (input.clone(), scratch.0.path().to_owned(), "cannot create"),
    ];
    for (input, output, word) in cases {
        let run = scratch.rewrite(&[&input, &output], &["--mtu", "1500"]);
        assert_eq!(run.status.code(), Some(1), "{}", said(&run));
        assert!(said(&run).contains(word), "{}", said(&run));
    }
    assert!(!output.exists(), "an input that cannot be read leaves no output");
    if Path::new("/dev/full").exists() {
        let run = scratch.rewrite(&[&input, Path::new("/dev/full")], &["--mtu", "1500"]);
        assert_eq!(run.status.code(), Some(1), "{}", said(&run));
        assert!(said(&run).contains("/dev/full") && said(&run).contains("space"), "{}", said(&run));
        // Damaged input does not hide the error, even if all output was held until then.
        let held: Vec<_> = (0..8).map(|id| (1, udp(60_012, id, MORE_FRAGMENTS))).collect();
        let input = scratch.pcap("held.pcap", &held);
        fs::write(&input, [&fs::read(&input).unwrap()[..], &[0; 7]].concat()).unwrap();
        let run = scratch.rewrite(&[&input, Path::new("/dev/full")], &["--mtu", "65535"]);
        assert_eq!(run.status.code(), Some(1), "{}", said(&run));
    }
}

#[test]
fn a_damaged_input_gives_its_readable_part_and_the_offset() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(3_000, 1, 0)), (2, udp(3_000, 2, 0))]);
    let bytes = fs::read(&input).unwrap();
    fs::write(&input, &bytes[..bytes.len() - 100]).unwrap();
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "1500", "--json"]);
    assert_eq!(run.status.code(), Some(3));
    let message = said(&run);
    assert!(message.contains("byte 3,040") && message.contains("1 packet"), "{message}");
    assert_eq!(frames(&output).len(), 3);
    let report = json(&run);
    assert_eq!((&report["ended"]["how"], &report["ended"]["offset"]), (&"damaged".into(), &3_040.into()));
}

#[test]
fn a_dash_is_standard_input_and_output_and_the_report_goes_elsewhere() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(3_000, 1, 0))]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_wideload"))
        .args(["rewrite", "-", "-", "--mtu", "1500"])
        .stdin(File::open(&input).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    let run = child.wait_with_output().unwrap();
    let output = scratch.path("out.pcap");
    fs::write(&output, &run.stdout).unwrap();
    assert_eq!(frames(&output).len(), 3);
    assert!(said(&run).contains("payload: 2,980 in = 2,980 out + 0 retired"), "{}", said(&run));
}

#[test]
fn compressed_captures_are_read_and_written() {
    let scratch = Scratch::new();
    let plain = scratch.pcap("in.pcap", &[(1, udp(3_000, 1, 0)), (2, udp(9_000, 2, 0))]);
    let expected = scratch.path("expected.pcap");
    scratch.rewrite(&[&plain, &expected], &["--mtu", "1500"]);
    for end in ["gz", "zst"] {
        let squeezed = scratch.path(&format!("out.pcap.{end}"));
        let run = scratch.rewrite(&[&plain, &squeezed], &["--mtu", "1500"]);
        assert_eq!(run.status.code(), Some(0), "{}", said(&run));
        assert!(fs::metadata(&squeezed).unwrap().len() < fs::metadata(&expected).unwrap().len() / 2);
        let back = scratch.path("back.pcap");
        scratch.rewrite(&[&squeezed, &back], &["--mtu", "1500"]);
        assert_eq!(frames(&back), frames(&expected), "{end}");
    }
}

#[test]
fn the_same_input_and_seed_give_the_same_output() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(3_000, 1, DONT_FRAGMENT)), (2, udp(9_000, 2, 0))]);
    let outputs: Vec<_> = ["7", "7", "8"]
        .into_iter()
        .map(|seed| {
            let output = scratch.path(&format!("out{seed}.pcap"));
            scratch.rewrite(&[&input, &output], &["--mtu", "1500", "--seed", seed]);
            fs::read(output).unwrap()
        })
        .collect();
    assert_eq!(outputs[0], outputs[1]);
    assert_ne!(outputs[0], outputs[2], "identifiers come from the seed");
}

#[test]
fn every_counter_is_documented() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COUNTERS.md")).unwrap();
    let reasons = engine::Reason::ALL.iter().map(|it| (it.name(), it.what()));
    let events = engine::Event::ALL.iter().map(|it| (it.name(), it.what()));
    let came = gateway::stats::PortIn::ALL.iter().map(|it| (it.name(), it.what()));
    let went = gateway::stats::PortOut::ALL.iter().map(|it| (it.name(), it.what()));
    let guessed = gateway::stats::PlacementCounter::ALL.iter().map(|it| (it.name(), it.what()));
    let shared = gateway::stats::PeerCounter::ALL.iter().map(|it| (it.name(), it.what()));
    let lost = gateway::stats::HandoverCounter::ALL.iter().map(|it| (it.name(), it.what()));
    let of_ports = came.chain(went).chain(guessed).chain(shared).chain(lost);
    let counters: Vec<_> = reasons.chain(events).chain(of_ports).collect();
    for (name, what) in &counters {
        let row = format!("| `{name}` | {what} | ");
        let action = page.lines().find_map(|line| line.strip_prefix(row.as_str()));
        assert!(action.is_some_and(|action| action.len() > "None.".len()), "docs/COUNTERS.md lacks: {row}");
    }
    let (tables, _) = page.split_once("\n## Gauges\n").expect("the section after all counters");
    let rows = tables.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, counters.len(), "COUNTERS.md has rows for counters that are gone");
    let (_, renamed) = page.split_once("\n## Renamed since 0.1\n").expect("the last section");
    let renamed: Vec<_> = renamed.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(renamed, renamed_metrics());
}

/// The rows of the renamed metrics in docs/COUNTERS.md: the name in version 0.1, and the current name.
fn renamed_metrics() -> Vec<String> {
    use gateway::stats::{HandoverCounter, PeerCounter, PlacementCounter, PortIn, PortOut};
    // The former and the current name of the group, then those of the counter, then its unit.
    let mut renamed: Vec<([&str; 2], [&str; 2], &str)> = Vec::new();
    renamed.extend(
        engine::Event::ALL.iter().filter_map(|it| Some((["event"; 2], [it.former_name()?, it.name()], "times"))),
    );
    renamed.extend(
        PortIn::ALL.iter().filter_map(|it| Some((["port_in"; 2], [it.former_name()?, it.name()], it.unit()))),
    );
    renamed.extend(
        PortOut::ALL.iter().filter_map(|it| Some((["port_out"; 2], [it.former_name()?, it.name()], it.unit()))),
    );
    renamed.extend(
        PlacementCounter::ALL
            .iter()
            .map(|it| (["guess", "placement"], [it.former_name().unwrap_or(it.name()), it.name()], it.unit())),
    );
    renamed.extend(
        PeerCounter::ALL
            .iter()
            .map(|it| (["sibling", "peer"], [it.former_name().unwrap_or(it.name()), it.name()], it.unit())),
    );
    renamed.extend(
        HandoverCounter::ALL
            .iter()
            .map(|it| (["succession", "handover"], [it.former_name().unwrap_or(it.name()), it.name()], it.unit())),
    );
    let metric = |group: &str, name: &str, unit: &str| match unit {
        // In version 0.1, the counter `wires` was its own unit.
        unit if unit == "times" || name == "wires" || name.ends_with(unit) => {
            format!("wideload_{group}_{name}_total")
        }
        unit => format!("wideload_{group}_{name}_{unit}_total"),
    };
    let row = |([former_group, group], [former, name], unit): ([&str; 2], [&str; 2], &str)| {
        format!("| `{}` | `{}` |", metric(former_group, former, unit), metric(group, name, unit))
    };
    let gauge = "| `wideload_lent_buffers` | `wideload_pool_in_use_buffers` |".to_owned();
    renamed.into_iter().map(row).chain([gauge]).collect()
}

/// The limit: below 256 MiB for a capture of any size, even one with nothing but first fragments.
#[cfg(target_os = "linux")]
#[test]
fn memory_stays_bounded_for_a_capture_of_any_size() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wideload"))
        .args(["rewrite", "-", "-", "--mtu", "65535", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut writer = Writer::new(child.stdin.take().unwrap(), Compression::None).unwrap();
    writer.header(&pcap_header(Resolution::Nanoseconds, RAW)).unwrap();
    for number in 0..300_000u32 {
        let mut fragment = udp(1_500, number as u16, MORE_FRAGMENTS);
        // Each fragment has its own source, and comes a microsecond after the previous one.
        fragment[12..16].copy_from_slice(&(0x0A00_0000 + number).to_be_bytes());
        seal_ip(&mut fragment);
        writer.packet(0, Some(Time::from_nanos(u64::from(number) * 1_000)), &[&fragment[..20 + 1_480]]).unwrap();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    drop(writer.finish().unwrap());
    assert!(child.wait().unwrap().success());
    assert!((60_000..256 * 1_024).contains(&peak_kib), "{peak_kib} KiB at the peak");
}

#[test]
fn an_interrupt_ends_the_input_and_keeps_read_packets() {
    let scratch = Scratch::new();
    let output = scratch.path("out.pcap");
    let mut child = Command::new(env!("CARGO_BIN_EXE_wideload"))
        .args(["rewrite", "-", "--mtu", "1500"])
        .arg(&output)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut writer = Writer::new(child.stdin.take().unwrap(), Compression::None).unwrap();
    writer.header(&pcap_header(Resolution::Nanoseconds, RAW)).unwrap();
    let (mut written, mut interrupted) = (0u64, false);
    while child.try_wait().unwrap().is_none() {
        // The command checks for the signal now and then; it gets more input until it does.
        if writer.packet(0, Some(Time::from_nanos(written)), &[&udp(1_400, 1, 0)]).is_err() {
            break;
        }
        written += 1;
        if !interrupted && output.exists() && fs::metadata(&output).unwrap().len() > 0 {
            let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
            interrupted = kill.success();
        }
        assert!(written < 5_000_000, "it never looked up");
    }
    // The writer's remaining bytes go into a pipe without a reader.
    let _ = writer.finish();
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(130), "{}", said(&run));
    assert!(said(&run).contains("interrupted"), "{}", said(&run));
    let kept = frames(&output).len() as u64;
    assert!(kept > 0 && kept <= written, "{kept} of {written}");
}
