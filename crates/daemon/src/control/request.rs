//! A line of JSON -> a request to a gateway.
//!
//! Server and clients share this format.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// A request to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Return the statistics.
    Status {},
    /// Switch a stage off or on.
    Bypass {
        /// The stage's name in a configuration.
        stage: String,
        /// The direction in which the stage is switched.
        #[serde(default, alias = "way")]
        direction: Direction,
        /// The stage's new state.
        switch: Toggle,
    },
    /// Adopt another configuration.
    Reload {
        /// Absolute path of the configuration file.
        config: PathBuf,
    },
    /// Restart without packet loss.
    Restart {},
    /// End the gateway.
    Stop {},
    /// Return the version, the gateway's name and the process ID.
    Version {},
}

/// The direction in which a stage is switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Packets toward the narrow side.
    ToNarrow,
    /// Packets toward the wide side.
    ToWide,
    /// Both directions. A direction without the stage is unchanged.
    #[default]
    Both,
}

/// State of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Toggle {
    /// The stage processes packets.
    On,
    /// The stage is bypassed.
    Off,
}

impl Request {
    /// Parses a request.
    ///
    /// # Errors
    /// The request is invalid. The text names the mistake and a way to correct it.
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

/// The names of all requests.
const REQUESTS: [&str; 6] = ["status", "bypass", "reload", "restart", "stop", "version"];
const KNOWN: &str = "use status, bypass, reload, restart, stop or version";
const EXAMPLE: &str = r#"{"do":"status"}"#;
