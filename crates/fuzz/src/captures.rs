//! A capture file -> a copy, whose items must read as in the original: time, link type, length and bytes.
//!
//! The target tests that reader and writer agree and never panic.

use capture::{Compression, Error, Item, Reader, Record, Writer};
use packet::Time;

/// Reads the input as a capture, copies its items to a second capture, and compares the two.
pub fn run(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let mut writer = Writer::new(Vec::new(), Compression::None).expect("memory takes all");
    let mut packets = Vec::new();
    for _ in 0..ITEM_COUNT_MAX {
        match reader.next() {
            Ok(Some(item)) => {
                if copy(&mut writer, &item, &mut packets).is_err() {
                    return;
                }
            }
            Ok(None) | Err(_) => break,
        }
    }
    assert!(reader.bytes_read() <= bytes.len() as u64, "it reads no more than there is");
    let copied = writer.finish().expect("memory takes all");
    if copied.is_empty() {
        return;
    }
    let mut again = Reader::new(&copied[..]).expect("what was written is a capture");
    let mut met = Vec::new();
    while let Some(item) = again.next().expect("what was written is read to its end") {
        if let Item::Packet(record) = item {
            met.push(Met::of(&record));
        }
    }
    assert_eq!(packets.len(), met.len(), "as many packets");
    for (packet, met) in packets.into_iter().zip(met) {
        // A simple packet block has no time; written as an enhanced one, it has time 0.
        let time = if packet.time.is_none() && met.time == Some(Time::ZERO) { met.time } else { packet.time };
        assert_eq!(Met { time, ..packet }, met, "the same packets, in their order");
    }
}

/// The fields of a record that must survive the copy.
#[derive(Debug, PartialEq)]
struct Met {
    time: Option<Time>,
    pcap_link_type: u32,
    data: Vec<u8>,
    original_len: u32,
}

impl Met {
    fn of(record: &Record<'_>) -> Met {
        let Record { time, pcap_link_type, original_len, .. } = *record;
        Met { time, pcap_link_type, data: record.data.to_vec(), original_len }
    }
}

fn copy(writer: &mut Writer<Vec<u8>>, item: &Item<'_>, packets: &mut Vec<Met>) -> Result<(), Error> {
    match item {
        Item::Header(raw) => writer.header(raw),
        Item::Interface(raw) => writer.interface(raw),
        Item::Block(raw) => writer.block(raw),
        Item::Packet(record) => {
            packets.push(Met::of(record));
            writer.copy(record)
        }
    }
}

/// Maximum number of items read from one input, because a few compressed bytes may expand to many.
const ITEM_COUNT_MAX: usize = 2_000;
