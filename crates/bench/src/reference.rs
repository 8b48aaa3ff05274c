//! A system's output -> whether the output is correct, byte for byte.
//!
//! A fast system with wrong results must not look good. Each kind of work has a comparison of its own, because
//! systems may deliver correct results in different packets.

use crate::section::Section;
use crate::wire::{IPV4_LEN, TCP, put, word};
use std::collections::HashMap;

/// Correct output of a section.
#[derive(Clone, Debug)]
pub enum Reference {
    /// Exactly these payloads, in any order and without duplicates.
    Payloads(Vec<Vec<u8>>),
    /// Runs of complete fragments of these datagrams, in any order. Each fragment occurs as often as it was sent.
    Runs {
        /// Payloads of the datagrams.
        datagrams: Vec<Vec<u8>>,
        /// Payload of a fragment, in bytes.
        fragment_len: usize,
        /// Number of fragments sent.
        fragments: usize,
    },
    /// Exactly these packets, in this order.
    Packets(Vec<Vec<u8>>),
    /// Packets that carry these streams. Each byte must occur once, at its position.
    Streams(HashMap<FlowName, Stream>),
    /// Only a number of packets; their contents are not compared.
    Count(usize),
}

/// A TCP flow, identified by its ports and the last bits of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowName {
    /// The last bits of the source's address.
    pub source: u32,
    /// The last bits of the destination's address.
    pub destination: u32,
    /// Source and destination port.
    pub ports: [u16; 2],
}

/// The bytes of one direction of a connection.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Sequence number of the first byte.
    pub first_seq: u32,
    /// All bytes of the stream.
    pub bytes: Vec<u8>,
}

/// Degree to which an accepted output is correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every byte is correct.
    Exact,
    /// Every byte is correct except these checksum fields, which are left to a later stage.
    ChecksumsLeft(&'static str),
}

impl Reference {
    /// Compares a system's output with the correct one. `delivers` is the system's description of its output.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, output: &Section, delivers: &str) -> Result<Verdict, String> {
        match self {
            Reference::Payloads(payloads) => each_once(payloads, output).map(|()| Verdict::Exact),
            Reference::Runs { datagrams, fragment_len, fragments } => {
                runs(datagrams, *fragment_len, *fragments, output).map(|()| Verdict::Exact)
            }
            Reference::Packets(packets) => in_this_order(packets, output, delivers),
            Reference::Streams(streams) => carried(streams, output).map(|()| Verdict::Exact),
            Reference::Count(_) => Ok(Verdict::Exact),
        }
    }

    /// Returns the correct number of output packets; `None` if several numbers are correct.
    pub fn count(&self) -> Option<usize> {
        match self {
            Reference::Payloads(outputs) | Reference::Packets(outputs) => Some(outputs.len()),
            Reference::Count(count) => Some(*count),
            Reference::Runs { .. } | Reference::Streams(_) => None,
        }
    }
}

fn each_once(payloads: &[Vec<u8>], output: &Section) -> Result<(), String> {
    if payloads.len() != output.len() {
        return Err(format!("{} packets left, expected {}", output.len(), payloads.len()));
    }
    let mut expected: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let mut came: Vec<&[u8]> = output.packets().collect();
    expected.sort_unstable();
    came.sort_unstable();
    let wrong = expected.iter().zip(&came).filter(|(expected, came)| expected != came).count();
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} of {} packets differ", payloads.len())) }
}

fn runs(datagrams: &[Vec<u8>], fragment_len: usize, fragments: usize, output: &Section) -> Result<(), String> {
    let mut places = HashMap::new();
    for (number, datagram) in datagrams.iter().enumerate() {
        for (index, fragment) in datagram.chunks(fragment_len).enumerate() {
            places.insert(fragment, (number, index));
        }
    }
    let mut came = vec![0usize; datagrams.len() * FRAGMENTS_MAX];
    let mut count = 0;
    for (at, run) in output.packets().enumerate() {
        let first = &run[..fragment_len.min(run.len())];
        let (number, index) =
            *places.get(first).ok_or(format!("packet {at} starts with no fragment that was sent"))?;
        let start = index * fragment_len;
        let expected = datagrams[number].get(start..start + run.len());
        if expected != Some(run) {
            return Err(format!("packet {at} differs from the input"));
        }
        for fragment in 0..run.len().div_ceil(fragment_len) {
            came[number * FRAGMENTS_MAX + index + fragment] += 1;
            count += 1;
        }
    }
    let sent: usize = datagrams.iter().map(|datagram| datagram.len().div_ceil(fragment_len)).sum();
    let missing = sent - came.iter().filter(|count| **count > 0).count();
    match (missing, count) {
        (0, count) if count == fragments => Ok(()),
        (0, count) => Err(format!("{count} fragments left, expected {fragments}")),
        _ => Err(format!("{missing} of {sent} fragments did not leave")),
    }
}

