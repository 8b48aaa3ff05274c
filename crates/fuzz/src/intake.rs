//! Frames of a batch -> the next frames of a fair intake, with a model that checks each.
//!
//! The model is one queue for each host and protocol. A frame that leaves or is evicted must be the oldest one of its
//! queue. The intake may know more flows than the model only where the frames of a host belong to several connections:
//! such frames must merely be in the intake.

use engine::{FairIntake, FrameSource, IntakeLimits, Secret};
use packet::Frame;
use sim::wire;
use std::collections::{BTreeMap, VecDeque};

/// A fair intake and its model.
pub struct Intake {
    intake: FairIntake,
    /// The queued frames by flow. The flow `None` contains the frames of unknown flows.
    queues: BTreeMap<Option<FlowId>, VecDeque<Vec<u8>>>,
    limits: IntakeLimits,
    arrived_count: usize,
    left_count: usize,
    evicted_count: usize,
}

/// A host, its IP version, and the protocol in IPv4.
type FlowId = (u16, bool, u8);

impl Intake {
    pub fn new(limits: IntakeLimits) -> Intake {
        Intake {
            intake: FairIntake::new(limits, Secret::new(7)),
            queues: BTreeMap::new(),
            limits,
            arrived_count: 0,
            left_count: 0,
            evicted_count: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.intake.is_empty()
    }

    /// Enqueues all frames, and dequeues the next ones: `count_max` frames at most. Returns the evicted frames.
    pub fn exchange(&mut self, frames: &mut Vec<Frame>, count_max: usize) -> Vec<Frame> {
        let mut all_evicted = Vec::new();
        for frame in frames.drain(..) {
            self.arrived_count += 1;
            let bytes = bytes_of(&frame).to_vec();
            self.queues.entry(flow_of(&frame)).or_default().push_back(bytes);
            let mut evicted = Vec::new();
            self.intake.enqueue(frame, FrameSource::Port, &mut evicted);
            evicted.iter().for_each(|(frame, _)| self.remove(frame));
            self.evicted_count += evicted.len();
            all_evicted.extend(evicted.into_iter().map(|(frame, _)| frame));
            let (count, memory) = (self.intake.count(), self.intake.memory());
            let is_within = count <= self.limits.frames && memory <= self.limits.memory;
            assert!(is_within || count == 1, "{count} frames of {memory} bytes in a fair intake");
        }
        let was_empty = self.intake.is_empty();
        let source = self.intake.dequeue(count_max, SLICE_LEN, frames);
        assert_eq!(source, (!was_empty).then_some(FrameSource::Port), "an intake with frames has a next one");
        frames.iter().for_each(|frame| self.remove(frame));
        self.left_count += frames.len();
        assert_eq!(
            self.arrived_count,
            self.left_count + self.evicted_count + self.intake.count(),
            "frames in a fair intake are lost or doubled"
        );
        all_evicted
    }

    /// Removes a frame from the model.
    fn remove(&mut self, frame: &Frame) {
        let (flow, bytes) = (flow_of(frame), bytes_of(frame));
        let queue = self.queues.entry(flow).or_default();
        let place = queue.iter().position(|queued| queued == bytes).expect("only queued frames leave, and once");
        assert!(place == 0 || flow.is_none(), "a frame of {flow:?} left before {place} earlier frames");
        queue.remove(place);
    }
}

/// Returns the flow of a frame; `None` if it may be of any connection.
fn flow_of(frame: &Frame) -> Option<FlowId> {
    let seen = wire::read(bytes_of(frame))?;
    let protocol = if seen.is_v6 { 0 } else { seen.protocol };
    Some((seen.from?, seen.is_v6, protocol))
}

fn bytes_of(frame: &Frame) -> &[u8] {
    match frame {
        Frame::Ip(packet) => packet.frame(),
        Frame::Other(raw, _) => raw.frame(),
    }
}

/// Bytes dequeued at once, at most.
const SLICE_LEN: usize = 64 << 10;
