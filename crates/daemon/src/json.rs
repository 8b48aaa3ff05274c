//! Any value -> a JSON object whose first key is the number of its schema.
//!
//! Every JSON output of the program passes here; docs/json.md describes them. The values know nothing of the number.

use serde::Serialize;

/// Number of the schema of all JSON outputs. It grows when a key is renamed, removed or gets another meaning, and
/// not when one is added. Version 0.1, which printed no number, had schema 1.
pub const SCHEMA: u32 = 2;

#[derive(Serialize)]
struct WithSchema<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// The object in one line, with its line end.
///
/// # Errors
/// The value is not an object.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&WithSchema { schema: SCHEMA, value })? + "\n")
}

/// The object in indented lines.
///
/// # Errors
/// The value is not an object.
pub fn indented(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&WithSchema { schema: SCHEMA, value })? + "\n")
}
