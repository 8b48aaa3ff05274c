//! What the tests of the command share: captures to make and to read, and the command to run.
#![allow(dead_code, reason = "each test takes what it needs")]

use capture::{Compression, Item, Reader, Resolution, Writer, pcap_header};
use packet::{Sum, Time};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A directory of its own, and the command in it.
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

/// An IPv4 packet of UDP, `len` bytes long, with a payload that tells its bytes apart.
pub fn udp(len: usize, id: u16, flags: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6..8].copy_from_slice(&flags.to_be_bytes());
    packet.extend([0x10, 0x00, 0x20, 0x00]);
    packet.extend(((len - 20) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend((28..len).map(|at| (at % 251) as u8));
    seal(&mut packet);
    packet
}

/// The fragments of a packet with at most `room` bytes of payload each, cut by hand.
pub fn cut(packet: &[u8], room: usize) -> Vec<Vec<u8>> {
    let payload = &packet[20..];
    (0..payload.len().div_ceil(room))
        .map(|index| {
            let part = &payload[index * room..payload.len().min((index + 1) * room)];
            let mut piece = [&packet[..20], part].concat();
            let len = piece.len() as u16;
            piece[2..4].copy_from_slice(&len.to_be_bytes());
            let more = if (index + 1) * room < payload.len() { MORE_FRAGMENTS } else { 0 };
            piece[6..8].copy_from_slice(&(more | (index * room / 8) as u16).to_be_bytes());
            seal(&mut piece);
            piece
        })
        .collect()
}

pub fn seal(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = Sum::of(&packet[..20]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

pub const RAW: u16 = 101;
pub const COOKED2: u16 = 276;
pub const DONT_FRAGMENT: u16 = 0x4000;
pub const MORE_FRAGMENTS: u16 = 0x2000;
