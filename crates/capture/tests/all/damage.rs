//! Damaged captures -> every complete record, and one error message about the damage.

use std::io;

use crate::samples::{self, Sample};
use wideload_capture::{ByteOrder, Compression, Error, Item, Reader, Resolution, Variant, Writer};

#[test]
fn a_truncated_file_gives_whole_records_and_the_offset() {
    for sample in samples::all() {
        let file = sample.bytes();
        for len in 0..=file.len() {
            let (parts, outcome) = samples::read(&file[..len]);
            let (whole, packets_before, end) = sample.whole(len);
            let place = format!("{} cut at {len}", sample.name);
            assert_eq!(parts.len(), whole, "{place}");
            assert!(parts.iter().zip(&sample.parts).all(|(found, made)| found.raw == made.raw), "{place}");
            match outcome {
                Ok(()) => assert!(end == len && len > 0, "{place}"),
                Err(Error::UnknownFormat { .. }) => assert!(len < 4, "{place}"),
                Err(Error::Damaged { offset, packets, why }) => {
                    assert!(end < len, "{place}");
                    assert_eq!((offset, packets), (end as u64, packets_before), "{place}");
                    let plural = if len - end == 1 { "" } else { "s" };
                    let start = format!("the file ends {} byte{plural} into a ", len - end);
                    assert!(why.replace(',', "").starts_with(&start), "{place}: {why}");
                }
                Err(Error::Io { .. }) => panic!("{place}: nothing failed but the file"),
                Err(error) => panic!("{place}: {error}"),
            }
        }
    }
}

#[test]
fn a_truncated_compressed_file_gives_whole_records_and_an_error() {
    let sample = samples::all().pop().unwrap();
    for compression in [Compression::Gzip, Compression::Zstd] {
        let mut writer = Writer::new(Vec::new(), compression).unwrap();
        writer.block(&sample.bytes()).unwrap();
        let packed = writer.finish().unwrap();
        for len in 4..packed.len() {
            let (parts, outcome) = samples::read(&packed[..len]);
            assert!(parts.iter().zip(&sample.parts).all(|(found, made)| found.raw == made.raw));
            match outcome {
                Err(Error::Damaged { offset, why, .. }) => {
                    let given: usize = parts.iter().map(|part| part.raw.len()).sum();
                    assert_eq!(offset, given as u64, "{why}");
                    assert!(why.contains("compression"), "{why}");
                }
                other => panic!("{compression:?} cut at {len}: {other:?}"),
            }
        }
    }
}

#[test]
fn only_zeros_may_follow_a_gzip_file() {
    let sample = samples::all().pop().unwrap();
    let whole = sample.bytes();
    // Two members, truncated within a record.
    let packed: Vec<Vec<u8>> = [&whole[..50], &whole[50..]]
        .map(|part| {
            let mut writer = Writer::new(Vec::new(), Compression::Gzip).unwrap();
            writer.block(part).unwrap();
            writer.finish().unwrap()
        })
        .into();
    let packed = packed.concat();
    for zeros in [0, 1, 7, 512, 300_000] {
        let file = [&packed[..], &vec![0; zeros]].concat();
        let (parts, outcome) = samples::read(&file[..]);
        assert!(outcome.is_ok(), "{zeros} zeros: {outcome:?}");
        assert_eq!(parts.len(), sample.parts.len(), "{zeros} zeros");
        let (parts, outcome) = samples::read(&[&file[..], b"x"].concat()[..]);
        assert!(matches!(outcome, Err(Error::Damaged { .. })), "{zeros} zeros and an x: {outcome:?}");
        assert_eq!(parts.len(), sample.parts.len(), "{zeros} zeros and an x");
    }
}

/// To repeat a failure, set CAPTURE_SEED to the printed seed.
#[test]
fn no_mutation_panics_or_hangs() {
    let mut samples: Vec<_> = samples::all().iter().map(Sample::bytes).collect();
    let plain_count = samples.len();
    for compression in [Compression::Gzip, Compression::Zstd] {
        let last = &samples[plain_count - 1];
        let mut writer = Writer::new(Vec::new(), compression).unwrap();
        writer.block(last).unwrap();
        samples.push(writer.finish().unwrap());
    }
    let given = std::env::var("CAPTURE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = given.map_or(0..60_000, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let _told = TellSeed(seed);
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let chosen = random.below(samples.len());
        let mut file = samples[chosen].clone();
        for _ in 0..=random.below(6) {
            random.mutate(&mut file);
        }
        let items = rewrite(&file);
        assert!(chosen >= plain_count || items <= file.len() / 12 + 2, "an item has at least 12 bytes");
    }
}

