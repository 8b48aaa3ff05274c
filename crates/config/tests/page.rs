//! docs/configuration.md -> the differences between the page and the parser.
//!
//! Keys, examples, defaults, bounds, words and former names are read from the tables of the page.

use std::collections::BTreeSet;
use wideload_config::{Config, Problem};

#[test]
fn the_page_has_every_key_of_every_table_once() {
    for Place { heading, keys, .. } in PLACES {
        let on_page: Vec<&str> = rows(heading, &COLUMNS).iter().map(|row| bare(row[0])).collect();
        let unique: BTreeSet<&str> = on_page.iter().copied().collect();
        let known: BTreeSet<&str> = strings(READ, keys).into_iter().collect();
        assert_eq!(unique, known, "{heading}");
        assert_eq!(unique.len(), on_page.len(), "{heading}: a key occurs twice");
    }
}

#[test]
fn every_example_is_valid_without_a_warning_in_some_role() {
    for (tables, row) in all_rows() {
        let example = bare(row[EXAMPLE]);
        assert_eq!(key_of(example), bare(row[0]), "{example}");
        let is_valid = |table: &&str| ROLES.iter().any(|role| accepted(&file(role, table, example)).is_some());
        assert!(
            tables.iter().any(is_valid),
            "{example}: {:?}",
            Config::parse(&file("border", tables[0], example), "")
        );
    }
}

#[test]
fn a_default_that_is_one_value_changes_nothing() {
    for (tables, row) in all_rows() {
        let (key, cell) = (bare(row[0]), row[DEFAULT]);
        if !cell.starts_with('`') || !cell.ends_with('`') || cell.matches('`').count() != 2 {
            continue;
        }
        let mut compared_count = 0;
        for role in ROLES {
            let without =
                accepted(&file(role, "", &format!("role = \"{role}\""))).expect("a minimal file is valid");
            for table in tables {
                if let Some(with) = accepted(&file(role, table, &format!("{key} = {}", bare(cell)))) {
                    assert_eq!(
                        format!("{with:?}"),
                        format!("{without:?}"),
                        "{role}: {table}: {key} = {}",
                        bare(cell)
                    );
                    compared_count += 1;
                }
            }
        }
        assert!(compared_count > 0, "{key} = {}", bare(cell));
    }
}

#[test]
fn a_value_just_outside_of_its_bounds_is_refused() {
    let mut bounded_count = 0;
    for (tables, row) in all_rows() {
        let Some((least, most)) = bounds(row[BOUNDS]) else { continue };
        bounded_count += 1;
        let key = bare(row[0]);
        for table in tables {
            for (bound, step, side) in [(least, -1, "below"), (most, 1, "above")] {
                let line = format!("{key} = {}", beside(bound, step));
                let ending = format!("is {side} {bound}");
                let found = problems(&file("border", table, &line));
                let is_it = |it: &Problem| it.key == name_in(table, key) && it.what.ends_with(&ending);
                assert!(found.iter().any(is_it), "{line}: {found:?}");
            }
        }
    }
    let range_count =
        READ.lines().filter(|line| line.starts_with("const ") && line.contains(": RangeInclusive<")).count();
    assert_eq!(bounded_count, range_count, "bounds on the page, and ranges in read.rs");
}

#[test]
fn the_words_of_a_key_are_those_that_the_parser_names() {
    let mut word_key_count = 0;
    for (tables, row) in all_rows() {
        let (key, cell) = (bare(row[0]), row[BOUNDS]);
        let words: Option<Vec<&str>> = cell.split(", ").map(quoted).collect();
        let Some(words) = words else { continue };
        word_key_count += 1;
        let value = if row[TYPE].starts_with("list") { "[\"zzzzzzzz\"]" } else { "\"zzzzzzzz\"" };
        for table in tables {
            let found = problems(&file("border", table, &format!("{key} = {value}")));
            let is_it =
                |it: &&Problem| it.key == name_in(table, key) && it.what.ends_with("is not one of the values");
            let problem = found.iter().find(is_it).unwrap_or_else(|| panic!("{table}: {key}: {found:?}"));
            assert_eq!(between_quotes(&problem.fix), words, "{table}: {key}");
        }
    }
    assert!(word_key_count >= 8, "{word_key_count}");
}

