//! Measurements -> one row for each system and workload.
//!
//! Rows are the common form of tables, the page and the JSON output.

use crate::workload::Function;
use serde::Serialize;

/// Results of one system at one workload.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Row {
    /// Function that was measured.
    pub function: Function,
    /// Name of the packets and the extent of the work.
    pub workload: String,
    /// Name of the system.
    pub system: String,
    /// Nanoseconds per packet, the median of all rounds; `None` without a result.
    pub ns: Option<f64>,
    /// Nanoseconds per packet in the fastest round.
    pub ns_min: Option<f64>,
    /// Nanoseconds per packet in the slowest round.
    pub ns_max: Option<f64>,
    /// Median of the ratios to Wideload's nanoseconds in each round.
    pub ratio: Option<f64>,
    /// Instructions per packet; `None` if not counted.
    pub instructions: Option<f64>,
    /// Rate of input packets, IP headers included, in 10^9 bits per second.
    pub gbit_s: Option<f64>,
    /// Number of packets that one section delivers.
    pub completed: Option<u64>,
    /// Description of the system's output.
    #[serde(skip)]
    pub delivers: String,
    /// Version of the system.
    #[serde(skip)]
    pub version: String,
    /// A remark about the system's output, such as checksums left to a later stage.
    #[serde(skip)]
    pub remark: Option<String>,
    /// The reason why the system has no correct result.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// A row in the form of the JSON output.
#[derive(Serialize)]
pub struct JsonRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    note: String,
}

impl Row {
    /// Whether the row is of a peer that did the work correctly.
    pub fn is_sound_peer(&self) -> bool {
        let is_ours = self.system.starts_with(WIDELOAD) || OURS.contains(&self.system.as_str());
        self.fault.is_none() && self.ns.is_some() && !is_ours
    }

    /// Returns the description of the output, the remark and the fault, separated by semicolons.
    pub fn note(&self) -> String {
        let delivers = Some(self.delivers.as_str()).filter(|words| !words.is_empty());
        let words = [delivers, self.remark.as_deref(), self.fault.as_deref()];
        words.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Returns the row in the form of the JSON output.
    pub fn to_json(&self) -> JsonRow<'_> {
        JsonRow { row: self, note: self.note() }
    }
}

/// Name of the engine's rows.
pub const WIDELOAD: &str = "wideload";
/// Name of the loop that only copies.
pub const PLAIN_COPY: &str = "plain copy";
/// Name of the loop that copies and computes the sum of the bytes.
pub const COPY_AND_SUM: &str = "copy and sum";
/// Name of the engine's rows with the cheapest traffic.
pub const BEST_CASE: &str = "wideload, best case";
/// Systems of this program that are neither peers nor builds of Wideload.
const OURS: [&str; 2] = [PLAIN_COPY, COPY_AND_SUM];