#[test]
fn errors_are_sentences() {
    let order = ByteOrder::Little;
    let pcap = samples::pcap_header(order, Resolution::Microseconds, Variant::Standard, 65_535, 1).raw;
    let record = samples::pcap_record(order, Variant::Standard, &samples::bytes(1514), 1514).raw;
    let section = [samples::section_header(order, -1).raw, samples::interface(order, 1, 0, b"").raw].concat();
    let packet = samples::enhanced(order, 0, 0, &samples::bytes(60), 60, b"").raw;
    let with = |bytes: &[u8], at: usize, value: u32| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let told = [
        (vec![], "the file is empty"),
        (vec![7; 3], "the file has 3 bytes, too few for a capture"),
        (b"snoop\0\0\0\0\0\0\x02".to_vec(), "a snoop capture; convert it with editcap -F pcapng IN OUT"),
        (b"BZh9".to_vec(), "a bzip2 file; unpack it with bunzip2"),
        (b"#!/bin/sh".to_vec(), "neither pcap nor pcapng, plain or in gzip or zstd"),
        (
            pcap[..7].to_vec(),
            "damaged at byte 0, after 0 packets: the file ends 7 bytes into a pcap header of 24 bytes",
        ),
        (
            [&pcap[..], &record, &record, &record[..37]].concat(),
            "damaged at byte 3,084, after 2 packets: \
             the file ends 37 bytes into a record with a claimed length of 1,514 bytes",
        ),
        (
            [&pcap[..], &with(&record, 8, u32::MAX)].concat(),
            "damaged at byte 24, after 0 packets: \
             a record with a claimed length of 4,294,967,295 bytes, too long for a packet",
        ),
        (
            [&section[..], &packet, &with(&packet, 8, 3)].concat(),
            "damaged at byte 140, after 1 packet: a packet of interface 3, but the section describes only 1 interface",
        ),
        (
            [&section[..], &packet, &with(&packet, 4, 90)].concat(),
            "damaged at byte 140, after 1 packet: a block with a claimed length of 90 bytes, not a multiple of 4",
        ),
        (
            [&section[..], &packet, &[0; 16]].concat(),
            "damaged at byte 140, after 1 packet: a block with a claimed length of 0 bytes, below the minimum of 12",
        ),
        (
            [&section[..], &with(&packet, 88, 96)].concat(),
            "damaged at byte 48, after 0 packets: a block whose length is 92 bytes at its start and 96 at its end",
        ),
        (
            [&section[..], &with(&packet, 20, 61)].concat(),
            "damaged at byte 48, after 0 packets: a packet of 61 bytes in a block of 92",
        ),
    ];
    for (file, sentence) in told {
        let (_, outcome) = samples::read(&file[..]);
        assert_eq!(outcome.unwrap_err().to_string(), sentence);
    }
}

#[test]
fn a_record_longer_than_its_snap_length_is_still_read() {
    let order = ByteOrder::Big;
    let header = samples::pcap_header(order, Resolution::Microseconds, Variant::Standard, 96, 1);
    let record = samples::pcap_record(order, Variant::Standard, &samples::bytes(300_000), 300_000);
    let file = [header.raw, record.raw.clone(), record.raw].concat();
    let (parts, outcome) = samples::read(&file[..]);
    assert!(outcome.is_ok() && parts.len() == 3);
}

/// Reads a file, and writes each item. Each packet is also written as a new packet. Returns the number of items.
fn rewrite(file: &[u8]) -> usize {
    let mut writer = Writer::new(io::sink(), Compression::None).unwrap();
    let mut items = 0;
    let Ok(mut reader) = Reader::new(file) else {
        return 0;
    };
    while let Ok(Some(item)) = reader.next() {
        items += 1;
        match item {
            Item::Header(raw) => writer.header(raw).unwrap(),
            Item::Interface(raw) => writer.interface(raw).unwrap(),
            Item::Block(raw) => writer.block(raw).unwrap(),
            Item::Packet(record) => {
                writer.copy(&record).unwrap();
                writer.packet(record.interface, record.time, &[record.data]).unwrap();
            }
        }
    }
    items
}

/// Prints the seed of the case that fails.
struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with CAPTURE_SEED={} cargo test -p wideload-capture damage", self.0);
        }
    }
}

/// Pseudo-random numbers from a seed (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    fn mutate(&mut self, file: &mut Vec<u8>) {
        let at = self.below(file.len().max(1));
        match self.below(6) {
            0 => file.truncate(at),
            1 => file.insert(at.min(file.len()), self.next() as u8),
            2 => drop(file.drain(at.min(file.len())..(at + self.below(40)).min(file.len()))),
            // Lengths are words, so replacing a word by 0, a small or a huge number finds more bugs than replacing
            // a byte.
            3 => {
                let word = [0, 1, 12, 0xff, 0x7fff_ffff, u32::MAX, 1 << 24, 1 << 25][self.below(8)];
                let word = if self.below(2) == 0 { word.to_le_bytes() } else { word.to_be_bytes() };
                let at = at & !3;
                if let Some(place) = file.get_mut(at..at + 4) {
                    place.copy_from_slice(&word);
                }
            }
            _ => {
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
        }
    }
}