// Version 0.3 removes this test, with renamed.rs.
#[test]
fn the_former_names_on_the_page_are_those_that_the_parser_renames() {
    let mut on_page = BTreeSet::new();
    for row in rows("Renamed since 0.1", &["place", "former", "now"]) {
        let [places, former, now] = row[..] else { panic!("{row:?}") };
        let (former, now) = (bare(former), bare(now));
        for place in places.split(", ") {
            let place = if place == "top level" { "" } else { bare(place).trim_matches(['[', ']']) };
            on_page.insert((place.to_owned(), former.to_owned(), now.to_owned()));
            let (table, line) = match (former.starts_with('"'), place, now) {
                (true, "bypass", _) => ("", format!("bypass = [{former}]")),
                (true, "df", _) => ("narrow", format!("df = {former}")),
                (true, key, _) => ("wide", format!("{key} = {former}")),
                (false, table, "icmp-source") => (table, format!("{former} = [\"192.0.2.1\"]")),
                (false, table, "timeout") => (table, format!("{former} = \"500ms\"")),
                (false, table, "fragment-policy") => (table, format!("{former} = \"merge\"")),
                (false, table, other) => panic!("{table}: {other} needs a value here"),
            };
            let text = file("border", table, &line);
            let config = Config::parse(&text, "page.toml").unwrap_or_else(|problems| panic!("{line}: {problems}"));
            let expected = (name_in(table, key_of(&line)), format!("{former} is named {now} since version 0.2"));
            let is_it = |it: &Problem| (&it.key, &it.what) == (&expected.0, &expected.1);
            assert!(config.warnings.iter().any(is_it), "{line}: {}", config.warnings);
        }
    }
    let mut renamed = BTreeSet::new();
    for name in ["KEYS", "VALUES"] {
        for row in strings(RENAMED, name).chunks(3) {
            let [place, former, now] = *row else { panic!("{name}: {row:?}") };
            let shown = |text: &str| if name == "VALUES" { format!("\"{text}\"") } else { text.to_owned() };
            renamed.insert((place.to_owned(), shown(former), shown(now)));
        }
    }
    assert_eq!(on_page, renamed);
}

#[test]
fn the_complete_files_are_those_of_packaging() {
    let blocks = PAGE.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap_or_default());
    let blocks: Vec<&str> = blocks.collect();
    assert_eq!(blocks, PACKAGED);
    let role = |text: &&str| accepted(text).expect("a packaged file has no warnings").role.name();
    let roles: BTreeSet<&str> = blocks.iter().map(role).collect();
    assert_eq!(roles, BTreeSet::from(ROLES));
}

// Helpers.

/// A section of the page about keys. `keys` is the name of the array in read.rs that lists the keys. `tables` are
/// the tables of a file that may contain the keys; "" is the top of a file.
struct Place {
    heading: &'static str,
    keys: &'static str,
    tables: &'static [&'static str],
}

/// Returns all rows about keys, each with the tables that may contain the key.
fn all_rows() -> Vec<(&'static [&'static str], Vec<&'static str>)> {
    let of = |place: &Place| {
        let tables = place.tables;
        rows(place.heading, &COLUMNS).into_iter().map(move |row| (tables, row)).collect::<Vec<_>>()
    };
    PLACES.iter().flat_map(of).collect()
}

/// Returns the cells of the first table below a heading. The table must have these columns.
fn rows(heading: &str, columns: &[&str]) -> Vec<Vec<&'static str>> {
    let (_, below) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = below.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with('|'));
    let mut rows: Vec<Vec<&str>> =
        lines.map(|line| line.trim().trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert!(rows.len() > 2, "{heading} has no rows");
    assert_eq!(rows[0], columns, "{heading}");
    rows.drain(..2);
    for row in &rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
    }
    rows
}

