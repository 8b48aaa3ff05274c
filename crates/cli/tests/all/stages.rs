//! The stages of `wideload rewrite` as a user sees them: each one alone, all together, and their messages.

use crate::scratch::{DONT_FRAGMENT, RAW, Scratch, cut, documented, fate, frames, json, said, seal_ip, udp};
use capture::{Compression, Item, Reader, Resolution, Writer, pcap_header};
use packet::Time;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use testkit::{ReadPacket, tcp};

#[test]
fn segments_grow_and_come_back_byte_for_byte() {
    let scratch = Scratch::new();
    let narrow = bulk(&scratch, 24, 10);
    for (mtu, expected) in [("9000", 4), ("65535", 1)] {
        let (wide, back) = (scratch.path("wide.pcap"), scratch.path("back.pcap"));
        let run = scratch.rewrite(&[&narrow, &wide], &["--mtu", mtu, "--json"]);
        assert_eq!(run.status.code(), Some(0), "{}", said(&run));
        assert_eq!(frames(&wide).len(), expected, "at {mtu}");
        let report = json(&run);
        assert_eq!((&report["runs"]["segments"], &report["runs"]["count"]), (&24.into(), &expected.into()));
        assert_eq!(report["payload"]["headers_saved"], (24 - expected) * 32);
        scratch.rewrite(&[&wide, &back], &["--mtu", "1500"]);
        let packets = |path: &Path| frames(path).into_iter().map(|(_, packet)| packet).collect::<Vec<_>>();
        assert_eq!(packets(&back), packets(&narrow), "at {mtu}");
    }
}

#[test]
fn the_table_says_which_rule_ended_runs_and_how_long_they_were() {
    let scratch = Scratch::new();
    let narrow = bulk(&scratch, 13, 10);
    let run = scratch.rewrite(&[&narrow, &scratch.path("wide.pcap")], &["--mtu", "9000"]);
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(table.contains("TCP: 13 segments in 3 runs, mean 4.3: run_full 2, run_at_end 1"), "{table}");
    assert!(table.contains("+ 320 of TCP headers saved"), "{table}");
    let back = scratch.rewrite(&[&scratch.path("wide.pcap"), &scratch.path("back.pcap")], &["--mtu", "1500"]);
    let table = String::from_utf8_lossy(&back.stdout).into_owned();
    assert!(table.contains("- 320 of TCP headers added"), "{table}");
}

#[test]
fn each_stage_works_alone_and_can_be_left_out() {
    let scratch = Scratch::new();
    let datagram = udp(3_000, 7, 0);
    let mut records: Vec<_> = (0..6).map(|index| (u64::from(index) * 1_000, segment(index, 1_448))).collect();
    records.extend(cut(&datagram, 1_480).into_iter().enumerate().map(|(index, it)| (10_000 + index as u64, it)));
    records.push((20_000, udp(9_500, 8, 0)));
    records.push((30_000, segment(100, 12_000)));
    let input = scratch.pcap("in.pcap", &records);
    let lens = |args: &[&str]| {
        let output = scratch.path("out.pcap");
        let run = scratch.rewrite(&[&input, &output], args);
        assert_eq!(run.status.code(), Some(0), "{args:?}: {}", said(&run));
        let mut lens: Vec<_> = frames(&output).iter().map(|(_, packet)| packet.len()).collect();
        lens.sort_unstable();
        lens
    };
    let narrow = [1_500; 6];
    let in_fragments = [1_500, 1_500, 40];
    let sorted = |parts: &[&[usize]]| {
        let mut lens = parts.concat();
        lens.sort_unstable();
        lens
    };
    let merged = 52 + 6 * 1_448;
    let (segments, fragments) = ([9_000, 52 + 12_000 - 8_948], [8_996, 524]);
    assert_eq!(lens(&["--mtu", "9000"]), sorted(&[&[merged, 3_000], &segments, &fragments]));
    assert_eq!(lens(&["--mtu", "9000", "--reassemble"]), sorted(&[&narrow, &[3_000, 9_500, 12_052]]));
    assert_eq!(
        lens(&["--mtu", "9000", "--coalesce", "resize"]),
        sorted(&[&[merged, 9_500, 12_052], &in_fragments])
    );
    assert_eq!(
        lens(&["--mtu", "9000", "--coalesce", "reversible"]),
        sorted(&[&[merged, 9_500, 12_052], &in_fragments])
    );
    assert_eq!(lens(&["--mtu", "9000", "--segment"]), sorted(&[&narrow, &in_fragments, &[9_500], &segments]));
    let cut_segment = [8_996, 12_052 - 8_976];
    assert_eq!(lens(&["--mtu", "9000", "--fragment"]), sorted(&[&narrow, &in_fragments, &fragments, &cut_segment]));
    let off = ["--mtu", "9000", "--off", "coalesce,reassemble,fragment"];
    assert_eq!(lens(&off), sorted(&[&narrow, &in_fragments, &[9_500], &segments]));
    assert_eq!(
        lens(&["--mtu", "9000", "--as", "border"]),
        sorted(&[&[merged], &in_fragments, &fragments, &segments])
    );
    let router = ["--mtu", "9000", "--as", "router", "--fragment-policy", "merge"];
    assert_eq!(lens(&router), sorted(&[&narrow, &[3_000], &fragments, &[576]]), "the sender of TCP is told");
}

