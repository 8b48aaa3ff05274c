//! A capture -> the datagrams that a rewrite reassembles from it.

use capture::{Item, Reader, Record};
use engine::{Holding, LIFETIME, Limits, Secret, SegmentPolicy, Toggle};
use packet::{Checksum, Packet, Split, Time, Version};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use wideload::rewrite::{As, Outcome, Settings, Sink, Stages, Stop, rewrite};

/// A datagram by its globally comparable fields: addresses, payload length, and the payload's SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Datagram {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub len: usize,
    pub sha256: String,
}

/// The number of equal datagrams, by datagram.
pub type Datagrams = BTreeMap<Datagram, usize>;

/// The datagrams that a host's rewrite to 65,535 bytes reassembles, and its other results.
pub fn rejoined(path: &Path) -> Result<(Datagrams, Outcome), String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut reader = Reader::new(file).map_err(|error| error.to_string())?;
    let mut sink = Collector::default();
    let (outcome, ended) = rewrite(&mut reader, &settings(), &mut sink, |_| true);
    match ended {
        Ok(()) | Err(Stop::Input(_)) => Ok((sink.0, outcome)),
        Err(stop) => Err(format!("{stop:?}")),
    }
}

/// The frames of a capture.
pub fn frames(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut reader = Reader::new(file).map_err(|error| error.to_string())?;
    let mut frames = Vec::new();
    while let Some(item) = reader.next().map_err(|error| error.to_string())? {
        if let Item::Packet(record) = item {
            frames.push(record.data.to_vec());
        }
    }
    Ok(frames)
}

/// A host's interface with an MTU of 65,535 bytes that only reassembles.
fn settings() -> Settings {
    Settings {
        mtu: u16::MAX,
        role: As::Host,
        stages: Stages {
            reassemble: Toggle::On,
            fragment_policy: None,
            coalesce: None,
            segment: Toggle::Off,
            fragment: Toggle::On,
        },
        fragment_policy_for: Vec::new(),
        segment_policy: SegmentPolicy::Segment,
        exempt: Vec::new(),
        hold: Holding::Adaptive,
        split: Split::Max,
        limits: Limits { bytes: 64 << 20, timeout: None },
        lifetime: LIFETIME,
        seed: Secret::new(0),
        table_key: Secret::new(1),
    }
}

#[derive(Default)]
struct Collector(Datagrams);

impl Sink for Collector {
    type Error = String;

    fn structure(&mut self, _: &Item<'_>) -> Result<(), String> {
        Ok(())
    }

    fn copy(&mut self, _: &Record<'_>) -> Result<(), String> {
        Ok(())
    }

    fn delayed(&mut self, _: u32, _: Time, _: &Packet, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn packet(&mut self, _: u32, _: Time, packet: &Packet) -> Result<(), String> {
        // An atomic fragment is complete, but hosts reassemble it too. Of unfragmented IPv6 packets only checksums
        // change here.
        let has_changed = !packet.is_as_received() && packet.checksum == Checksum::Unverified;
        let was_atomic = packet.ip().version == Version::V6 && has_changed;
        if (packet.was_fragmented() || was_atomic) && packet.ip().fragment.is_none() {
            let (source, destination) = packet.addresses();
            let datagram = Datagram {
                source: source.into(),
                destination: destination.into(),
                len: packet.payload().len(),
                sha256: Sha256::digest(packet.payload()).iter().map(|byte| format!("{byte:02x}")).collect(),
            };
            *self.0.entry(datagram).or_default() += 1;
        }
        Ok(())
    }
}
