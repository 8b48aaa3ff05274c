//! Held packets of one process -> a pipe -> packets of another process, in the same order. Lost packets are
//! counted.
//!
//! A restart hands held packets to the new process, so that no datagram is lost. Packets are written as on the
//! wire: the successor receives segments and fragments, and can still coalesce or reassemble them.
//!
//! A header precedes each frame. It contains the worker number, the direction, the length of the longest received
//! fragment, the fragments' identification, and the frame's length. Numbers are in native byte order, as both
//! processes run on the same machine.

use engine::WirePackets;
use packet::Packet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The writing end of the pipe, for the held packets of one worker.
#[derive(Clone, Debug)]
pub struct HandoffWriter {
    pipe: Arc<Mutex<File>>,
    worker: u16,
}

/// A frame that another process held and handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedFrame {
    /// Direction of the frame: to the narrow side (0) or to the wide side (1).
    pub direction: usize,
    /// Length of the datagram's longest received fragment, IP header included, in bytes; 0 if it was received
    /// unfragmented.
    pub max_fragment_len: u32,
    /// IP ID of the received fragments.
    pub id: u32,
    /// The frame, with its link header.
    pub frame: Vec<u8>,
}

/// All frames that another process handed over, and the number of lost frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handoff {
    /// The handed-over frames of each worker, by worker number.
    pub handed_frames: Vec<Vec<HandedFrame>>,
    /// Number of frames that are lost because the pipe ended within them.
    pub truncated_count: u64,
    /// Number of complete frames that are lost: their worker or direction is unknown, or they follow invalid bytes.
    pub not_received_count: u64,
}

impl HandoffWriter {
    /// Makes a writer for each of `count` workers.
    pub fn each(pipe: OwnedFd, count: usize) -> Vec<HandoffWriter> {
        let pipe = Arc::new(Mutex::new(File::from(pipe)));
        (0..count).map(|worker| HandoffWriter { pipe: Arc::clone(&pipe), worker: worker as u16 }).collect()
    }

    /// Writes a packet of this direction as wire packets: segments or fragments.
    ///
    /// # Errors
    /// The reading end of the pipe is closed.
    pub fn write(&self, direction: usize, packet: &mut Packet) -> io::Result<()> {
        packet.finish_len();
        if packet.gso.is_none() {
            packet.complete_checksum();
        }
        // A packet that is written as fragments needs no length here: each fragment has a length of its own.
        let max_fragment_len =
            packet.max_fragment_len().filter(|_| packet.fragmentation.is_none()).unwrap_or_default() as u32;
        let mut bytes = Vec::new();
        let mut fragments = WirePackets::of(packet);
        while let Some(fragment) = fragments.next() {
            bytes.extend(self.worker.to_ne_bytes());
            bytes.push(direction as u8);
            for number in [max_fragment_len, packet.ip().id, fragment.frame_len() as u32] {
                bytes.extend(number.to_ne_bytes());
            }
            bytes.extend(fragment.header);
            bytes.extend(fragment.payload);
        }
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)
    }
}

/// Reads the frames of `count` workers until all writers have closed the pipe. If the pipe ends within a frame,
/// only this frame is lost.
pub fn read(pipe: OwnedFd, count: usize) -> Handoff {
    let mut pipe = BufReader::new(File::from(pipe));
    let mut handoff = Handoff { handed_frames: vec![Vec::new(); count], ..Handoff::default() };
    loop {
        match next(&mut pipe, &mut handoff) {
            Ok(true) => {}
            Ok(false) => return handoff,
            Err(_) => {
                handoff.truncated_count += 1;
                return handoff;
            }
        }
    }
}

/// Reads one frame, and stores it for its worker. Returns false at the end of the pipe.
fn next(pipe: &mut impl BufRead, handoff: &mut Handoff) -> io::Result<bool> {
    let mut bytes = [0; FRONT_LEN];
    let [first, rest @ ..] = &mut bytes;
    let Some(begins) = pipe.by_ref().bytes().next() else { return Ok(false) };
    *first = begins?;
    pipe.read_exact(rest)?;
    let front = FrameHeader::of(bytes);
    if front.len > FRAME_LEN_MAX {
        let mut behind = Vec::new();
        pipe.read_to_end(&mut behind)?;
        handoff.not_received_count += count_behind(&behind, handoff.handed_frames.len());
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "invalid frame in the hand-over from another process",
        ));
    }
    let mut frame = vec![0; front.len];
    pipe.read_exact(&mut frame)?;
    let FrameHeader { worker, direction, max_fragment_len, id, .. } = front;
    match handoff.handed_frames.get_mut(worker).filter(|_| direction < 2) {
        Some(to) => to.push(HandedFrame { direction, max_fragment_len, id, frame }),
        None => handoff.not_received_count += 1,
    }
    Ok(true)
}

/// Counts the complete frames after an invalid header. Frames count only in an unbroken sequence of at least two,
/// in which each frame starts where the previous one ends.
fn count_behind(bytes: &[u8], worker_count: usize) -> u64 {
    let front = |at: usize| bytes.get(at..)?.first_chunk().map(|front| FrameHeader::of(*front));
    let is_one = |front: &FrameHeader| {
        front.worker < worker_count && front.direction < 2 && (FRAME_LEN_MIN..=FRAME_LEN_MAX).contains(&front.len)
    };
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        let (mut end, mut row) = (at, 0);
        while let Some(front) = front(end).filter(is_one) {
            end += FRONT_LEN + front.len;
            row += u64::from(end <= bytes.len());
        }
        // A single match may be chance.
        (at, count) = if row > 1 { (end, count + row) } else { (at + 1, count) };
    }
    count
}

/// The header that precedes a frame in the pipe.
struct FrameHeader {
    worker: usize,
    direction: usize,
    max_fragment_len: u32,
    id: u32,
    /// Length of the frame without this header, in bytes.
    len: usize,
}

impl FrameHeader {
    fn of(bytes: [u8; FRONT_LEN]) -> FrameHeader {
        let [w0, w1, direction, p0, p1, p2, p3, i0, i1, i2, i3, l0, l1, l2, l3] = bytes;
        let [max_fragment_len, id, len] =
            [[p0, p1, p2, p3], [i0, i1, i2, i3], [l0, l1, l2, l3]].map(u32::from_ne_bytes);
        let worker = usize::from(u16::from_ne_bytes([w0, w1]));
        FrameHeader { worker, direction: usize::from(direction), max_fragment_len, id, len: len as usize }
    }
}

/// Length of a frame's header in the pipe, in bytes: worker (2), direction (1), fragment length (4), identification
/// (4) and frame length (4).
const FRONT_LEN: usize = 15;
/// Longest frame in the pipe, in bytes: the longest IP packet with any link header.
const FRAME_LEN_MAX: usize = 66 << 10;
/// Shortest frame in the pipe, in bytes: an IPv4 header.
const FRAME_LEN_MIN: usize = 20;