#[test]
fn a_border_segments_tcp_with_df_and_refuses_other_df_packets() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, segment(0, 8_948)), (2, udp(3_000, 7, DONT_FRAGMENT))]);
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&input, &output], &["--mtu", "1500", "--as", "border", "--json"]);
    let out = frames(&output);
    let tcp: Vec<_> = out.iter().filter(|(_, packet)| packet[9] == 6).collect();
    assert_eq!(tcp.len(), 7);
    assert!(tcp.iter().all(|(_, packet)| packet[6] & 0x40 != 0 && packet.len() <= 1_500), "DF is kept (law 4)");
    assert!(tcp.iter().all(|(_, packet)| checksum_is_right(packet)));
    assert_eq!(out.iter().filter(|(_, packet)| packet[9] == 1).count(), 1, "the sender of the datagram is told");
    assert_eq!(fate(&json(&run), "retired", "too_big")["packets"], 1);
}

// R010, R031: transit reassembly only with its option.
#[test]
fn a_router_changes_no_sizes_by_default() {
    let scratch = Scratch::new();
    let narrow = bulk(&scratch, 24, 10);
    let output = scratch.path("out.pcap");
    scratch.rewrite(&[&narrow, &output], &["--mtu", "9000", "--as", "router"]);
    assert_eq!(fs::read(&output).unwrap(), fs::read(&narrow).unwrap());
}

#[test]
fn a_wrong_checksum_stays_wrong_however_its_packet_leaves() {
    let scratch = Scratch::new();
    let mut damaged = segment(0, 8_948);
    damaged[5_000] ^= 0x40;
    let records = [(1, damaged.clone()), (2, segment(1, 8_948))];
    let input = scratch.pcap("in.pcap", &records);
    let output = scratch.path("out.pcap");
    scratch.rewrite(&[&input, &output], &["--mtu", "1500"]);
    let right: Vec<_> = frames(&output).iter().map(|(_, packet)| checksum_is_right(packet)).collect();
    assert_eq!(right, [[false; 7], [true; 7]].concat());
    scratch.rewrite(&[&input, &output], &["--mtu", "65535"]);
    assert_eq!(frames(&output)[0].1, damaged, "it joins nothing");
}

// The flow of a truncated packet is unknown.
#[test]
fn malformed_packets_overtake_no_segment() {
    let scratch = Scratch::new();
    let mut damaged = segment(1, 100);
    damaged[10] ^= 1;
    let records: Vec<_> =
        [segment(0, 100), damaged.clone(), segment(2, 100)].into_iter().map(|it| (1, it)).collect();
    let output = scratch.path("out.pcap");
    let run = scratch.rewrite(&[&scratch.pcap("in.pcap", &records), &output], &["--mtu", "9000", "--json"]);
    assert_eq!(fate(&json(&run), "passed", "bad_header_sum")["packets"], 1);
    assert_eq!(frames(&output), records);
}