fn in_this_order(packets: &[Vec<u8>], output: &Section, delivers: &str) -> Result<Verdict, String> {
    if packets.len() != output.len() {
        return Err(format!("{} packets left, expected {}", output.len(), packets.len()));
    }
    let mut left = [false; 2];
    for (index, (expected, came)) in packets.iter().zip(output.packets()).enumerate() {
        if expected == came {
            continue;
        }
        let (masked, ip) = ipv4_masked(expected, came);
        let (masked, tcp) = tcp_masked(expected, masked);
        if *expected != masked {
            let at = expected.iter().zip(&masked).position(|(expected, came)| expected != came);
            let at = at.unwrap_or(expected.len().min(came.len()));
            let lens = (came.len(), expected.len());
            return Err(format!("packet {index} differs at byte {at}: length {} B, expected {} B", lens.0, lens.1));
        }
        left = [left[0] || ip, left[1] || tcp];
    }
    let which = match left {
        [false, false] => return Ok(Verdict::Exact),
        [true, false] => "IP checksums",
        [false, true] => "TCP checksums",
        [true, true] => "IP and TCP checksums",
    };
    if leaves_checksums(delivers) { Ok(Verdict::ChecksumsLeft(which)) } else { Err(format!("{which} are wrong")) }
}

/// Whether a system's description says that checksums are left to a later stage.
fn leaves_checksums(delivers: &str) -> bool {
    let says = |word: &str| delivers.to_lowercase().contains(word);
    says("checksum") && LEAVING.iter().any(|word| says(word))
}

/// Returns `rx` with the expected IPv4 header checksum, and whether the original checksum differed.
fn ipv4_masked(expected: &[u8], came: &[u8]) -> (Vec<u8>, bool) {
    masked(expected, came.to_vec(), expected.len() >= IPV4_LEN && expected[0] == 0x45, 10)
}

/// Returns `rx` with the expected TCP checksum, and whether the original checksum differed.
fn tcp_masked(expected: &[u8], came: Vec<u8>) -> (Vec<u8>, bool) {
    let is_tcp = expected.len() >= IPV4_LEN + 20 && expected[0] == 0x45 && expected[9] == TCP;
    masked(expected, came, is_tcp, IPV4_LEN + 16)
}

fn masked(expected: &[u8], mut came: Vec<u8>, applies: bool, at: usize) -> (Vec<u8>, bool) {
    if !applies || came.len() < at + 2 || came[at..at + 2] == expected[at..at + 2] {
        return (came, false);
    }
    put(&mut came, at, word(expected, at) as u16);
    (came, true)
}

fn carried(streams: &HashMap<FlowName, Stream>, output: &Section) -> Result<(), String> {
    let mut had: HashMap<FlowName, Vec<(usize, usize)>> = HashMap::new();
    for (index, packet) in output.packets().enumerate() {
        let (name, seq, payload) =
            segment(packet).ok_or(format!("packet {index} is not a valid TCP packet of that length"))?;
        let stream = streams.get(&name).ok_or(format!("packet {index} belongs to no flow that was sent"))?;
        let start = seq.wrapping_sub(stream.first_seq) as usize;
        let expected = stream.bytes.get(start..start.saturating_add(payload.len()));
        if expected != Some(payload) {
            return Err(format!("packet {index} differs from its flow's bytes, starting at byte {start}"));
        }
        had.entry(name).or_default().push((start, start + payload.len()));
    }
    for (name, stream) in streams {
        let ranges = had.entry(*name).or_default();
        ranges.sort_unstable();
        let end = ranges.iter().try_fold(0, |end, (start, stop)| (*start == end).then_some(*stop));
        if end != Some(stream.bytes.len()) {
            return Err(format!("bytes of port {} are missing or repeated: {ranges:?}", name.ports[1]));
        }
    }
    Ok(())
}

