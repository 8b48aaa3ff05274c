//! Attack packets -> packets of unrelated hosts between them, and a check that these hosts get all their packets.
//!
//! An attack succeeds if it harms unrelated hosts.

use super::craft::{self, PSH, Tcp};
use super::rig::Verdict;
use crate::oracle::Datagrams;
use crate::pattern::Pattern;
use crate::wire::{self, TCP, TCP_LEN, UDP, UDP_LEN, WireFacts};
use packet::Time;
use std::collections::BTreeSet;

/// Traffic between hosts that are unrelated to the attack: datagrams in two fragments, and a stream of segments.
pub struct BackgroundTraffic {
    every: u64,
    turn: u64,
    sent: u64,
    /// Numbers of datagrams that have not been delivered yet.
    open: BTreeSet<u64>,
    late: Option<Vec<u8>>,
    datagrams: Datagrams,
    /// Number of stream bytes sent, and number of stream bytes delivered.
    stream: [u64; 2],
}

impl BackgroundTraffic {
    /// Background traffic that is sent once per `every` packets of the attack (at least two).
    pub fn new(every: u64) -> BackgroundTraffic {
        let every = every.max(2);
        BackgroundTraffic {
            every,
            turn: 0,
            sent: 0,
            open: BTreeSet::new(),
            late: None,
            datagrams: Datagrams::default(),
            stream: [0; 2],
        }
    }

    /// Calls `send` with the background packets that are due.
    pub fn each_due(&mut self, mut send: impl FnMut(Vec<u8>)) {
        self.turn += 1;
        match self.turn % self.every {
            0 => {
                let [first, second] = self.datagram();
                self.late = Some(second);
                send(first);
                self.segments().into_iter().for_each(send);
            }
            1 => self.late.take().into_iter().for_each(send),
            _ => {}
        }
    }

    /// Whether a packet is background traffic.
    pub fn is_of_them(frame: &[u8]) -> bool {
        wire::destination(frame) == Some(TO)
    }

    /// Checks the payload of a background packet that the gateway has transmitted.
    pub fn take(&mut self, now: Time, frame: &[u8], seen: &WireFacts) -> Verdict {
        let upper = craft::upper(frame, seen);
        if seen.fragment.is_some() {
            let mut whole = None;
            self.datagrams.push(now, seen, upper, |upper| whole = Some(upper.to_vec()));
            return whole.map_or(Ok(()), |upper| self.take_datagram(&upper));
        }
        if seen.protocol == UDP { self.take_datagram(upper) } else { self.take_segment(upper) }
    }

    /// Checks that all background packets were delivered.
    pub fn check_end(&self) -> Verdict {
        // The second fragment of the last datagram may not have been sent yet.
        let waiting = u64::from(self.late.is_some());
        if self.open.len() as u64 > waiting {
            return Err(format!("{} of {} background datagrams did not arrive", self.open.len(), self.sent));
        }
        let [sent, arrived] = self.stream;
        if sent != arrived {
            return Err(format!("{arrived} of {sent} bytes of a background stream arrived"));
        }
        Ok(())
    }

    fn datagram(&mut self) -> [Vec<u8>; 2] {
        let number = self.sent;
        self.sent += 1;
        self.open.insert(number);
        // Many source hosts, so that no pair of hosts has a high rate.
        let from = FROM + (number % FROM_COUNT) as u16;
        let head = craft::head(false, from, TO, UDP, (number / FROM_COUNT) as u32 & 0xFFFF);
        let mut payload = number.to_be_bytes().to_vec();
        payload.extend(craft::bytes(number, PAYLOAD_LEN));
        let upper = craft::udp(&head, 9, &payload);
        let mut fragments = craft::fragments(&head, &upper, ROOM).into_iter();
        [fragments.next().unwrap_or_default(), fragments.next().unwrap_or_default()]
    }

    fn take_datagram(&mut self, upper: &[u8]) -> Verdict {
        let payload = upper.get(UDP_LEN..).unwrap_or_default();
        let number = payload.first_chunk().map(|number| u64::from_be_bytes(*number));
        let is_same = number.is_some_and(|number| payload[8..] == craft::bytes(number, PAYLOAD_LEN));
        match number {
            Some(number) if is_same && self.open.remove(&number) => Ok(()),
            _ => Err(format!(
                "a background datagram arrives changed or twice: number {number:?}, {} bytes",
                upper.len()
            )),
        }
    }

    fn segments(&mut self) -> Vec<Vec<u8>> {
        let segments = (0..3).map(|number| {
            let head = craft::head(false, FROM, TO, TCP, (self.sent as u32 * 3 + number) & 0xFFFF);
            let mut payload = [0; SEGMENT_LEN];
            Pattern::new(STREAM).fill(self.stream[0], &mut payload);
            let flags = craft::ACK | if number == 2 { PSH } else { 0 };
            let said = Tcp { flags, ..Tcp::of([4, 4], self.stream[0] as u32) };
            self.stream[0] += SEGMENT_LEN as u64;
            craft::segment(&head, &said, &payload)
        });
        segments.collect()
    }

    fn take_segment(&mut self, upper: &[u8]) -> Verdict {
        let payload = upper.get(TCP_LEN..).unwrap_or_default();
        let arrived = self.stream[1];
        let is_next = wire::long(upper, 4) == arrived as u32;
        if !is_next || Pattern::new(STREAM).first_wrong(arrived, payload).is_some() {
            return Err(format!("a background segment arrives changed or out of order after {arrived} bytes"));
        }
        self.stream[1] += payload.len() as u64;
        Ok(())
    }
}

/// Number of the first background host.
const FROM: u16 = 20_000;
const FROM_COUNT: u64 = 64;
const TO: u16 = 30_000;
/// Payload length of a datagram in bytes, without the datagram's number.
const PAYLOAD_LEN: usize = 1_800;
const ROOM: usize = 1_400;
const SEGMENT_LEN: usize = 600;
/// The key of the pattern of the stream's bytes.
const STREAM: u64 = 0xB757;
