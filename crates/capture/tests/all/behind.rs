//! Packets -> a capture written by another thread: the same bytes, and every failure reported.

use crate::samples;
use packet::Time;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use wideload_capture::{Compression, Error, Resolution, Writer, pcap_header};

#[test]
fn a_background_thread_writes_the_same_bytes() {
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        for count in [0, 1, 10, 3_000] {
            let here = fill(Writer::new(Vec::new(), compression).unwrap(), count).unwrap();
            let behind = fill(Writer::behind(Vec::new(), compression).unwrap(), count).unwrap();
            assert!(here == behind, "{count} packets, {compression:?}");
        }
    }
}

#[test]
fn a_background_write_error_is_reported() {
    let len = fill(Writer::new(Vec::new(), Compression::None).unwrap(), 3_000).unwrap().len();
    for room in [0, len / 2, len - 1] {
        let failed = fill(Writer::behind(Full { room }, Compression::None).unwrap(), 3_000);
        match failed {
            Err(Error::Io { tried, source }) => {
                assert_eq!((tried, source.kind()), ("write the capture", io::ErrorKind::StorageFull), "{room}");
            }
            _ => panic!("{room} bytes do not hold them all"),
        }
    }
}

#[test]
fn after_a_failure_finishing_fails_too() {
    let mut writer = Writer::behind(Full { room: 0 }, Compression::None).unwrap();
    writer.header(&pcap_header(Resolution::Nanoseconds, 1)).unwrap();
    let packet = samples::bytes(1_400);
    let mut failures = 0;
    for _ in 0..3_000 {
        failures += usize::from(writer.packet(0, Some(Time::ZERO), &[&packet]).is_err());
    }
    assert!(failures > 0 && writer.finish().is_err());
}

#[test]
fn nothing_is_written_once_the_writer_is_gone() {
    let written = Arc::new(Mutex::new(0));
    let mut writer = Writer::behind(Counted(Arc::clone(&written)), Compression::None).unwrap();
    writer.header(&pcap_header(Resolution::Nanoseconds, 1)).unwrap();
    let packet = samples::bytes(1_400);
    for _ in 0..1_000 {
        writer.packet(0, Some(Time::ZERO), &[&packet]).unwrap();
    }
    drop(writer);
    // The thread held the other reference, so the thread has ended.
    assert_eq!(Arc::strong_count(&written), 1);
    assert!(*written.lock().unwrap() > 0);
}

fn fill<W: Write>(mut writer: Writer<W>, count: u64) -> Result<W, Error> {
    writer.header(&pcap_header(Resolution::Nanoseconds, 1))?;
    let packet = samples::bytes(1_400);
    for number in 0..count {
        let len = 1 + number as usize * 7 % packet.len();
        writer.packet(0, Some(Time::from_nanos(number)), &[&packet[..len / 2], &packet[..len]])?;
    }
    writer.finish()
}

/// An output with room for `room` more bytes. It fails like a full disk.
struct Full {
    room: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output that counts its bytes.
struct Counted(Arc<Mutex<usize>>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.0.lock().unwrap() += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
