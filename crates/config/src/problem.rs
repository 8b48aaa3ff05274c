//! The mistakes in a configuration -> a line of output for each.
//!
//! All parts of the crate record mistakes in one list, so that a user sees all mistakes in the order of the lines.

use core::fmt;
use serde::Serialize;

/// One mistake in a configuration, or one setting that is valid but probably not intended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file's name, as the caller gave it.
    pub file: String,
    /// The place of the mistake in the file; `None` if the file could not be read or is too long.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// The key with its tables in front, such as `wide.mtu`; empty if the mistake is not in a key or value.
    pub key: String,
    /// Description of the mistake.
    pub what: String,
    /// The fix: a change of the file that removes the mistake.
    pub fix: String,
}

/// A place in a text. Lines and columns start at 1, as in editors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Line number, from 1.
    pub line: usize,
    /// Column in the line, in characters, from 1.
    pub column: usize,
}

/// All mistakes of a configuration, or all warnings about it, in the order of the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

/// The mistake in one value, and its fix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub what: String,
    pub fix: String,
}

/// The mistakes and warnings found so far.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    wrong: Vec<Note>,
    smells: Vec<Note>,
    /// Offset of the first line with a TOML syntax error, in bytes. Later lines may have been misread.
    garbled_at: Option<usize>,
    /// Names of tables that occur twice, or that also occur as a key with a value. Their content may have been
    /// misread.
    doubted: Vec<String>,
    /// Known keys that are present under a misspelt name.
    meant: Vec<String>,
}

#[derive(Debug)]
struct Note {
    at: usize,
    key: String,
    wrong: Wrong,
}

/// A text and the offset of each of its lines, in bytes.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl Problems {
    /// Returns the problem of a file that could not be read.
    pub(crate) fn unread(file: &str, what: String, fix: &str) -> Problems {
        let (file, fix) = (file.to_owned(), fix.to_owned());
        Problems(vec![Problem { file, place: None, key: String::new(), what, fix }])
    }

    /// Iterates over the problems in the order of the lines.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of problems.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Wrong {
    pub fn new(what: impl Into<String>, mend: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), fix: mend.into() }
    }
}

impl Notes {
    /// Adds a TOML syntax error.
    pub fn garbled(&mut self, line_at: usize, at: usize, key: String, wrong: Wrong) {
        self.garbled_at = Some(self.garbled_at.map_or(line_at, |first| first.min(line_at)));
        self.wrong.push(Note { at, key, wrong });
    }

    /// Adds the error that a table occurs twice, or that its name also occurs as a key with a value.
    pub fn twice(&mut self, at: usize, key: String, wrong: Wrong) {
        self.wrong(at, key.as_str(), wrong);
        self.doubted.push(key);
    }

    /// Records a known key that is present under a misspelt name.
    pub fn misspelt(&mut self, key: String) {
        self.meant.push(key);
    }

    /// Adds a mistake at offset `at` of the file, in bytes. Does nothing if this place may have been misread.
    pub fn wrong(&mut self, at: usize, key: impl Into<String>, wrong: Wrong) {
        let key = key.into();
        if self.garbled_at.is_none_or(|garbled_at| at < garbled_at) && !self.doubted.contains(&key) {
            self.wrong.push(Note { at, key, wrong });
        }
    }

    /// Adds the error of a missing key. Does nothing if a part of the file may have been misread, or if the key is
    /// present under a misspelt name.
    pub fn missing(&mut self, at: usize, key: String, what: impl Into<String>, mend: impl Into<String>) {
        let is_in = |table: &String| {
            key.strip_prefix(table.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !self.meant.iter().any(is_in) {
            self.error(at, key, what, mend);
        }
    }

    /// Adds an error about a combination of keys. Does nothing if a part of the file may have been misread.
    pub fn error(&mut self, at: usize, key: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) {
        if self.garbled_at.is_none() {
            self.wrong(at, key, Wrong::new(what, mend));
        }
    }

    /// Adds a warning about a setting that is valid but probably not intended.
    pub fn warning(&mut self, at: usize, key: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) {
        self.smells.push(Note { at, key: key.into(), wrong: Wrong::new(what, mend) });
    }

    /// Returns the errors and the warnings, each in the order of the lines of `text`.
    pub fn sorted(self, text: &str, file: &str) -> [Problems; 2] {
        let lines = Lines::new(text);
        [self.wrong, self.smells].map(|mut notes| {
            notes.sort_by_key(|note| note.at);
            let problem = |Note { at, key, wrong: Wrong { what, fix: mend } }| Problem {
                file: file.to_owned(),
                place: Some(lines.place(at)),
                key,
                what,
                fix: mend,
            };
            Problems(notes.into_iter().map(problem).collect())
        })
    }
}

impl Lines<'_> {
    fn new(text: &str) -> Lines<'_> {
        let behind = text.bytes().enumerate().filter(|(_, letter)| *letter == b'\n').map(|(at, _)| at + 1);
        Lines { text, starts: core::iter::once(0).chain(behind).collect() }
    }

    fn place(&self, at: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= at);
        let start = self.starts[line - 1];
        let before = self.text.get(start..at).unwrap_or_default();
        Place { line, column: before.chars().count() + 1 }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Place { line, column }) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}; {}", self.what, self.fix)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            let before = if number == 0 { "" } else { "\n" };
            write!(f, "{before}{problem}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Problems {}
