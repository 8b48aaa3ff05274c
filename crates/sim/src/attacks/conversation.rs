//! A TCP connection through a border -> its frames, and those that leave.

use super::craft::{self, ACK, SYN, Tcp, head};
use super::fragments::Clock;
use super::holds;
use super::rig::{Rig, Verdict};
use crate::wire::{Head, TCP};
use engine::Toward;

/// A TCP connection from the wide host [`WIDE`] to a narrow host, through a border.
pub struct Conversation {
    pub is_v6: bool,
    /// Number of the narrow host.
    pub host: u16,
    /// Port of the narrow host.
    pub port: u16,
    /// The next bytes of the data in each direction.
    pub seqs: [u32; 2],
    /// IP ID of the last packet.
    pub id: u32,
}

impl Conversation {
    /// Opens a connection.
    pub fn open(
        testbed: &mut Rig,
        now: &mut Clock,
        is_v6: bool,
        host: u16,
        seed: u64,
    ) -> Result<Conversation, String> {
        let mut conversation = Conversation { is_v6, host, port: 80, seqs: [seed as u32, 1], id: 0 };
        conversation.shake_hands(testbed, now)?;
        Ok(conversation)
    }

    pub fn shake_hands(&mut self, testbed: &mut Rig, now: &mut Clock) -> Verdict {
        let syn = |seq, ack, flags, options| Tcp { ports: [0; 2], seq, ack, flags, window: 1_000, options };
        let [narrow, wide] = [Toward::Narrow, Toward::Wide].map(Toward::direction);
        let seqs = self.seqs;
        self.seqs = seqs.map(|seq| seq.wrapping_add(1));
        let first = self.frame(Toward::Narrow, syn(seqs[narrow], 0, SYN, &[2, 4, 34, 246]), &[]);
        let second = syn(seqs[wide], self.seqs[narrow], SYN | ACK, &[2, 4, 5, 180]);
        let second = self.frame(Toward::Wide, second, &[]);
        let third = self.frame(Toward::Narrow, syn(self.seqs[narrow], self.seqs[wide], ACK, &[]), &[]);
        testbed.push(now.tick(), Toward::Narrow, &first)?;
        testbed.push(now.tick(), Toward::Wide, &second)?;
        testbed.push(now.tick(), Toward::Narrow, &third)
    }

    /// Sends data toward this side: one segment of a wide host, or segments of a narrow one that fill a wide packet.
    /// Returns the packets that leave.
    pub fn send(&mut self, testbed: &mut Rig, now: &mut Clock, toward: Toward) -> Result<Vec<Vec<u8>>, String> {
        let (len, count) = if toward == Toward::Narrow { (SEGMENT_LEN, 1) } else { (NARROW_SEGMENT_LEN, 6) };
        let mut frames = Vec::new();
        for _ in 0..count {
            let seq = self.next_seq(toward);
            let said = Tcp { ack: self.next_seq(toward.other()), ..Tcp::of([0; 2], seq) };
            frames.push(self.frame(toward, said, &craft::bytes(u64::from(seq), len)));
            self.seqs[toward.direction()] = seq.wrapping_add(len as u32);
        }
        testbed.push_burst(now.tick(), toward, frames.iter().map(Vec::as_slice))?;
        let mut left: Vec<_> = testbed.left().map(|out| out.frame.to_vec()).collect();
        testbed.rest()?;
        left.extend(testbed.left().map(|out| out.frame.to_vec()));
        holds(!left.is_empty(), || "no data leaves".to_owned())?;
        Ok(left)
    }

    /// The next byte of the data toward this side.
    pub fn next_seq(&self, toward: Toward) -> u32 {
        self.seqs[toward.direction()]
    }

    pub fn frame(&mut self, toward: Toward, said: Tcp<'_>, payload: &[u8]) -> Vec<u8> {
        self.id += 1;
        let ports = [self.port, 443];
        let (from, to, ports) = match toward {
            Toward::Narrow => (WIDE, self.host, [ports[1], ports[0]]),
            Toward::Wide => (self.host, WIDE, ports),
        };
        let head = Head { dont_fragment: true, ..head(self.is_v6, from, to, TCP, self.id & 0xFFFF) };
        craft::segment(&head, &Tcp { ports, ..said }, payload)
    }
}

/// Number of the wide host.
pub const WIDE: u16 = 20_500;
/// Payload of a wide segment, in bytes.
const SEGMENT_LEN: usize = 8_900;
/// Payload of a narrow segment, in bytes.
const NARROW_SEGMENT_LEN: usize = 1_440;