/// Returns the flow, sequence number and payload of an IPv4 TCP packet; `None` if its length field is wrong.
fn segment(packet: &[u8]) -> Option<(FlowName, u32, &[u8])> {
    if packet.len() < IPV4_LEN + 20 || packet[0] != 0x45 || packet[9] != TCP || word(packet, 2) != packet.len() {
        return None;
    }
    let number = |at: usize| Some(u32::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let ports = [word(packet, IPV4_LEN) as u16, word(packet, IPV4_LEN + 2) as u16];
    let name = FlowName { source: number(12)? & 0xFF_FFFF, destination: number(16)? & 0xFF_FFFF, ports };
    let header_len = usize::from(packet[IPV4_LEN + 12] >> 4) * 4;
    Some((name, number(IPV4_LEN + 4)?, packet.get(IPV4_LEN + header_len..)?))
}

/// Largest number of fragments of a datagram: 64 KiB in fragments of eight bytes.
const FRAGMENTS_MAX: usize = 8_192;
/// Words in a description by which a system says that a field is left to a later stage.
const LEAVING: [&str; 7] = ["left", "leaves", "zero", "without", "not ", "no ", "unwritten"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{ArrivalOrder, Hold, Recipe};
    use crate::workload::{flows, fragments};

    #[test]
    fn any_flipped_byte_is_detected() {
        for recipe in recipes() {
            let (section, reference) = recipe.build();
            let right = answer(&section, &reference);
            assert_eq!(reference.check(&right, ""), Ok(Verdict::Exact), "{recipe}");
            for (packet, at) in [(0, 0), (right.len() / 2, 60), (right.len() - 1, 700)] {
                let mut packets: Vec<Vec<u8>> = right.packets().map(<[u8]>::to_vec).collect();
                let at = at % packets[packet].len();
                packets[packet][at] ^= 0x40;
                let wrong: Section = packets.into_iter().collect();
                assert!(
                    reference.check(&wrong, "checksums left").is_err(),
                    "{recipe}: byte {at} of packet {packet}"
                );
            }
        }
    }

    #[test]
    fn missing_and_repeated_packets_are_detected() {
        for recipe in recipes() {
            let (section, reference) = recipe.build();
            let right = answer(&section, &reference);
            let missing: Section = right.packets().skip(1).collect();
            assert!(reference.check(&missing, "").is_err(), "{recipe}: one is missing");
            let twice: Section = right.packets().chain(right.packets().take(1)).collect();
            assert!(reference.check(&twice, "").is_err(), "{recipe}: one comes twice");
        }
    }

    #[test]
    fn checksums_are_deferred_only_where_declared() {
        let (_, reference) = Recipe::GsoPackets { segment: 1_448 }.build();
        let Reference::Packets(packets) = &reference else { panic!() };
        let zeroed = |places: &[usize]| -> Section {
            let mut packets = packets.clone();
            for packet in &mut packets {
                places.iter().for_each(|at| put(packet, *at, 0));
            }
            packets.into_iter().collect()
        };
        assert!(reference.check(&zeroed(&[10]), "chains of two buffers").is_err());
        let says = "chains of two buffers, IP checksum left";
        assert_eq!(reference.check(&zeroed(&[10]), says), Ok(Verdict::ChecksumsLeft("IP checksums")));
        assert_eq!(reference.check(&zeroed(&[10, 36]), says), Ok(Verdict::ChecksumsLeft("IP and TCP checksums")));
        assert!(reference.check(&zeroed(&[4]), says).is_err(), "an identification is no checksum");
    }

    #[test]
    fn runs_may_be_of_any_length_and_order() {
        let recipe = Recipe::Joinable(fragments(6, 2, ArrivalOrder::Forward), 9_000);
        let (_, reference) = recipe.build();
        let Reference::Runs { datagrams, .. } = &reference else { panic!() };
        let cut =
            |len: usize| -> Section { datagrams.iter().rev().flat_map(|datagram| datagram.chunks(len)).collect() };
        for fragments in 1..=6 {
            assert_eq!(reference.check(&cut(fragments * 1_480), ""), Ok(Verdict::Exact));
        }
        assert!(reference.check(&cut(1_000), "").is_err());
    }

    fn recipes() -> Vec<Recipe> {
        vec![
            Recipe::Fragments(fragments(6, 8, ArrivalOrder::Random)),
            Recipe::Joinable(fragments(6, 8, ArrivalOrder::Forward), 9_000),
            Recipe::Wide { len: 9_000, mtu: 1_500 },
            Recipe::GsoPackets { segment: 8_948 },
            Recipe::Flows(flows(8, Hold::Burst)),
            Recipe::Bytes { len: 1_460 },
        ]
    }

    /// Returns the output of a faultless system; for flows, the segments as they arrived.
    fn answer(section: &Section, reference: &Reference) -> Section {
        match reference {
            Reference::Payloads(outputs) | Reference::Packets(outputs) => outputs.iter().collect(),
            Reference::Runs { datagrams, .. } => datagrams.iter().collect(),
            Reference::Streams(_) => section.clone(),
            Reference::Count(_) => Section::default(),
        }
    }
}
