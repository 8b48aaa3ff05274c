//! A list of frames -> batches as a port delivers them, with header split where slots are offered.
#![allow(dead_code, reason = "each test file uses its part")]

use packet::{Buffer, Frame, HEADROOM, HeaderLayout, Ingress, LinkType, PayloadSlots, Pool, SplitFrame};
use wideload_engine::packet;

/// The moment at which a port knows the received frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// After a whole batch.
    Batch,
    /// After each frame.
    Frame,
}

/// Receives a batch as the kernel does: fills one slot or buffer after the other.
pub fn receive(
    batch: &[Vec<u8>],
    call: Call,
    mut places: Option<PayloadSlots<'_>>,
    pool: &mut Pool,
    split_frame: &mut Vec<SplitFrame>,
    frames: &mut Vec<Frame>,
) {
    let front = places.as_ref().map(PayloadSlots::front);
    let early: Vec<Option<&mut [u8]>> = match call {
        Call::Batch => batch.iter().map(|_| places.as_mut()?.next()).collect(),
        Call::Frame => Vec::new(),
    };
    let mut early = early.into_iter();
    let mut is_wrong = false;
    for frame in batch {
        let place = match call {
            Call::Batch => early.next().flatten(),
            Call::Frame if is_wrong => None,
            Call::Frame => places.as_mut().and_then(Iterator::next),
        };
        let mut buffer = pool.allocate(frame.len() + ROOM).expect("the pool is large");
        match (place, front) {
            (Some(place), Some(front)) => {
                scatter(frame, front, place, &mut buffer);
                match apart(buffer, frame.len(), front, place, is_wrong) {
                    Ok(it) => split_frame.push(it),
                    Err(buffer) => {
                        is_wrong = true;
                        frames.push(Frame::read(buffer, AT, frame.len(), LinkType::Ethernet, Ingress(0)));
                    }
                }
            }
            _ => {
                is_wrong = true;
                buffer.put(AT, frame);
                frames.push(Frame::read(buffer, AT, frame.len(), LinkType::Ethernet, Ingress(0)));
            }
        }
    }
}

fn scatter(frame: &[u8], front: HeaderLayout, place: &mut [u8], buffer: &mut Buffer) {
    let (header, rest) = frame.split_at(front.len().min(frame.len()));
    let (payload, spill) = rest.split_at(place.len().min(rest.len()));
    buffer.put(AT, header);
    place[..payload.len()].copy_from_slice(payload);
    buffer.put(AT + header.len() + place.len(), spill);
}

/// The split frame; after a wrong prediction all of it is copied out at once.
fn apart(
    buffer: Buffer,
    len: usize,
    front: HeaderLayout,
    place: &[u8],
    is_wrong: bool,
) -> Result<SplitFrame, Buffer> {
    let split_frame = SplitFrame::of(buffer, AT, len, front, place, LinkType::Ethernet, Ingress(0))?;
    if !is_wrong {
        return Ok(split_frame);
    }
    Err(match split_frame.copy_out(place) {
        Frame::Ip(packet) => packet.into_buffer(),
        Frame::Other(raw, _) => raw.into_buffer(),
    })
}

/// Offset of a frame in its buffer, in bytes.
const AT: usize = HEADROOM - 14;
/// Length of a slot, in bytes: longer than the frames.
const ROOM: usize = 2_048;
