//! Errors of the TOML parser -> mistakes with their places and fixes.
//!
//! The messages of the parser name tokens, but a user needs the key, the key's line and a fix.

use crate::problem::{Notes, Wrong};
use crate::table::shown_key;
use crate::value::either;
use toml::de::Error;

/// Records the parser's errors, at most [`NOTED_MAX`].
pub(crate) fn note(text: &str, errors: &[Error], notes: &mut Notes) {
    let mut last_line_at = None;
    for error in errors.iter().take(NOTED_MAX) {
        let at = error.span().map_or(text.len(), |span| span.start).min(text.trim_end().len());
        let line_at = start_of_line(text, at);
        if error.message() == "duplicate key" {
            duplicate(text, at, line_at, notes);
            continue;
        }
        if let Some(end) = end_of_list(text, at, line_at, error.message()) {
            let line_at = start_of_line(text, end);
            let wrong = Wrong::new("the list does not end", "write `]` here");
            notes.garbled(line_at, end, name(&key_of(text, line_at)), wrong);
            // The rest of the text was read as a part of the list.
            return;
        }
        // Later errors in a line follow from the first.
        if last_line_at != Some(line_at) {
            last_line_at = Some(line_at);
            notes.garbled(line_at, at, name(&key_of(text, line_at)), wrong(error.message()));
        }
    }
}

fn duplicate(text: &str, at: usize, line_at: usize, notes: &mut Notes) {
    let key = key_of(text, line_at);
    let first = first_line_of(text, &key, line_at);
    let first = first.map_or(String::new(), |number| format!(", first in line {number}"));
    let mend = if line(text, line_at).trim_start().starts_with("[[") {
        format!("write [[{}]] each time, with two brackets", name(&key))
    } else {
        "remove one of them".to_owned()
    };
    let wrong = Wrong::new(format!("duplicate key{first}"), mend);
    if header(line(text, line_at)).is_some() {
        notes.twice(at, name(&key), wrong);
    } else {
        notes.wrong(at, name(&key), wrong);
    }
}

/// Returns the offset at which an unclosed list should end, if the parser's error is due to such a list. This is
/// the end of the text before the next key or table.
fn end_of_list(text: &str, at: usize, line_at: usize, message: &str) -> Option<usize> {
    let is_of_list = message.contains("array") && !message.contains("array table");
    let line = line(text, line_at);
    let is_new = header(line).is_some() || line.split_once('=').is_some_and(|(key, _)| words(key).is_some());
    let is_first = text.get(line_at..at)?.trim().is_empty();
    if !(is_of_list && is_new && is_first) {
        return None;
    }
    let is_idle = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let before = text.get(..line_at)?;
    let idle_len: usize = before.split_inclusive('\n').rev().take_while(is_idle).map(str::len).sum();
    Some(before.get(..before.len() - idle_len)?.trim_end().len())
}

/// Converts a message of the parser to an error, with a fix that names the expected tokens.
fn wrong(message: &str) -> Wrong {
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let named = |expected: &str| match expected {
        "newline" => "a new line".to_owned(),
        "key" | "value" => format!("a {expected}"),
        other => other.to_owned(),
    };
    let expected: Vec<String> = expected.split(", ").filter(|word| !word.is_empty()).map(named).collect();
    let mend = match expected.as_slice() {
        [] => "see https://toml.io for how it is written".to_owned(),
        [nothing] if nothing == "nothing" => "remove it".to_owned(),
        words => format!("write {} here", either(words, "or")),
    };
    match what {
        "string values must be quoted" | "invalid boolean" | "invalid float" => {
            Wrong::new("this is not a value", "write a number, true, false, or a string in quotation marks")
        }
        "missing escaped value" => Wrong::new("unknown escape sequence", "write \\\\ for a single \\"),
        "invalid basic string" | "invalid literal string" if expected.len() == 1 => {
            Wrong::new("the string does not end", mend)
        }
        _ => Wrong::new(format!("this is not TOML: {what}"), mend),
    }
}

/// Returns the key in a line, with the names of the key's tables in front.
fn key_of(text: &str, line_at: usize) -> Vec<&str> {
    let line = line(text, line_at);
    if let Some(table) = header(line) {
        return table;
    }
    let before = text.get(..line_at).unwrap_or_default();
    let mut key = before.lines().rev().find_map(header).unwrap_or_default();
    key.extend(own_key(line).unwrap_or_default());
    key
}

/// Returns the number of the first earlier line with this key in the same table.
fn first_line_of(text: &str, key: &[&str], line_at: usize) -> Option<usize> {
    let mut table = Vec::new();
    let mut found = None;
    for (number, line) in text.get(..line_at)?.lines().enumerate() {
        let here = match header(line) {
            Some(named) => {
                let is_of_list = line.trim_start().starts_with("[[");
                if is_of_list && named.len() < key.len() && key.starts_with(&named) {
                    found = None;
                }
                table = named;
                table.clone()
            }
            None => own_key(line).map(|own| [table.as_slice(), &own].concat()).unwrap_or_default(),
        };
        if here == key {
            found = found.or(Some(number + 1));
        }
    }
    found
}

fn start_of_line(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1)
}

fn line(text: &str, line_at: usize) -> &str {
    text.get(line_at..).and_then(|rest| rest.lines().next()).unwrap_or_default()
}

/// Returns the name of the table that starts in this line, as the parts of a dotted key.
fn header(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('[')?;
    words(inner.trim_start_matches('[').split([']', '#']).next()?)
}

/// Returns the key at the start of a line.
fn own_key(line: &str) -> Option<Vec<&str>> {
    let own = line.split(['=', '#']).next()?;
    words(own).or_else(|| words(own.split_whitespace().next()?.trim_end_matches(':')))
}

/// Returns the parts of a dotted key; `None` if the text does not look like a key.
fn words(text: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = text.split('.').map(|word| word.trim().trim_matches('"')).collect();
    let is_bare = |word: &&str| shown_key(word) == **word;
    words.iter().all(is_bare).then_some(words)
}

fn name(key: &[&str]) -> String {
    key.join(".")
}

/// Maximum number of recorded syntax errors. A file that is not a configuration may have an error in every line.
const NOTED_MAX: usize = 100;
