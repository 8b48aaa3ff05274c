//! Captures -> the same captures: reading, copying and writing keep every byte.

use std::io::{self, Read, Write};

use crate::samples::{self, Kind, ORDERS, PCAP_KINDS, Part, Sample};
use packet::{LinkType, Time};
use wideload_capture::{ByteOrder, Compression, Error, Format, Item, Reader, Resolution, Variant, Writer};

#[test]
fn a_copied_capture_is_the_same_byte_for_byte() {
    for sample in samples::all() {
        let (copy, outcome) = copy(&sample.bytes()[..], Compression::None);
        outcome.unwrap();
        assert_eq!(copy, sample.bytes(), "{}", sample.name);
    }
}

#[test]
fn every_part_of_a_file_is_found() {
    for sample in samples::all() {
        let (parts, outcome) = samples::read(&sample.bytes()[..]);
        outcome.unwrap();
        let kinds = |parts: &[Part]| parts.iter().map(|part| (part.kind, part.raw.clone())).collect::<Vec<_>>();
        assert_eq!(kinds(&parts), kinds(&sample.parts), "{}", sample.name);
    }
}

#[test]
fn new_packets_come_back_in_every_format_and_compression() {
    let compressions = [Compression::None, Compression::Gzip, Compression::Zstd];
    for (start, resolution) in starts() {
        for compression in compressions {
            let written = packets(resolution);
            let mut writer = Writer::new(Vec::new(), compression).unwrap();
            write_start(&mut writer, &start);
            for (time, data) in &written {
                let (front, back) = data.split_at(data.len() / 3);
                writer.packet(0, Some(*time), &[front, &[], back]).unwrap();
            }
            let len = writer.bytes_written();
            let file = writer.finish().unwrap();
            assert!(compression != Compression::None || file.len() as u64 == len);

            let mut reader = Reader::new(&file[..]).unwrap();
            let mut offset = 0;
            let mut number = 0;
            while let Some(item) = reader.next().unwrap() {
                if let Item::Packet(record) = item {
                    let (time, data) = &written[number];
                    number += 1;
                    assert_eq!((record.number, record.offset), (number as u64, offset));
                    assert_eq!((record.time, record.original_len), (Some(*time), data.len() as u32));
                    assert!(record.data == data, "packet {number} of {}", start.name);
                    assert_eq!(record.link_type, Some(LinkType::Ethernet));
                }
                offset += Part::from(&item).raw.len() as u64;
            }
            assert_eq!((number, offset), (written.len(), len), "{}", start.name);
            assert_eq!(reader.bytes_read(), file.len() as u64);
        }
    }
}

#[test]
fn a_new_packet_takes_the_modified_header_with_its_extra_bytes_zero() {
    for order in ORDERS {
        let header = samples::pcap_header(order, Resolution::Microseconds, Variant::Modified, 0, 1);
        let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
        writer.header(&header.raw).unwrap();
        writer.packet(0, None, &[b"abc"]).unwrap();
        let file = writer.finish().unwrap();
        let lens = [samples::u32(order, 3), samples::u32(order, 3)].concat();
        assert_eq!(file[24..], [&[0; 8][..], &lens, &[0; 8], b"abc"].concat());
    }
}

#[test]
fn the_format_is_detected() {
    for order in ORDERS {
        for (resolution, variant) in PCAP_KINDS {
            let file = samples::pcap_header(order, resolution, variant, 0, 1).raw;
            let (parts, outcome) = samples::read(&file[..]);
            assert!(outcome.is_ok() && parts.len() == 1, "a file header alone is a capture of no packets");
            assert_eq!(Reader::new(&file[..]).unwrap().format(), Format::Pcap { order, resolution, variant });
        }
        let file = samples::section_header(order, -1).raw;
        assert_eq!(Reader::new(&file[..]).unwrap().format(), Format::Pcapng);
    }
}

#[test]
fn each_section_has_its_own_byte_order_and_interfaces() {
    let sample = samples::all().pop().unwrap();
    let file = sample.bytes();
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Packet(record) = item {
            found.push((record.interface, record.pcap_link_type, record.time.map(Time::nanos), record.data.len()));
        }
    }
    let one = [
        (0, 1, Some(0x0005_1234_5678_9abc * 1000), 61),
        (0, 1, None, 5),
        (1, 113, Some(1_012_500_000_000), 1),
        (1, 113, Some(1_001_000_000_000), 42),
        (1, 113, Some(1_000_000_000_000), 0),
    ];
    assert_eq!(found, [one; 4].concat());
}

