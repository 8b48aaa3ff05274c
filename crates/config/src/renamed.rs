//! Keys and values of version 0.1 -> today's keys and values, each with a warning.
//!
//! Files of version 0.1 stay valid until version 0.3, which removes this module. The rest of the crate knows only
//! today's names.

use crate::problem::Notes;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Renamed keys: the table ("" for the top of the file), the key's old name, the key's new name.
const KEYS: [(&str, &str, &str); 7] = [
    ("", "answer-from", "icmp-source"),
    ("wide", "join", "fragment-policy"),
    ("wide", "patience", "timeout"),
    ("narrow", "join", "fragment-policy"),
    ("narrow", "patience", "timeout"),
    ("wide.for", "join", "fragment-policy"),
    ("narrow.for", "join", "fragment-policy"),
];

/// Renamed values: today's key, the old value, the new value.
const VALUES: [(&str, &str, &str); 5] = [
    ("fragment-policy", "graceful", "merge"),
    ("fragment-policy", "hop", "reassemble-hop"),
    ("df", "cut", "fragment"),
    ("bypass", "join", "merge"),
    ("bypass", "lease", "flow-offload"),
];

/// Returns today's name of a stage. Other names are returned unchanged.
pub(crate) fn stage(name: &str) -> &str {
    VALUES.iter().find(|(key, old, _)| *key == "bypass" && *old == name).map_or(name, |(_, _, new)| *new)
}

/// Replaces old keys and values by today's names in all tables of a file.
pub(crate) fn apply(root: &mut DeTable<'_>, notes: &mut Notes) {
    rename(root, "", notes);
    for side in ["wide", "narrow"] {
        let Some(DeValue::Table(table)) = root.get_mut(side).map(Spanned::get_mut) else { continue };
        rename(table, side, notes);
        let Some(DeValue::Array(tables)) = table.get_mut("for").map(Spanned::get_mut) else { continue };
        for entry in tables.iter_mut() {
            if let DeValue::Table(entry) = entry.get_mut() {
                rename(entry, &format!("{side}.for"), notes);
            }
        }
    }
}

fn rename(entries: &mut DeTable<'_>, table: &str, notes: &mut Notes) {
    for (_, old, new) in KEYS.iter().filter(|(of, _, _)| *of == table) {
        rename_key(entries, table, old, new, notes);
    }
    for key in ["fragment-policy", "df", "bypass"] {
        let place = name_in(table, key);
        match entries.get_mut(key).map(|value| (value.span().start, value.get_mut())) {
            Some((_, DeValue::Array(list))) => {
                for value in list.iter_mut() {
                    rename_value(value.span().start, value.get_mut(), key, &place, notes);
                }
            }
            Some((at, value)) => rename_value(at, value, key, &place, notes),
            None => {}
        }
    }
}

fn rename_key(entries: &mut DeTable<'_>, table: &str, old: &str, new: &'static str, notes: &mut Notes) {
    let Some((key, value)) = entries.remove_entry(old) else { return };
    let at = key.span().start;
    if entries.contains_key(new) {
        let what = format!("`{old}` is the former name of `{new}`, which the file has too");
        notes.error(at, name_in(table, old), what, format!("remove `{old}`"));
        return;
    }
    warn(at, &name_in(table, old), old, new, notes);
    entries.insert(Spanned::new(key.span(), new.into()), value);
}

fn rename_value(at: usize, value: &mut DeValue<'_>, key: &str, place: &str, notes: &mut Notes) {
    let DeValue::String(text) = value else { return };
    let Some((_, old, new)) = VALUES.iter().find(|(of, old, _)| *of == key && *old == text.as_ref()) else {
        return;
    };
    *text = (*new).into();
    warn(at, place, &format!("\"{old}\""), &format!("\"{new}\""), notes);
}

fn warn(at: usize, place: &str, old: &str, new: &str, notes: &mut Notes) {
    let what = format!("{old} is named {new} since version 0.2");
    notes.warning(at, place, what, format!("write {new}; version 0.3 no longer accepts {old}"));
}

fn name_in(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}
