//! Packets -> datagrams or parsed headers, by etherparse: `IpDefragPool`, and `SlicedPacket` before it.
//!
//! This harness measures an established Rust library beside Wideload. The protocol is in `lib.rs`.

use etherparse::{NetSlice, SlicedPacket, TransportSlice, defrag::IpDefragPool};
use peers::{Args, Packet, Sink, System, serve, unknown};

enum Etherparse {
    Reassemble { pool: IpDefragPool<u64>, section: u64 },
    Parse,
}

impl System for Etherparse {
    fn open(args: &Args, _packets: &[Vec<u8>]) -> Result<Self, String> {
        match (args.text("function"), args.text("work")) {
            ("reassemble", "contiguous") => Ok(Etherparse::Reassemble { pool: IpDefragPool::new(), section: 0 }),
            ("parse", "header") => Ok(Etherparse::Parse),
            _ => unknown(args),
        }
    }

    fn delivers(&self) -> String {
        match self {
            Etherparse::Reassemble { .. } => "contiguous payload, no checksum verified",
            Etherparse::Parse => "headers as slices, no checksum verified",
        }
        .into()
    }

    fn section(&mut self, packets: &mut [Packet], sink: &mut impl Sink) {
        match self {
            Etherparse::Reassemble { pool, section } => {
                // Incomplete datagrams of earlier sections are discarded here, as by a time-out.
                *section += 1;
                pool.retain(|arrival| arrival == section);
                for packet in packets {
                    let Ok(sliced) = SlicedPacket::from_ip(packet.whole()) else { continue };
                    if let Ok(Some(datagram)) = pool.process_sliced_packet(&sliced, *section, ()) {
                        sink.take(&datagram.payload);
                        pool.return_buf(datagram);
                    }
                }
            }
            Etherparse::Parse => {
                for packet in packets {
                    let Ok(sliced) = SlicedPacket::from_ip(packet.whole()) else { continue };
                    sink.take(behind_headers(&sliced));
                }
            }
        }
    }
}

fn behind_headers<'a>(sliced: &SlicedPacket<'a>) -> &'a [u8] {
    match (&sliced.transport, &sliced.net) {
        (Some(TransportSlice::Tcp(tcp)), _) => tcp.payload(),
        (Some(TransportSlice::Udp(udp)), _) => udp.payload(),
        (Some(TransportSlice::Icmpv4(icmp)), _) => icmp.payload(),
        (Some(TransportSlice::Icmpv6(icmp)), _) => icmp.payload(),
        (None, Some(NetSlice::Ipv4(ip))) => ip.payload().payload,
        (None, Some(NetSlice::Ipv6(ip))) => ip.payload().payload,
        _ => &[],
    }
}

fn main() {
    serve::<Etherparse>("etherparse");
}
