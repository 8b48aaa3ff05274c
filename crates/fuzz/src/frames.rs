//! A frame -> checks of its parsed fields.
//!
//! All parsed fields must lie within the frame. All fields must be equal if parsed a second time from the packet's
//! own bytes, and must agree with an independent parser.

use crate::input::Input;
use packet::tcp::Segment;
use packet::{Checksum, CopyError, Frame, HEADROOM, Ingress, LinkType, Packet, ParseError, Pool, Tunnel};
use sim::wire;

/// Parses the input as a frame. The first byte selects the link type.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let media = [LinkType::Ip, LinkType::Ethernet, LinkType::Loopback, LinkType::Cooked, LinkType::Cooked2];
    let link_type = input.one_of(&media);
    let frame = input.0;
    let mut pool = Pool::new(1 << 20);
    let judged = match Frame::copy(frame, link_type, Ingress(1), &mut pool) {
        Ok(packet) => {
            let judged = Ok(said(&packet));
            check_packet(packet, frame, link_type, &mut pool);
            judged
        }
        Err(CopyError::Unparsed(unfit)) => Err(unfit),
        Err(CopyError::NoBuffer) => panic!("there is memory enough"),
    };
    if let Some(in_place) = read_in_place(frame, link_type, &mut pool) {
        assert_eq!(judged, in_place, "copied and in place it is the same");
    }
    assert_eq!(pool.in_use_count(), 0, "every buffer came back");
}

fn check_packet(mut packet: Packet, frame: &[u8], link_type: LinkType, pool: &mut Pool) {
    let ip = *packet.ip();
    assert!(frame.starts_with(packet.frame()), "nothing is changed by looking");
    assert!(packet.wire_len() <= 65_535 + 40 && packet.wire_count() >= 1);
    // A sender with offload leaves the length to the NIC. Wideload then takes all bytes as the packet; other
    // parsers take none.
    if let Some(seen) = wire::read(packet.bytes()).filter(|_| !ip.length_missing) {
        assert_eq!(seen.end, packet.bytes().len(), "both say how long it is");
        assert_eq!(usize::from(ip.ecn as u8), usize::from(seen.ecn), "both say how it is marked");
    }
    let _ = (Tunnel::of(&packet), Segment::parse(packet.payload()), packet.is_partial());
    let again = Frame::copy(packet.frame(), link_type, Ingress(1), pool).expect("what was read is read again");
    assert_eq!(format!("{ip:?}"), format!("{:?}", again.ip()));
    assert_eq!((packet.addresses(), packet.ends()), (again.addresses(), again.ends()));
    pool.give(again.into_buffer());
    packet.detect_checksum();
    if packet.complete_checksum() {
        packet.checksum = Checksum::Unverified;
        assert!(packet.checksum_error().is_right(), "what is finished is right");
    }
    pool.give(packet.into_buffer());
}

/// Formats a packet's parsed fields: its offset in the frame, its headers, source and destination.
fn said(packet: &Packet) -> String {
    let (link_len, ip, ends) = (packet.link_len(), packet.ip(), packet.ends());
    format!("{link_len} {ip:?} {:?} {ends:?} {:?}", packet.addresses(), packet.ingress())
}

/// Parses a frame in a pool buffer, as a port does, with a link header of any length. `None` if the frame does not
/// fit the buffer.
fn read_in_place(frame: &[u8], link_type: LinkType, pool: &mut Pool) -> Option<Result<String, ParseError>> {
    let mut buffer = pool.allocate(frame.len())?;
    if frame.len() > buffer.capacity() {
        pool.give(buffer);
        return None;
    }
    let at = HEADROOM - 16;
    buffer.put(at, frame);
    Some(match Frame::read(buffer, at, frame.len(), link_type, Ingress(1)) {
        Frame::Ip(packet) => {
            assert!(frame.starts_with(packet.frame()));
            let said = said(&packet);
            pool.give(packet.into_buffer());
            Ok(said)
        }
        Frame::Other(raw, unfit) => {
            assert_eq!(raw.frame(), frame);
            pool.give(raw.into_buffer());
            Err(unfit)
        }
    })
}
