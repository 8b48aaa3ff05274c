//! A line of JSON -> a request to a gateway.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// A request to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Return the statistics.
    Status {},
    /// Switch a stage off, or on again.
    Bypass {
        /// The stage, by its name in configurations.
        stage: String,
        /// The direction.
        #[serde(default, alias = "way")]
        direction: Direction,
        /// The new state.
        switch: Toggle,
    },
    /// Change to another configuration.
    Reload {
        /// Absolute path of its file.
        config: PathBuf,
    },
    /// Restart without packet loss.
    Restart {},
    /// End.
    Stop {},
    /// Return version, name and process.
    Version {},
}

/// A direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Packets that leave by the narrow side.
    ToNarrow,
    /// Packets that leave by the wide side.
    ToWide,
    /// Both directions, as far as they have the stage.
    #[default]
    Both,
}

/// State of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Toggle {
    /// The stage works.
    On,
    /// The stage is left out.
    Off,
}

impl Request {
    /// Parses the request in a line.
    ///
    /// # Errors
    /// The mistake, and the remedy.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| {
            format!("the request is not JSON: {error}; send one object per line, such as {EXAMPLE}")
        })?;
        let Value::Object(fields) = &value else {
            return Err(format!("the request is not a JSON object; send one, such as {EXAMPLE}"));
        };
        let Some(what) = fields.get("do").and_then(Value::as_str) else {
            return Err(format!("the request lacks the field \"do\"; {KNOWN}"));
        };
        if !REQUESTS.contains(&what) {
            return Err(format!("{what}: unknown request; {KNOWN}"));
        }
        let what = what.to_owned();
        serde_json::from_value(value).map_err(|error| format!("{what}: {error}"))
    }
}

/// The requests by their names.
const REQUESTS: [&str; 6] = ["status", "bypass", "reload", "restart", "stop", "version"];
const KNOWN: &str = "use status, bypass, reload, restart, stop or version";
const EXAMPLE: &str = r#"{"do":"status"}"#;
