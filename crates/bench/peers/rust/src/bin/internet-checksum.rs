//! Bytes -> checksums, by the `internet-checksum` crate.
//!
//! This harness measures an established Rust library beside Wideload. The protocol is in `lib.rs`.

use peers::{Args, Packet, Sink, System, serve, unknown};

struct InternetChecksum;

impl System for InternetChecksum {
    fn open(args: &Args, _packets: &[Vec<u8>]) -> Result<Self, String> {
        match args.text("function") {
            "checksum" => Ok(InternetChecksum),
            _ => unknown(args),
        }
    }

    fn delivers(&self) -> String {
        "the Internet checksum as it stands in a packet".into()
    }

    fn section(&mut self, packets: &mut [Packet], sink: &mut impl Sink) {
        for packet in packets {
            sink.take(&internet_checksum::checksum(packet.whole()));
        }
    }
}

fn main() {
    serve::<InternetChecksum>("internet-checksum");
}
