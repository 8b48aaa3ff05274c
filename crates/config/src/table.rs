//! A TOML table and a key -> the key's value, or the mistake in the value.
//!
//! Each value keeps its place in the file, for later messages. The module `value` interprets values.

use crate::problem::{Notes, Wrong};
use crate::spelling::nearest;
use crate::value;
use toml::de::{DeArray, DeTable, DeValue};

/// The keys and values of one table, with the table's name and place.
#[derive(Clone, Debug)]
pub(crate) struct Table<'a> {
    /// Offset of the table's header, in bytes; without a header, the offset of the table's first key.
    pub at: usize,
    name: String,
    entries: &'a DeTable<'a>,
}

/// The state of a key in a file.
#[derive(Clone, Debug)]
pub(crate) enum Given<T> {
    /// The key is absent.
    Not,
    /// The value is invalid. The mistake was recorded.
    Wrong,
    /// The key is present and its value is valid.
    As(At<T>),
}

/// A value and its place in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<T> {
    /// Offset of the value in the file, in bytes.
    pub at: usize,
    /// The value itself.
    pub value: T,
}

/// A function that reads one value.
type Read<'r, T> = &'r dyn Fn(&DeValue<'_>) -> Result<T, Wrong>;

impl<T> Given<T> {
    /// Returns the value; `None` if the key is absent or the value invalid.
    pub fn here(&self) -> Option<&At<T>> {
        match self {
            Given::As(at) => Some(at),
            _ => None,
        }
    }

    /// Returns the value; `default` if the key is absent; `None` if the value is invalid.
    pub fn or(&self, default: T) -> Option<T>
    where
        T: Clone,
    {
        match self {
            Given::Not => Some(default),
            Given::Wrong => None,
            Given::As(at) => Some(at.value.clone()),
        }
    }

    /// Returns the offset of the key's value in the file, if this value equals `value`.
    pub fn is(&self, value: T) -> Option<usize>
    where
        T: PartialEq,
    {
        self.here().filter(|here| here.value == value).map(|here| here.at)
    }
}

impl<'a> Table<'a> {
    /// Creates the table that contains all entries of a file.
    pub fn root(entries: &'a DeTable<'a>) -> Table<'a> {
        Table { at: 0, name: String::new(), entries }
    }

    /// Returns the name of a key of this table, with the table's name in front.
    pub fn name_of(&self, key: &str) -> String {
        let key = shown_key(key);
        if self.name.is_empty() { key } else { format!("{}.{key}", self.name) }
    }

    /// Reads the value of a key.
    pub fn take<T>(&self, key: &str, notes: &mut Notes, read: Read<'_, T>) -> Given<T> {
        let Some(found) = self.entries.get(key) else {
            return Given::Not;
        };
        let at = found.span().start;
        match read(found.get_ref()) {
            Ok(value) => Given::As(At { at, value }),
            Err(wrong) => {
                notes.wrong(at, self.name_of(key), wrong);
                Given::Wrong
            }
        }
    }

    /// Reads the value of a required key. `fix` is the fix in the message about an absent key.
    pub fn need<T>(&self, key: &str, fix: &str, notes: &mut Notes, read: Read<'_, T>) -> Given<T> {
        match self.take(key, notes, read) {
            Given::Not => {
                notes.missing(self.at, self.name_of(key), "this key is missing", fix);
                Given::Wrong
            }
            given => given,
        }
    }

    /// Reads the values of a list. `wanted` is the expected form, for the error message. A value that occurs twice
    /// is an error.
    pub fn list<T: PartialEq>(
        &self,
        key: &str,
        wanted: &str,
        notes: &mut Notes,
        read: Read<'_, T>,
    ) -> Given<Vec<At<T>>> {
        let Some(found) = self.entries.get(key) else {
            return Given::Not;
        };
        let DeValue::Array(array) = found.get_ref() else {
            notes.wrong(found.span().start, self.name_of(key), value::wrong_type(found.get_ref(), wanted));
            return Given::Wrong;
        };
        match self.elements(key, array, notes, read) {
            Some(value) => Given::As(At { at: found.span().start, value }),
            None => Given::Wrong,
        }
    }

    fn elements<T: PartialEq>(
        &self,
        key: &str,
        array: &DeArray<'_>,
        notes: &mut Notes,
        read: Read<'_, T>,
    ) -> Option<Vec<At<T>>> {
        let mut values: Vec<At<T>> = Vec::new();
        for element in array {
            let at = element.span().start;
            let value = read(element.get_ref()).and_then(|value| match values.iter().any(|at| at.value == value) {
                true => Err(Wrong::new(
                    format!("{} is a duplicate", value::shown(element.get_ref())),
                    "remove one of them",
                )),
                false => Ok(value),
            });
            match value {
                Ok(value) => values.push(At { at, value }),
                Err(wrong) => notes.wrong(at, self.name_of(key), wrong),
            }
        }
        (values.len() == array.len()).then_some(values)
    }

    /// Reads a table within this table.
    pub fn table(&self, key: &str, notes: &mut Notes) -> Given<Table<'a>> {
        let Some(found) = self.entries.get(key) else {
            return Given::Not;
        };
        let name = self.name_of(key);
        let at = found.span().start;
        match found.get_ref() {
            DeValue::Table(entries) => Given::As(At { at, value: Table { at, name, entries } }),
            other => {
                let wrong = value::wrong_type(other, &format!("[{name}] once, and its keys in the lines below"));
                notes.wrong(at, name, wrong);
                Given::Wrong
            }
        }
    }

    /// Reads the tables of a list within this table.
    pub fn tables(&self, key: &str, notes: &mut Notes) -> Given<Vec<Table<'a>>> {
        let Some(found) = self.entries.get(key) else {
            return Given::Not;
        };
        let name = self.name_of(key);
        let wanted = format!("[[{name}]], with two brackets, and its keys in the lines below");
        let (at, value) = (found.span().start, found.get_ref());
        let DeValue::Array(array) = value else {
            notes.wrong(at, name, value::wrong_type(value, &wanted));
            return Given::Wrong;
        };
        let mut tables = Vec::new();
        for element in array {
            let at = element.span().start;
            match element.get_ref() {
                DeValue::Table(entries) => tables.push(Table { at, name: name.clone(), entries }),
                other => notes.wrong(at, name.as_str(), value::wrong_type(other, &wanted)),
            }
        }
        if tables.len() == array.len() { Given::As(At { at, value: tables }) } else { Given::Wrong }
    }

    /// Records all keys that are not in `known` as mistakes. `advice` returns the fix for an unknown key that
    /// resembles no known key.
    pub fn check_keys(&self, known: &[&str], notes: &mut Notes, advice: impl Fn(&str) -> Option<String>) {
        for key in self.entries.keys() {
            let text: &str = key.get_ref();
            if known.contains(&text) {
                continue;
            }
            let fix = match nearest(text, known.iter().copied()) {
                Some(nearest) => {
                    notes.misspelt(self.name_of(nearest));
                    format!("write {nearest}")
                }
                None => advice(text)
                    .unwrap_or_else(|| format!("remove it, or write one of {}", value::either(known, "and"))),
            };
            notes.wrong(key.span().start, self.name_of(text), Wrong::new("unknown key", fix));
        }
    }

    /// Returns the offset of a key in the file, in bytes; `None` if the key is absent.
    pub fn key_at(&self, key: &str) -> Option<usize> {
        self.entries.get_key_value(key).map(|(key, _)| key.span().start)
    }
}

/// Returns a key for a message, on one line. A key that TOML accepts only in quotation marks is put in quotation
/// marks, and cut off after 60 characters.
pub(crate) fn shown_key(key: &str) -> String {
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { value::quoted(key) }
}
