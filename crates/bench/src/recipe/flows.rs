//! TCP flows -> their segments in order of arrival.

use super::ArrivalOrder;
use crate::reference::{FlowName, Reference, Stream};
use crate::section::Section;
use crate::wire::{ACK, Pair, TCP, Tcp, noise};
use fastrand::Rng;
use std::collections::HashMap;
use std::fmt;

/// Flows whose segments come in turn, packet by packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Concurrent flows.
    pub flows: usize,
    /// Segments of each.
    pub per_flow: usize,
    /// Packets per burst.
    pub burst: usize,
    /// How long runs are held.
    pub hold: Hold,
    /// Order of arrival.
    pub order: ArrivalOrder,
    /// Longest output packet, in bytes.
    pub len_max: usize,
    /// Payload of a segment, in bytes.
    pub payload_len: usize,
}

/// How long runs are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// To the end of a burst.
    Burst,
    /// To the end of the section.
    Section,
}

impl Flows {
    pub(super) fn keys(&self) -> Vec<(&'static str, String)> {
        let hold = if self.hold == Hold::Burst { "burst" } else { "section" };
        vec![
            ("flows", self.flows.to_string()),
            ("burst", self.burst.to_string()),
            ("len_max", self.len_max.to_string()),
            ("hold", hold.to_string()),
        ]
    }

    pub(super) fn build(&self) -> (Section, Reference) {
        let mut random = Rng::with_seed(0xF1);
        let mut streams = HashMap::new();
        let mut orders = Vec::with_capacity(self.flows);
        for flow in 0..self.flows {
            let bytes = noise(flow as u64, self.per_flow * self.payload_len);
            streams.insert(name(flow), Stream { first_seq: first_seq(flow), bytes });
            orders.push(self.order_of_one(&mut random));
        }
        let mut section = Section::default();
        for turn in 0..self.per_flow {
            for (flow, order) in orders.iter().enumerate() {
                let index = order[turn];
                let (start, end) = (index * self.payload_len, (index + 1) * self.payload_len);
                let name = name(flow);
                let seq = first_seq(flow).wrapping_add(start as u32);
                let tcp = Tcp { ports: name.ports, seq, flags: ACK };
                let segment = pair(flow).tcp(tcp, &streams[&name].bytes[start..end], false);
                section.push(&pair(flow).whole(TCP, index as u16 + 1, &segment));
            }
        }
        (section, Reference::Streams(streams))
    }

    /// Order of one flow's segments. The first segment is always first: it defines the start of the stream.
    fn order_of_one(&self, random: &mut Rng) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.per_flow).collect();
        let mut index = 1;
        while index + 1 < order.len() {
            let swapped = match self.order {
                ArrivalOrder::Random => random.u8(..100) == 0,
                ArrivalOrder::Reverse => true,
                ArrivalOrder::Forward | ArrivalOrder::Repeats => false,
            };
            if swapped {
                order.swap(index, index + 1);
                index += 1;
            }
            index += 1;
        }
        order
    }
}

impl fmt::Display for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flows = if self.flows == 1 { "flow" } else { "flows" };
        let order = match self.order {
            ArrivalOrder::Random => "1 in 100 swapped",
            ArrivalOrder::Reverse => "each pair swapped",
            ArrivalOrder::Forward | ArrivalOrder::Repeats => "in order",
        };
        let hold = match self.hold {
            Hold::Burst => "released after each burst of 64".to_string(),
            Hold::Section => format!("held up to {} B", self.len_max),
        };
        write!(f, "{} {flows}, {order}, {hold}", self.flows)
    }
}

fn pair(flow: usize) -> Pair {
    Pair { version: 4, source: 1 + flow as u32 % 251, destination: 1_000 + (flow / 50_000) as u32 }
}

fn name(flow: usize) -> FlowName {
    let pair = pair(flow);
    let ports = [443, 10_000 + (flow % 50_000) as u16];
    FlowName { source: pair.source, destination: pair.destination, ports }
}

/// The sequence numbers of one flow wrap in its section.
fn first_seq(flow: usize) -> u32 {
    if flow == 0 { 0xFFFF_0000 } else { (flow as u32).wrapping_mul(0x9E37_79B9) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::flows;
    use etherparse::{SlicedPacket, TransportSlice};

    #[test]
    fn etherparse_reads_the_segments_and_checksums() {
        for order in [ArrivalOrder::Forward, ArrivalOrder::Random, ArrivalOrder::Reverse] {
            let recipe = Flows { order, ..flows(8, Hold::Section) };
            let (section, Reference::Streams(streams)) = recipe.build() else { panic!() };
            assert_eq!(section.len(), 8 * recipe.per_flow);
            let mut seen = 0;
            for packet in section.packets() {
                assert_eq!(packet.len(), 1_500);
                let sliced = SlicedPacket::from_ip(packet).unwrap();
                let ipv4 = sliced.net.as_ref().unwrap().ipv4_ref().unwrap().header();
                assert_eq!(ipv4.to_header().calc_header_checksum(), ipv4.header_checksum());
                let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!() };
                assert_eq!(tcp.calc_checksum_ipv4(ipv4.source(), ipv4.destination()).unwrap(), tcp.checksum());
                let [_, a, b, c] = ipv4.source();
                let source = u32::from_be_bytes([0, a, b, c]);
                let destination = 1_000;
                let ports = [tcp.source_port(), tcp.destination_port()];
                let stream = &streams[&FlowName { source, destination, ports }];
                let at = tcp.sequence_number().wrapping_sub(stream.first_seq) as usize;
                assert_eq!(tcp.payload(), &stream.bytes[at..at + 1_448]);
                seen += tcp.payload().len();
            }
            assert_eq!(seen, streams.values().map(|stream| stream.bytes.len()).sum::<usize>());
        }
    }
}