#[test]
fn a_new_packet_uses_its_interfaces_time_units() {
    for order in ORDERS {
        let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
        write_start(&mut writer, &Sample { name: String::new(), parts: samples::section(order)[..3].to_vec() });
        let time = Time::from_nanos(1_012_500_000_000);
        writer.packet(1, Some(time), &[&samples::bytes(7)]).unwrap();
        let file = writer.finish().unwrap();
        let expected = samples::enhanced(order, 1, 12 << 20 | 1 << 19, &samples::bytes(7), 7, b"").raw;
        assert!(file.ends_with(&expected));
    }
}

#[test]
fn only_a_snap_length_that_is_too_small_is_raised() {
    for (before, after) in [(0, 0), (1, 262_144), (65_535, 262_144), (262_144, 262_144), (u32::MAX, u32::MAX)] {
        for order in ORDERS {
            let pcap = |len| vec![samples::pcap_header(order, Resolution::Microseconds, Variant::Standard, len, 1)];
            let pcapng = |len| {
                let comment = samples::option(order, 1, b"kept");
                vec![samples::section_header(order, -1), samples::interface(order, 1, len, &comment)]
            };
            for (given, expected) in [(pcap(before), pcap(after)), (pcapng(before), pcapng(after))] {
                let [given, expected] = [given, expected].map(|parts| Sample { name: String::new(), parts });
                assert_eq!(copy(&given.bytes()[..], Compression::None).0, expected.bytes());
            }
        }
    }
}

#[test]
fn a_truncated_simple_packet_stays_readable_under_a_raised_snap_length() {
    for order in ORDERS {
        let start = [samples::section_header(order, -1), samples::interface(order, 1, 96, b"")];
        let whole = samples::simple(order, &samples::bytes(60), 60);
        let cut = samples::simple(order, &samples::bytes(96), 1514);
        let parts = [&start[..], &[whole.clone(), cut, whole.clone()]].concat();
        let file = Sample { name: String::new(), parts }.bytes();

        let (copy, outcome) = copy(&file[..], Compression::None);
        outcome.unwrap();
        let (parts, outcome) = samples::read(&copy[..]);
        outcome.unwrap();
        assert_eq!((&parts[2].raw, &parts[4].raw), (&whole.raw, &whole.raw));
        let mut reader = Reader::new(&copy[..]).unwrap();
        let mut found = Vec::new();
        while let Some(item) = reader.next().unwrap() {
            if let Item::Packet(record) = item {
                found.push((record.data.to_vec(), record.original_len));
            }
        }
        let small = (samples::bytes(60), 60);
        assert_eq!(found, [small.clone(), (samples::bytes(96), 1514), small]);
    }
}

#[test]
fn a_rewritten_section_has_no_length() {
    for order in ORDERS {
        let given = samples::section_header(order, 4711).raw;
        assert_eq!(copy(&given[..], Compression::None).0, samples::section_header(order, -1).raw);
    }
}

#[test]
fn the_upper_half_of_the_network_field_is_no_part_of_the_link_type() {
    let network = 0x1400_0000 | 1 << 16 | 276;
    let header = samples::pcap_header(ByteOrder::Big, Resolution::Nanoseconds, Variant::Standard, 0, network);
    let record = samples::pcap_record(ByteOrder::Big, Variant::Standard, b"", 0);
    let file = [header.raw, record.raw].concat();
    let mut reader = Reader::new(&file[..]).unwrap();
    reader.next().unwrap();
    let Some(Item::Packet(record)) = reader.next().unwrap() else { panic!("a packet is there") };
    assert_eq!((record.pcap_link_type, record.link_type), (276, Some(LinkType::Cooked2)));
}

#[test]
fn concatenated_compressed_files_are_one_capture() {
    for sample in samples::all() {
        let file = sample.bytes();
        let cuts = [0, 3, file.len() / 2, file.len()];
        let parts = || cuts.windows(2).map(|cut| &file[cut[0]..cut[1]]);
        let gzip: Vec<u8> = parts().flat_map(gzip).collect();
        let zstd: Vec<u8> = parts().flat_map(|part| zstd::encode_all(part, 0).unwrap()).collect();
        let skipped = [b"\x50\x2a\x4d\x18\x02\0\0\0hi", &zstd[..]].concat();
        for packed in [gzip, zstd, skipped] {
            let (copy, outcome) = copy(&packed[..], Compression::None);
            outcome.unwrap();
            assert_eq!(copy, file, "{}", sample.name);
        }
    }
}

#[test]
fn a_pipe_that_gives_a_byte_at_a_time_gives_the_same() {
    for sample in samples::all() {
        for packed in [sample.bytes(), gzip(&sample.bytes()), zstd::encode_all(&sample.bytes()[..], 0).unwrap()] {
            let (copy, outcome) = copy(Trickle { left: &packed, hiccup: false }, Compression::None);
            outcome.unwrap();
            assert_eq!(copy, sample.bytes(), "{}", sample.name);
        }
    }
}

