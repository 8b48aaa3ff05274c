//! Captures from many tools -> the packet counts that other tools report for them.
//!
//! The captures are not part of the project. Without these captures, the test prints a message and tests nothing.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::samples::{self, Part};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapBlockOwned, PcapError};
use wideload_capture::{ByteOrder, Compression, Error, Item, Reader, Writer};

#[test]
fn captures_of_many_tools_are_read_whole_and_copied_byte_for_byte() {
    let Some((folder, index)) = corpus() else { return };
    let mut lines = index.lines();
    let columns: HashMap<_, _> = lines.next().unwrap().split('\t').zip(0..).collect();
    let mut read = 0;
    for row in lines.map(|line| line.split('\t').collect::<Vec<_>>()) {
        let cell = |name| row[columns[name]];
        let (name, format) = (cell("file"), cell("format"));
        let file = fs::read(folder.join(name)).unwrap();
        if format == "snoop" {
            let error = Reader::new(&file[..]).err().unwrap().to_string();
            assert!(error.starts_with("a snoop capture"), "{name}: {error}");
            continue;
        }
        let (packets, outcome) = check_copy(name, &file);
        assert_eq!(packets.to_string(), cell("packets"), "{name}");
        assert_eq!(outcome.is_err(), format.contains('['), "{name}: {outcome:?}");
        assert!(matches!(outcome, Ok(()) | Err(Error::Damaged { .. })), "{name}: {outcome:?}");
        read += 1;
    }
    assert!(read > 0, "the index names captures");
}

#[test]
fn packets_are_those_that_another_reader_finds() {
    let Some((folder, index)) = corpus() else { return };
    for name in index.lines().skip(1).filter_map(|line| line.split('\t').next()) {
        let file = fs::read(folder.join(name)).unwrap();
        let Some(theirs) = packets_by_pcap_parser(&file) else { continue };
        let mut ours = Vec::new();
        let mut reader = Reader::new(&file[..]).unwrap();
        while let Ok(Some(item)) = reader.next() {
            if let Item::Packet(record) = item {
                ours.push((record.data.to_vec(), record.original_len));
            }
        }
        assert!(ours == theirs, "{name}: {} packets here, {} there", ours.len(), theirs.len());
    }
}

/// Copies a capture and compares the copy with the original, up to any damage. The expected copy includes the
/// changes that a writer makes. Returns the number of packets and the outcome of reading.
fn check_copy(name: &str, file: &[u8]) -> (u64, Result<(), Error>) {
    let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
    let mut reader = Reader::new(file).unwrap();
    let mut expected = Vec::new();
    let (mut packets, mut at) = (0, 0);
    let mut order = ByteOrder::Little;
    let mut raised = Vec::new();
    let outcome = loop {
        let item = match reader.next() {
            Ok(Some(item)) => item,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let mut raw = Part::from(&item).raw;
        assert_eq!(raw, file[at..][..raw.len()], "{name}: raw bytes are those of the file");
        let offset = at as u64;
        at += raw.len();
        match item {
            Item::Header(given) => {
                writer.header(given).unwrap();
                raised.clear();
                order = if raw[0] == 0xa1 || raw[8] == 0x1a { ByteOrder::Big } else { ByteOrder::Little };
                match raw[0] {
                    0x0a => raw[16..24].fill(0xff),
                    _ => _ = raise(order, &mut raw[16..20]),
                }
            }
            Item::Interface(given) => {
                writer.interface(given).unwrap();
                raised.push(raise(order, &mut raw[12..16]));
            }
            Item::Block(given) => writer.block(given).unwrap(),
            Item::Packet(record) => {
                packets += 1;
                assert_eq!((record.number, record.offset), (packets, offset), "{name}");
                writer.copy(&record).unwrap();
                let is_cut = record.data.len() < record.original_len as usize;
                if is_cut && raised.first() == Some(&true) && raw.starts_with(&samples::u32(order, 3)) {
                    raw = samples::enhanced(order, 0, 0, record.data, record.original_len, b"").raw;
                }
            }
        }
        expected.extend(raw);
    };
    let end = match &outcome {
        Err(Error::Damaged { offset, .. }) => *offset as usize,
        _ => file.len(),
    };
    assert_eq!(at, end, "{name}: everything in front of the damage is given");
    assert!(writer.finish().unwrap() == expected, "{name}: the copy is the original");
    (packets, outcome)
}

/// Raises a snap length that is too small for wide packets. Returns whether the snap length was raised.
fn raise(order: ByteOrder, field: &mut [u8]) -> bool {
    let bytes = field.try_into().unwrap();
    let snap_len = match order {
        ByteOrder::Little => u32::from_le_bytes(bytes),
        ByteOrder::Big => u32::from_be_bytes(bytes),
    };
    let is_small = (1..262_144).contains(&snap_len);
    if is_small {
        field.copy_from_slice(&samples::u32(order, 262_144));
    }
    is_small
}

/// Returns every packet that pcap-parser's own readers return; `None` for an unknown format.
fn packets_by_pcap_parser(file: &[u8]) -> Option<Vec<(Vec<u8>, u32)>> {
    // Room for the whole file, so that one refill reads it and a second "incomplete" is its end.
    let mut reader = pcap_parser::create_reader(file.len() + 1024, file).ok()?;
    let mut packets = Vec::new();
    let mut refilled = false;
    loop {
        match reader.next() {
            Ok((len, block)) => {
                match block {
                    PcapBlockOwned::Legacy(record) => packets.push((record.data.to_vec(), record.origlen)),
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        packets.push((packet.packet_data().to_vec(), packet.origlen));
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                        packets.push((packet.packet_data().to_vec(), packet.origlen));
                    }
                    _ => {}
                }
                reader.consume(len);
            }
            Err(PcapError::Incomplete(_)) if !refilled => {
                refilled = true;
                reader.refill().unwrap();
            }
            Err(_) => return Some(packets),
        }
    }
}

/// Returns the folder of captures and the text of its index. Without an index, writes a message to standard error.
fn corpus() -> Option<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let index = fs::read_to_string(folder.join("index.tsv"));
    if index.is_err() {
        // Not eprintln!, which the test harness suppresses for a passing test.
        let missing = format!("skipped: needs captures and their index.tsv in {}\n", folder.display());
        std::io::stderr().write_all(missing.as_bytes()).expect("standard error takes a line");
    }
    Some((folder, index.ok()?))
}
