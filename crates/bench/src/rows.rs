//! Measurements -> one row for each system.

use crate::workload::Function;
use serde::Serialize;

/// One system at one workload.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Row {
    /// The function.
    pub function: Function,
    /// The packets and the extent of the work.
    pub workload: String,
    /// The system.
    pub system: String,
    /// Nanoseconds per packet, the median of all rounds.
    pub ns: Option<f64>,
    /// The fastest round.
    pub ns_min: Option<f64>,
    /// The slowest.
    pub ns_max: Option<f64>,
    /// The median of each round's ratio to Wideload.
    pub ratio: Option<f64>,
    /// Instructions per packet.
    pub instructions: Option<f64>,
    /// Rate of input packets, IP headers included.
    pub gbit_s: Option<f64>,
    /// Output packets of one section.
    pub completed: Option<u64>,
    /// Its output.
    #[serde(skip)]
    pub delivers: String,
    /// Its version.
    #[serde(skip)]
    pub version: String,
    /// A remark about its output.
    #[serde(skip)]
    pub remark: Option<String>,
    /// Its fault.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// A row for other programs.
#[derive(Serialize)]
pub struct JsonRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    note: String,
}

impl Row {
    /// Whether it is a peer that did the work correctly.
    pub fn is_sound_peer(&self) -> bool {
        let is_ours = self.system.starts_with(WIDELOAD) || OURS.contains(&self.system.as_str());
        self.fault.is_none() && self.ns.is_some() && !is_ours
    }

    /// Its output, and the remark about it.
    pub fn note(&self) -> String {
        let delivers = Some(self.delivers.as_str()).filter(|words| !words.is_empty());
        let words = [delivers, self.remark.as_deref(), self.fault.as_deref()];
        words.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// The row for other programs.
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
/// The engine with the cheapest traffic.
pub const BEST_CASE: &str = "wideload, best case";
/// Systems that are no peers, beside builds of Wideload.
const OURS: [&str; 2] = [PLAIN_COPY, COPY_AND_SUM];
