//! Any value -> a JSON object whose first key is the schema number.
//!
//! This module formats every JSON output of the program; docs/json.md describes the outputs. The values themselves
//! do not contain the schema number.

use serde::Serialize;

/// Number of the schema of all JSON outputs. The number grows when a key is renamed, removed or gets another
/// meaning. It does not grow when a key is added. Version 0.1, which printed no number, had schema 1.
pub const SCHEMA: u32 = 2;

#[derive(Serialize)]
struct WithSchema<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Returns the JSON object in one line, with a line end.
///
/// # Errors
/// The value is not an object.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&WithSchema { schema: SCHEMA, value })? + "\n")
}

/// Returns the JSON object in indented lines.
///
/// # Errors
/// The value is not an object.
pub fn indented(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&WithSchema { schema: SCHEMA, value })? + "\n")
}