#[test]
fn a_packet_longer_than_every_buffer_goes_through() {
    let long = samples::bytes(5 << 20);
    let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
    writer.header(&wideload_capture::pcap_header(Resolution::Nanoseconds, 1)).unwrap();
    for _ in 0..3 {
        writer.packet(0, None, &[b"head", &long, b"tail"]).unwrap();
    }
    let file = writer.finish().unwrap();
    let (copy, outcome) = copy(&file[..], Compression::None);
    outcome.unwrap();
    assert!(copy == file);
}

#[test]
fn a_failing_disk_is_no_damage() {
    for packed in [samples::all()[0].bytes(), gzip(&samples::all()[0].bytes())] {
        let file = (&packed[..packed.len() / 2]).chain(Broken);
        let (_, outcome) = samples::read(file);
        assert_eq!(outcome.unwrap_err().to_string(), "cannot read the capture: the disk is on fire");
    }
    let mut writer = Writer::new(Broken, Compression::None).unwrap();
    writer.header(&wideload_capture::pcap_header(Resolution::Nanoseconds, 1)).unwrap();
    let error = writer.finish().err().unwrap();
    assert_eq!(error.to_string(), "cannot write the capture: the disk is on fire");
}

#[test]
fn a_header_of_another_kind_is_refused() {
    let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
    for raw in [
        &b""[..],
        b"snoop\0\0\0 and so on and so forth",
        &wideload_capture::pcap_header(Resolution::Nanoseconds, 1)[1..],
    ] {
        assert!(matches!(writer.header(raw), Err(Error::UnknownFormat { .. })));
    }
}

#[test]
fn a_file_name_asks_for_its_compression() {
    let asked = ["a.pcap", "a.pcap.gz", "A.GZ", "a.pcapng.zst", "gz", ""].map(Compression::from_path);
    use Compression::*;
    assert_eq!(asked, [None, Gzip, Gzip, Zstd, None, None]);
}

/// Reads a capture and writes every item. Returns the copy and the outcome of reading.
fn copy(file: impl Read, compression: Compression) -> (Vec<u8>, Result<(), Error>) {
    let mut writer = Writer::new(Vec::new(), compression).unwrap();
    let mut reader = Reader::new(file).unwrap();
    let outcome = loop {
        match reader.next() {
            Ok(Some(Item::Header(raw))) => writer.header(raw).unwrap(),
            Ok(Some(Item::Interface(raw))) => writer.interface(raw).unwrap(),
            Ok(Some(Item::Block(raw))) => writer.block(raw).unwrap(),
            Ok(Some(Item::Packet(record))) => writer.copy(&record).unwrap(),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    (writer.finish().unwrap(), outcome)
}

/// Returns the items before the first packet for every format, each with the resolution of timestamps, in
/// nanoseconds.
fn starts() -> Vec<(Sample, u64)> {
    let mut starts = Vec::new();
    for order in ORDERS {
        for (resolution, variant) in PCAP_KINDS {
            let parts = vec![samples::pcap_header(order, resolution, variant, 0, 1)];
            let nanos = if resolution == Resolution::Nanoseconds { 1 } else { 1000 };
            starts.push((Sample { name: format!("{order:?} {resolution:?} {variant:?}"), parts }, nanos));
        }
        for (exponent, nanos) in [(3, 1_000_000), (6, 1000), (9, 1), (0x80 | 30, 1)] {
            let resolution = samples::option(order, 9, &[exponent]);
            let parts = vec![samples::section_header(order, -1), samples::interface(order, 1, 0, &resolution)];
            starts.push((Sample { name: format!("{order:?} {exponent}"), parts }, nanos));
        }
    }
    starts
}

/// Returns packets of many lengths, with times that are multiples of `nanos` nanoseconds.
fn packets(nanos: u64) -> Vec<(Time, Vec<u8>)> {
    let lens = (0..9).chain([60, 1500, 1514, 9000, 65_535, 32 << 10, 300_000]).chain([1514; 400]);
    let time = |at: usize| Time::from_nanos((1_700_000_000_123_456_789 + at as u64 * 1_000_001) / nanos * nanos);
    lens.enumerate().map(|(at, len)| (time(at), samples::bytes(len))).collect()
}

fn write_start(writer: &mut Writer<Vec<u8>>, start: &Sample) {
    for part in &start.parts {
        match part.kind {
            Kind::Header => writer.header(&part.raw).unwrap(),
            _ => writer.interface(&part.raw).unwrap(),
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An input whose reads are interrupted and return one byte in turn.
struct Trickle<'a> {
    left: &'a [u8],
    hiccup: bool,
}

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.hiccup = !self.hiccup;
        if self.hiccup {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = into.len().min(1);
        self.left.read(&mut into[..len])
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is on fire"))
    }
}

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is on fire"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