#[test]
fn a_held_packet_that_is_not_merged_keeps_its_comment() {
    let scratch = Scratch::new();
    let path = scratch.path("in.pcapng");
    let mut writer = Writer::new(File::create(&path).unwrap(), Compression::None).unwrap();
    let section = [0x0A0D0D0Au32, 28, 0x1A2B3C4D, 1, u32::MAX, u32::MAX, 28];
    writer.header(&section.map(u32::to_le_bytes).concat()).unwrap();
    writer.interface(&[1u32, 20, u32::from(RAW), 262_144, 20].map(u32::to_le_bytes).concat()).unwrap();
    // opt_comment, 5 bytes of text, padding, opt_endofopt.
    let comment = [&[1, 0, 5, 0][..], b"hello", &[0; 3], &[0; 4]].concat();
    for (time, packet, options) in [(1_000, segment(0, 500), &comment[..]), (900_000_000, udp(100, 1, 0), &[])] {
        writer.packet_with_options(0, Some(Time::from_nanos(time)), &[&packet], options).unwrap();
    }
    writer.finish().unwrap();
    let output = scratch.path("out.pcapng");
    let run = scratch.rewrite(&[&path, &output], &["--mtu", "9000"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let mut reader = Reader::new(File::open(&output).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Packet(record) = item {
            seen.push((record.data.to_vec(), record.options.to_vec()));
        }
    }
    assert_eq!(seen, [(segment(0, 500), comment), (udp(100, 1, 0), Vec::new())]);
}

// Packets that a later packet evicts leave with their options, and so do the packets that remain held.
#[test]
fn two_held_packets_keep_their_comments_and_padding() {
    let scratch = Scratch::new();
    let path = scratch.path("in.pcapng");
    let mut writer = Writer::new(File::create(&path).unwrap(), Compression::None).unwrap();
    let section = [0x0A0D0D0Au32, 28, 0x1A2B3C4D, 1, u32::MAX, u32::MAX, 28];
    writer.header(&section.map(u32::to_le_bytes).concat()).unwrap();
    writer.interface(&[1u32, 20, 1, 262_144, 20].map(u32::to_le_bytes).concat()).unwrap();
    let ethernet = [&[2; 12][..], &[8, 0]].concat();
    let mut expected = Vec::new();
    // A changed header ends a run, so each packet flushes the previous one.
    for number in 0..3u8 {
        let mut packet = segment(u32::from(number), 2);
        packet[8] -= number;
        seal_ip(&mut packet);
        let comment = [&[1, 0, 1, 0, b'0' + number][..], &[0; 3], &[0; 4]].concat();
        let frame = [&ethernet[..], &packet, &[0; 10]].concat();
        let time = Time::from_nanos(1_000 * u64::from(number));
        writer.packet_with_options(0, Some(time), &[&frame], &comment).unwrap();
        expected.push((frame, comment));
    }
    writer.finish().unwrap();
    let output = scratch.path("out.pcapng");
    let run = scratch.rewrite(&[&path, &output], &["--mtu", "9000", "--json"]);
    assert_eq!(json(&run)["written"]["bytes"], expected.iter().map(|(frame, _)| frame.len()).sum::<usize>());
    let mut reader = Reader::new(File::open(&output).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Packet(record) = item {
            seen.push((record.data.to_vec(), record.options.to_vec()));
        }
    }
    assert_eq!(seen, expected);
}

// No router clears DF, and none makes a packet with DF longer than its sender made it (rel:C8).
#[test]
fn a_router_keeps_df_fragments_unchanged() {
    let scratch = Scratch::new();
    let mut in_fragments = cut(&udp(4_000, 7, 0), 1_480);
    for piece in &mut in_fragments {
        piece[6] |= 0x40;
        seal_ip(piece);
    }
    let records: Vec<_> = in_fragments.iter().map(|piece| (1, piece.clone())).collect();
    let input = scratch.pcap("in.pcap", &records);
    let output = scratch.path("out.pcap");
    for how in ["merge", "reassemble-hop"] {
        for mtu in ["1500", "9000"] {
            let run =
                scratch.rewrite(&[&input, &output], &["--mtu", mtu, "--as", "router", "--fragment-policy", how]);
            assert_eq!(run.status.code(), Some(0), "{}", said(&run));
            assert_eq!(frames(&output), records, "{how} at {mtu}");
        }
    }
}

#[test]
fn packets_that_stay_too_long_are_reported() {
    let scratch = Scratch::new();
    let input = scratch.pcap("in.pcap", &[(1, udp(3_000, 7, 0))]);
    let run = scratch.rewrite(&[&input, &scratch.path("out.pcap")], &["--mtu", "1500", "--reassemble"]);
    assert!(
        said(&run).contains("longer than 1,500 bytes: 1; ") && said(&run).contains("--fragment"),
        "{}",
        said(&run)
    );
}

#[test]
fn hold_times_and_exemptions_are_obeyed() {
    let scratch = Scratch::new();
    // Five milliseconds apart: longer than a live coalescer's hold time.
    let slow = bulk(&scratch, 10, 5_000);
    let output = scratch.path("out.pcap");
    let count = |args: &[&str]| {
        let run = scratch.rewrite(&[&slow, &output], args);
        assert_eq!(run.status.code(), Some(0), "{}", said(&run));
        frames(&output).len()
    };
    assert_eq!(count(&["--mtu", "65535"]), 10);
    assert!(count(&["--mtu", "65535", "--hold", "0.006"]) < 10);
    for exempt in ["192.0.2.0/24", ":9", "192.0.2.2:9", "192.0.2.1"] {
        assert_eq!(count(&["--mtu", "65535", "--hold", "0.006", "--exempt", exempt]), 10, "{exempt}");
    }
    assert!(count(&["--mtu", "65535", "--hold", "0.006", "--exempt", "192.0.2.2:22,[2001:db8::]/32:9"]) < 10);
}

#[test]
fn nonsensical_arguments_are_refused_with_a_remedy() {
    let scratch = Scratch::new();
    let input = bulk(&scratch, 1, 1);
    let output = scratch.path("out.pcap");
    for (args, words) in [
        (&["--hold", "0"][..], "above 0"),
        (&["--hold", "11"], "at most 10"),
        (&["--hold", "1", "--segment"], "add --coalesce"),
        (&["--exempt", ":22", "--off", "coalesce"], "add --coalesce"),
        (&["--exempt", "22"], "such as 192.0.2.0/24"),
        (&["--exempt", ":70000"], "from 0 to 65535"),
        (&["--exempt", ":"], "such as 192.0.2.0/24"),
        (&["--exempt", "[::1]"], "such as 192.0.2.0/24"),
        (&["--fragment-policy-for", "192.0.2.0/24", "--as", "border"], "--fragment-policy merge"),
        (&["--fragment-policy-for", "192.0.2.1/24", "--fragment-policy", "reassemble-hop"], "192.0.2.0/24"),
        (&["--reassemble", "--fragment-policy", "reassemble-hop"], "remove one of them"),
        (&["--as", "router", "--fragment-policy", "merge", "--timeout", "60"], "at most 0.5"),
        (&["--as", "host", "--fragment-policy", "merge"], "--off reassemble"),
        (&["--as", "border", "--segment-policy", "fragment"], "use --as host"),
        (&["--segment", "--segment-policy", "dynamic"], "add --fragment"),
        (&["--off", "everything"], "possible values"),
    ] {
        let run = scratch.rewrite(&[&input, &output], &[&["--mtu", "9000"], args].concat());
        assert_eq!(run.status.code(), Some(2), "{args:?}");
        assert!(said(&run).contains(words), "{args:?}: {}", said(&run));
    }
}

#[test]
fn segments_above_the_mtu_leave_in_fragments_if_the_policy_allows_it() {
    let scratch = Scratch::new();
    let wide = scratch.pcap("wide.pcap", &[(0, segment(0, 8_948)), (1_000, segment(1, 8_948))]);
    let [narrow, back] = ["narrow.pcap", "back.pcap"].map(|name| scratch.path(name));
    let packets = |path: &Path| frames(path).into_iter().map(|(_, packet)| packet).collect::<Vec<_>>();
    let run = |args: &[&str]| {
        let run = scratch.rewrite(&[&wide, &narrow], &[&["--mtu", "1500", "--json"], args].concat());
        assert_eq!(run.status.code(), Some(0), "{args:?}: {}", said(&run));
        fate(&json(&run), "done", "super_fragmented")["packets"].as_u64().unwrap_or(0)
    };
    for args in [&[][..], &["--segment-policy", "segment"], &["--segment-policy", "fragment", "--exempt", ":9"]] {
        assert_eq!(run(args), 0, "{args:?}");
        assert!(packets(&narrow).iter().all(|packet| ReadPacket::of(packet).fragment.is_none()), "{args:?}");
    }
    // Without a loss, all policies but those for a LAN keep the host's segments. Those make shorter ones at first.
    for (policy, expected) in [("fragment", 2), ("dynamic", 2), ("wan", 2), ("lan", 6), ("lan-slow", 6)] {
        assert_eq!(run(&["--segment-policy", policy]), expected, "{policy}");
        scratch.rewrite(&[&narrow, &back], &["--mtu", "9000"]);
        let payload = |path: &Path| packets(path).iter().flat_map(|it| it[52..].to_vec()).collect::<Vec<_>>();
        assert_eq!(payload(&back), payload(&wide), "{policy}");
    }
}

/// A capture of full segments of one flow, `micros` microseconds apart.
fn bulk(scratch: &Scratch, count: u32, micros: u64) -> PathBuf {
    let path = scratch.path("bulk.pcap");
    let mut writer = Writer::new(File::create(&path).unwrap(), Compression::None).unwrap();
    writer.header(&pcap_header(Resolution::Nanoseconds, RAW)).unwrap();
    for index in 0..count {
        let time = Time::from_nanos(1 + u64::from(index) * micros * 1_000);
        writer.packet(0, Some(time), &[&segment(index, 1_448)]).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// The packet with the segment of this index, each of `len` bytes, with timestamps; IDs rise, DF is set.
fn segment(index: u32, len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (52..52 + len).map(|at| (at % 251) as u8).collect();
    let seq = (index * len as u32).wrapping_add(0xFFFF_F000);
    documented(tcp(4)).ports(4_096, 9).id(index & 0xFFFF).seq(seq).stamped(5, 6).payload(payload).bytes()
}

fn checksum_is_right(packet: &[u8]) -> bool {
    ReadPacket::of(packet).sum_is_right
}
