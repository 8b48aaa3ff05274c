//! What one process holds in, a pipe out; and in another process back: nothing changes its order, and what is lost
//! is counted.
//!
//! Packets are spelled out: what was to become longer goes over in fragments and segments, from which it still may.
//! Before each stand the worker's number, the way, how long its pieces were and their identification where it came
//! in some, and the length, in the machine's order of bytes: both ends are of one machine.

use engine::WirePackets;
use packet::Packet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Where one worker writes what it holds.
#[derive(Clone, Debug)]
pub struct HandoffWriter {
    pipe: Arc<Mutex<File>>,
    worker: u16,
}

/// A frame that somebody else held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedFrame {
    /// The way that it was on.
    pub direction: usize,
    /// Longest piece that it came in, IP header counted, in bytes; 0 where it came whole.
    pub max_fragment_len: u32,
    /// The identification of those pieces.
    pub id: u32,
    /// The frame, with its link header.
    pub frame: Vec<u8>,
}

/// All that another process left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handoff {
    /// The frames of each worker.
    pub legacies: Vec<Vec<HandedFrame>>,
    /// Frames that came cut, and are lost.
    pub cut_count: u64,
    /// Whole frames that are lost: they are for no worker or way that there is, or came behind what is no frame.
    pub untaken_count: u64,
}

impl HandoffWriter {
    /// One for each of `count` workers.
    pub fn each(pipe: OwnedFd, count: usize) -> Vec<HandoffWriter> {
        let pipe = Arc::new(Mutex::new(File::from(pipe)));
        (0..count).map(|worker| HandoffWriter { pipe: Arc::clone(&pipe), worker: worker as u16 }).collect()
    }

    /// Writes the packets that stand for this one on the wire.
    ///
    /// # Errors
    /// Nobody reads.
    pub fn write(&self, direction: usize, packet: &mut Packet) -> io::Result<()> {
        packet.finish_len();
        if packet.gso.is_none() {
            packet.complete_checksum();
        }
        // Of fragments that it leaves in, none came in any.
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

/// Reads until all who write have ended, for each of `count` workers. Where the pipe breaks off within a frame,
/// that one is lost, and what came before it is whole.
pub fn read(pipe: OwnedFd, count: usize) -> Handoff {
    let mut pipe = BufReader::new(File::from(pipe));
    let mut heritage = Handoff { legacies: vec![Vec::new(); count], ..Handoff::default() };
    loop {
        match next(&mut pipe, &mut heritage) {
            Ok(true) => {}
            Ok(false) => return heritage,
            Err(_) => {
                heritage.cut_count += 1;
                return heritage;
            }
        }
    }
}

/// Reads a frame for the worker that it is for; false where nothing more comes.
fn next(pipe: &mut impl BufRead, heritage: &mut Handoff) -> io::Result<bool> {
    let mut bytes = [0; FRONT_LEN];
    let [first, rest @ ..] = &mut bytes;
    let Some(begins) = pipe.by_ref().bytes().next() else { return Ok(false) };
    *first = begins?;
    pipe.read_exact(rest)?;
    let front = FrameHeader::of(bytes);
    if front.len > FRAME_LEN_MAX {
        let mut behind = Vec::new();
        pipe.read_to_end(&mut behind)?;
        heritage.untaken_count += count_behind(&behind, heritage.legacies.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, "what another process held is no frame"));
    }
    let mut frame = vec![0; front.len];
    pipe.read_exact(&mut frame)?;
    let FrameHeader { worker, direction, max_fragment_len, id, .. } = front;
    match heritage.legacies.get_mut(worker).filter(|_| direction < 2) {
        Some(to) => to.push(HandedFrame { direction, max_fragment_len: max_fragment_len, id, frame }),
        None => heritage.untaken_count += 1,
    }
    Ok(true)
}

/// Whole frames that can be told among bytes behind what is no frame: those in rows, each of which begins where the
/// one before it ends.
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
        // One alone may be anything.
        (at, count) = if row > 1 { (end, count + row) } else { (at + 1, count) };
    }
    count
}

/// What stands before a frame.
struct FrameHeader {
    worker: usize,
    direction: usize,
    max_fragment_len: u32,
    id: u32,
    /// Of the frame, in bytes.
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

/// What stands before a frame: two bytes of number, one of way, three times four of what it came in and its length.
const FRONT_LEN: usize = 15;
/// Longest frame, in bytes: the longest packet behind any link header.
const FRAME_LEN_MAX: usize = 66 << 10;
/// Shortest frame, in bytes: an IPv4 header.
const FRAME_LEN_MIN: usize = 20;
