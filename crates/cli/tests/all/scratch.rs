//! Shared parts of the command's tests: captures to write and to read, and the command.

use capture::{Compression, Item, Reader, Resolution, Writer, pcap_header};
use packet::Time;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
pub use testkit::seal_ip;
use testkit::{ReadPacket, Spec, Summed, ip};

/// A temporary directory, and the command in it.
pub struct Scratch(pub TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A capture of raw IP packets with their times in nanoseconds.
    pub fn pcap(&self, name: &str, packets: &[(u64, Vec<u8>)]) -> PathBuf {
        let path = self.path(name);
        let mut writer = Writer::new(File::create(&path).unwrap(), Compression::None).unwrap();
        writer.header(&pcap_header(Resolution::Nanoseconds, RAW)).unwrap();
        for (time, packet) in packets {
            writer.packet(0, Some(Time::from_nanos(*time)), &[packet]).unwrap();
        }
        writer.finish().unwrap().flush().unwrap();
        path
    }

    pub fn rewrite(&self, paths: &[&Path], args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_wideload")).arg("rewrite").args(paths).args(args).output().unwrap()
    }
}

pub fn frames(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Packet(record) = item {
            frames.push((record.time.unwrap().nanos(), record.data.to_vec()));
        }
    }
    frames
}

pub fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

pub fn json(run: &Output) -> serde_json::Value {
    serde_json::from_slice(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(run)))
}

pub fn fate(report: &serde_json::Value, kind: &str, name: &str) -> serde_json::Value {
    let fates = report["fates"].as_array().unwrap();
    fates.iter().find(|fate| fate["kind"] == kind && fate["name"] == name).cloned().unwrap_or_default()
}

/// An IPv4 UDP packet of `len` bytes, with distinct payload bytes and no checksum.
pub fn udp(len: usize, id: u16, flags: u16) -> Vec<u8> {
    let payload: Vec<u8> = (28..len).map(|at| (at % 251) as u8).collect();
    let packet = documented(testkit::udp(4)).ports(4_096, 8_192).sum(Summed::None);
    packet.id(id.into()).ip_flags(flags).payload(payload).bytes()
}

/// The packet between two addresses for documentation.
pub fn documented(packet: Spec) -> Spec {
    packet.from([192, 0, 2, 1]).to([192, 0, 2, 2])
}

/// The fragments of a packet with at most `room` bytes of payload each.
pub fn cut(packet: &[u8], room: usize) -> Vec<Vec<u8>> {
    let seen = ReadPacket::of(packet);
    Spec { protocol: seen.protocol, ..documented(ip(4)).id(seen.id).payload(seen.body()) }.parts(room)
}

pub const RAW: u16 = 101;
pub const COOKED2: u16 = 276;
pub const DONT_FRAGMENT: u16 = 0x4000;
pub const MORE_FRAGMENTS: u16 = 0x2000;
