//! What is wrong with a configuration in, a line for each out.

use core::fmt;
use serde::Serialize;

/// One thing that is wrong with a configuration, or that smells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// Where in it; none where the file could not be read at all.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// The key, with its tables in front: `wide.mtu`. Empty where it is about no key.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// A place in a text, as editors count: both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The letter in it.
    pub column: usize,
}

/// All that is wrong, or that smells, in the order of the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

/// What is wrong with one value, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub what: String,
    pub fix: String,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    wrong: Vec<Note>,
    smells: Vec<Note>,
    /// The line that is the first that is no TOML begins here: what follows may have been misread.
    garbled_at: Option<usize>,
    /// Tables that stand twice, or once as a value: what is in them may have been misread.
    doubted: Vec<String>,
    /// Keys that are there under a name that is no key's.
    meant: Vec<String>,
}

#[derive(Debug)]
struct Note {
    at: usize,
    key: String,
    wrong: Wrong,
}

/// Where the lines of a text begin.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl Problems {
    /// That a file could not be read.
    pub(crate) fn unread(file: &str, what: String, fix: &str) -> Problems {
        let (file, fix) = (file.to_owned(), fix.to_owned());
        Problems(vec![Problem { file, place: None, key: String::new(), what, fix }])
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
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
    /// What is no TOML.
    pub fn garbled(&mut self, line_at: usize, at: usize, key: String, wrong: Wrong) {
        self.garbled_at = Some(self.garbled_at.map_or(line_at, |first| first.min(line_at)));
        self.wrong.push(Note { at, key, wrong });
    }

    /// A table that stands twice, or once as a value.
    pub fn twice(&mut self, at: usize, key: String, wrong: Wrong) {
        self.wrong(at, key.as_str(), wrong);
        self.doubted.push(key);
    }

    /// That a key is there, but misspelt.
    pub fn misspelt(&mut self, key: String) {
        self.meant.push(key);
    }

    /// What is wrong with what stands at one place.
    pub fn wrong(&mut self, at: usize, key: impl Into<String>, wrong: Wrong) {
        let key = key.into();
        if self.garbled_at.is_none_or(|garbled_at| at < garbled_at) && !self.doubted.contains(&key) {
            self.wrong.push(Note { at, key, wrong });
        }
    }

    /// What is not there: where all of the file could be read, and nothing stands for it.
    pub fn missing(&mut self, at: usize, key: String, what: impl Into<String>, mend: impl Into<String>) {
        let is_in = |table: &String| {
            key.strip_prefix(table.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !self.meant.iter().any(is_in) {
            self.error(at, key, what, mend);
        }
    }

    /// What is wrong with several keys together: where all of the file could be read.
    pub fn error(&mut self, at: usize, key: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) {
        if self.garbled_at.is_none() {
            self.wrong(at, key, Wrong::new(what, mend));
        }
    }

    /// What is right and hardly meant.
    pub fn warning(&mut self, at: usize, key: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) {
        self.smells.push(Note { at, key: key.into(), wrong: Wrong::new(what, mend) });
    }

    /// What is wrong, and what smells, in the order of the lines of `text`.
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