/// Returns the strings in the array `name` of a Rust source.
fn strings(source: &'static str, name: &str) -> Vec<&'static str> {
    let (_, behind) = source.split_once(&format!("const {name}: ")).unwrap_or_else(|| panic!("no {name}"));
    let (_, array) = behind.split_once("= [").expect("an array has a value");
    between_quotes(array.split("];").next().unwrap_or_default())
}

fn between_quotes(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

/// Returns a cell without backquotes.
fn bare(cell: &str) -> &str {
    cell.trim_matches('`')
}

/// Returns the word in a cell such as `"merge"`, without backquotes and quotation marks.
fn quoted(cell: &str) -> Option<&str> {
    cell.strip_prefix("`\"")?.strip_suffix("\"`")
}

fn key_of(line: &str) -> &str {
    line.split_once(" = ").map_or(line, |(key, _)| key)
}

fn name_in(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// Returns the minimum and the maximum in a cell such as `10us to 10s`.
fn bounds(cell: &str) -> Option<(&str, &str)> {
    let words: Vec<&str> = cell.split(' ').collect();
    let at = words.iter().position(|word| *word == "to")?;
    let (least, most) = (words.get(at.checked_sub(1)?)?, words.get(at + 1)?);
    least.starts_with(|letter: char| letter.is_ascii_digit()).then_some((*least, *most))
}

/// Returns the value that differs from `bound` by `step` smallest units, as text for a file.
fn beside(bound: &str, step: i64) -> String {
    let digit_count = bound.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = bound.split_at(digit_count);
    let number: i64 = number.parse().expect("a bound is a number");
    let (len, smallest) = match unit {
        "" => return (number + step).to_string(),
        "us" => (1, "us"),
        "ms" => (1_000, "us"),
        "s" => (1_000_000, "us"),
        "min" => (60_000_000, "us"),
        "h" => (3_600_000_000, "us"),
        "KiB" => (1, "KiB"),
        "MiB" => (1 << 10, "KiB"),
        "GiB" => (1 << 20, "KiB"),
        other => panic!("{other} is no unit"),
    };
    format!("\"{}{smallest}\"", number * len + step)
}

/// Returns a minimal file for a role. In this table, `line` replaces the line with the same key.
fn file(role: &str, table: &str, line: &str) -> String {
    let key = key_of(line);
    let role_line = format!("role = \"{role}\"");
    let top = [role_line.as_str()];
    let mut text = String::new();
    for name in TABLES {
        let is_here = name == table;
        let lines: &[&str] = match name {
            "" => &top,
            "wide" if role == "wide-interface" => &["mtu = 9000"],
            "wide" => &["port = \"packet:lan0\"", "mtu = 9000"],
            "narrow" => &["port = \"packet:wan0\"", "mtu = 1500"],
            "wide.for" | "narrow.for" if is_here && key == "prefix" => &["fragment-policy = \"merge\""],
            "wide.for" | "narrow.for" if is_here => &["prefix = \"198.51.100.0/24\""],
            _ => &[],
        };
        let is_inline = table.is_empty() && name == key;
        if is_inline || lines.is_empty() && !is_here {
            continue;
        }
        match name {
            "" => {}
            "wide.for" | "narrow.for" => text.push_str(&format!("[[{name}]]\n")),
            _ => text.push_str(&format!("[{name}]\n")),
        }
        let kept = lines.iter().filter(|other| !is_here || key_of(other) != key);
        for line in kept.copied().chain(is_here.then_some(line)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Returns the configuration of a file; `None` if the file has mistakes or warnings.
fn accepted(text: &str) -> Option<Config> {
    Config::parse(text, "page.toml").ok().filter(|config| config.warnings.is_empty())
}

fn problems(text: &str) -> Vec<Problem> {
    let found = Config::parse(text, "page.toml").err();
    found.map(|problems| problems.iter().cloned().collect()).unwrap_or_default()
}

const PLACES: [Place; 6] = [
    Place { heading: "Top level", keys: "ROOT", tables: &[""] },
    Place { heading: "[wide] and [narrow]", keys: "SIDE", tables: &["wide", "narrow"] },
    Place { heading: "[[wide.for]] and [[narrow.for]]", keys: "FOR", tables: &["wide.for", "narrow.for"] },
    Place { heading: "[limits]", keys: "LIMITS", tables: &["limits"] },
    Place { heading: "[mss]", keys: "MSS", tables: &["mss"] },
    Place { heading: "[wide-interface]", keys: "WIDE_INTERFACE", tables: &["wide-interface"] },
];
/// All tables of a file, in an order that TOML accepts.
const TABLES: [&str; 8] = ["", "wide", "wide.for", "narrow", "narrow.for", "limits", "mss", "wide-interface"];
const COLUMNS: [&str; 6] = ["key", "type", "default", "bounds", "meaning", "example"];
const TYPE: usize = 1;
const DEFAULT: usize = 2;
const BOUNDS: usize = 3;
const EXAMPLE: usize = 5;
const ROLES: [&str; 3] = ["wide-interface", "router", "border"];
const PAGE: &str = include_str!("../../../docs/configuration.md");
const READ: &str = include_str!("../src/read.rs");
const RENAMED: &str = include_str!("../src/renamed.rs");
const PACKAGED: [&str; 3] = [
    include_str!("../../../packaging/border.toml"),
    include_str!("../../../packaging/wide-interface.toml"),
    include_str!("../../../packaging/router.toml"),
];
