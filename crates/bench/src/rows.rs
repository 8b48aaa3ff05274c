//! What was measured in, one row for each system out.

use crate::workload::Function;
use serde::Serialize;

/// One system at one workload.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Row {
    /// What was done.
    pub function: Function,
    /// With which packets, and how much of it.
    pub workload: String,
    /// Who did it.
    pub system: String,
    /// Nanoseconds a packet, the median of all rounds.
    pub ns: Option<f64>,
    /// The fastest round.
    pub ns_min: Option<f64>,
    /// The slowest.
    pub ns_max: Option<f64>,
    /// The median of each round's ratio to Wideload.
    pub ratio: Option<f64>,
    /// Instructions a packet.
    pub instructions: Option<f64>,
    /// Bits of packets that came in, IP headers counted, in a nanosecond.
    pub gbit_s: Option<f64>,
    /// Packets that came out of one section.
    pub completed: Option<u64>,
    /// What it delivers.
    #[serde(skip)]
    pub delivers: String,
    /// Its version.
    #[serde(skip)]
    pub version: String,
    /// What is to be said of its answers.
    #[serde(skip)]
    pub remark: Option<String>,
    /// What is wrong with it.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// A row as other programs read it.
#[derive(Serialize)]
pub struct JsonRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    note: String,
}

impl Row {
    /// Is it a peer, and did it do the work?
    pub fn is_sound_peer(&self) -> bool {
        let is_ours = self.system.starts_with(WIDELOAD) || OURS.contains(&self.system.as_str());
        self.fault.is_none() && self.ns.is_some() && !is_ours
    }

    /// What it delivers, and what is to be said of it.
    pub fn note(&self) -> String {
        let delivers = Some(self.delivers.as_str()).filter(|words| !words.is_empty());
        let words = [delivers, self.remark.as_deref(), self.fault.as_deref()];
        words.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// As other programs read it.
    pub fn to_json(&self) -> JsonRow<'_> {
        JsonRow { row: self, note: self.note() }
    }
}

/// The engine.
pub const WIDELOAD: &str = "wideload";
/// A loop that copies.
pub const PLAIN_COPY: &str = "plain copy";
/// A loop that copies and sums.
pub const COPY_AND_SUM: &str = "copy and sum";
/// The engine at the traffic that suits it best.
pub const BEST_CASE: &str = "wideload, best case";
/// What is no peer, beside builds of ours.
const OURS: [&str; 2] = [PLAIN_COPY, COPY_AND_SUM];
