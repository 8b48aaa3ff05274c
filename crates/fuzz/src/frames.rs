//! A frame in: what is read of it is there, is read again from its own bytes, and is what another reader reads.

use crate::input::Input;
use packet::tcp::Segment;
use packet::{Checksum, Frame, HEADROOM, Ingress, Medium, NoPacket, Packet, Pool, Tunnel};
use sim::wire;

/// Reads the bytes behind the first as a frame of the medium that the first names.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let media = [Medium::Ip, Medium::Ethernet, Medium::Loopback, Medium::Cooked, Medium::Cooked2];
    let medium = input.one_of(&media);
    let frame = input.0;
    let mut pool = Pool::new(1 << 20);
    match Frame::copy(frame, medium, Ingress(1), &mut pool) {
        Ok(packet) => look(packet, frame, medium, &mut pool),
        Err(NoPacket::Unfit(_)) => {}
        Err(NoPacket::NoBuffer) => panic!("there is memory enough"),
    }
    read_in_place(frame, medium, &mut pool);
    assert_eq!(pool.lent_count(), 0, "every buffer came back");
}

fn look(mut packet: Packet, frame: &[u8], medium: Medium, pool: &mut Pool) {
    let ip = *packet.ip();
    assert!(packet.is_as_received());
    assert!(frame.starts_with(packet.frame()), "nothing is changed by looking");
    assert_eq!(packet.len(), packet.bytes().len());
    assert!(packet.wire_len() <= 65_535 + 40 && packet.wire_count() >= 1);
    // An offloading sender leaves its length to the card: then we take all that came, and others nothing.
    if let Some(seen) = wire::read(packet.bytes()).filter(|_| !ip.length_missing) {
        assert_eq!(seen.end, packet.bytes().len(), "both say how long it is");
        assert_eq!(usize::from(ip.ecn as u8), usize::from(seen.ecn), "both say how it is marked");
    }
    let _ = (Tunnel::of(&packet), Segment::parse(packet.payload()), packet.is_half_filled());
    let again = Frame::copy(packet.frame(), medium, Ingress(1), pool).expect("what was read is read again");
    assert_eq!(format!("{ip:?}"), format!("{:?}", again.ip()));
    assert_eq!((packet.addresses(), packet.ends()), (again.addresses(), again.ends()));
    pool.give(again.into_buffer());
    packet.judge_checksum();
    if packet.finish_checksum() {
        packet.checksum = Checksum::Unverified;
        assert!(packet.checksum_error().is_right(), "what is finished is right");
    }
    pool.give(packet.into_buffer());
}

/// A port puts the bytes into a buffer first, wherever the link header may end.
fn read_in_place(frame: &[u8], medium: Medium, pool: &mut Pool) {
    let Some(mut buffer) = pool.lend(frame.len()) else { return };
    let at = HEADROOM - 16;
    let frame = &frame[..frame.len().min(buffer.capacity())];
    buffer.put(at, frame);
    match Frame::read(buffer, at, frame.len(), medium, Ingress(1)) {
        Frame::Ip(packet) => {
            assert!(frame.starts_with(packet.frame()));
            pool.give(packet.into_buffer());
        }
        Frame::Other(raw, _) => {
            assert_eq!(raw.frame(), frame);
            pool.give(raw.into_buffer());
        }
    }
}
