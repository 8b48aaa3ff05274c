//! A file in: what is read of it is written again and read the same.

use capture::{Compression, Error, Item, Reader, Writer};

/// Reads the bytes as a capture, copies what is in it, and reads the copy.
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
            met.push((record.data.to_vec(), record.original_len));
        }
    }
    assert_eq!(packets, met, "the same packets, in their order");
}

fn copy(writer: &mut Writer<Vec<u8>>, item: &Item<'_>, packets: &mut Vec<(Vec<u8>, u32)>) -> Result<(), Error> {
    match item {
        Item::Header(raw) => writer.header(raw),
        Item::Interface(raw) => writer.interface(raw),
        Item::Block(raw) => writer.block(raw),
        Item::Packet(record) => {
            packets.push((record.data.to_vec(), record.original_len));
            writer.copy(record)
        }
    }
}

/// A file of a few bytes may spell out many.
const ITEM_COUNT_MAX: usize = 2_000;
