//! A line of JSON -> what a gateway is asked to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// What a gateway can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How are things?
    Status {},
    /// Leave a stage out, or have it again.
    Bypass {
        /// The stage, as configurations name it.
        stage: String,
        /// On which way.
        #[serde(default, alias = "way")]
        direction: Direction,
        /// Is it to work?
        switch: Toggle,
    },
    /// Go on as another configuration says.
    Reload {
        /// Its file, by its whole path.
        config: PathBuf,
    },
    /// Start anew, without losing a packet.
    Restart {},
    /// End.
    Stop {},
    /// Who are you?
    Version {},
}

/// Which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// What leaves by the narrow side.
    ToNarrow,
    /// What leaves by the wide side.
    ToWide,
    /// Both, as far as they have the stage.
    #[default]
    Both,
}

/// Whether a stage is to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Toggle {
    /// It is.
    On,
    /// It is not.
    Off,
}

impl Request {
    /// A request that stands in a line.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| format!("this is no JSON: {error}; give one object a line, such as {EXAMPLE}"))?;
        let Value::Object(fields) = &value else {
            return Err(format!("this is no object; give one, such as {EXAMPLE}"));
        };
        let Some(what) = fields.get("do").and_then(Value::as_str) else {
            return Err(format!("there is no \"do\" that says what to do; {KNOWN}"));
        };
        if !REQUESTS.contains(&what) {
            return Err(format!("{what}: there is no such request; {KNOWN}"));
        }
        let what = what.to_owned();
        serde_json::from_value(value).map_err(|error| format!("{what}: {error}"))
    }
}

/// The requests by their names.
const REQUESTS: [&str; 6] = ["status", "bypass", "reload", "restart", "stop", "version"];
const KNOWN: &str = "ask for status, bypass, reload, restart, stop or version";
const EXAMPLE: &str = r#"{"do":"status"}"#;
