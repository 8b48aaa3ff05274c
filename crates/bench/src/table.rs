//! Rows -> a table for people: a block for each workload, with its systems as lines.
//!
//! The terminal and the page show the same cells.

use crate::rows::Row;
use std::fmt::Write;

/// Formats the block of one workload, whose first row is Wideload's.
pub fn block(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut text = format!("{}: {}\n", first.function, first.workload);
    for row in rows {
        let [ns, spread, ratio, instructions, gbit_s, completed] = cells(row);
        let system = if row.fault.is_some() { format!("{} (!)", row.system) } else { row.system.clone() };
        writeln!(text, "  {system:<34}{ns:>9}{spread:>19}{ratio:>9}{instructions:>10}{gbit_s:>10}{completed:>11}")
            .expect("a string takes all");
    }
    for row in rows {
        for (mark, words) in [("!", &row.fault), ("-", &row.remark)] {
            let Some(words) = words else { continue };
            let line: String = format!("  {mark} {}: {words}", row.system).chars().take(LINE_LEN).collect();
            writeln!(text, "{line}").expect("a string takes all");
        }
    }
    text
}

/// Returns the lines above the columns.
pub fn head() -> String {
    let [ns, spread, ratio, instructions, gbit_s, completed] = HEAD;
    format!("  {:<34}{ns:>9}{spread:>19}{ratio:>9}{instructions:>10}{gbit_s:>10}{completed:>11}", "system")
}

/// Formats the cells of a row, except the system's name.
pub fn cells(row: &Row) -> [String; 6] {
    let number =
        |figure: Option<f64>, digits: usize| figure.map_or("-".to_string(), |one| format!("{one:.digits$}"));
    let spread = match (row.ns_min, row.ns_max) {
        (Some(least), Some(greatest)) => format!("{least:.1} to {greatest:.1}"),
        _ => "-".to_string(),
    };
    [
        number(row.ns, 1),
        spread,
        row.ratio.map_or("-".to_string(), |ratio| format!("x {ratio:.2}")),
        number(row.instructions, 0),
        number(row.gbit_s, 0),
        row.completed.map_or("-".to_string(), thousands),
    ]
}

/// Formats a number with a comma after every three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Heads of the columns.
pub const HEAD: [&str; 6] = ["ns", "spread", "ratio", "instr.", "Gbit/s", "out"];
/// Line length that fits every usual terminal, in characters.
const LINE_LEN: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::WIDELOAD;
    use crate::workload::Function;

    #[test]
    fn every_line_fits_into_120_columns() {
        let row = Row {
            function: Function::Reassemble,
            workload: "44 fragments x 16384 datagrams, 1 % repeats, IPv6, cold: contiguous and checksummed"
                .to_string(),
            system: WIDELOAD.to_string(),
            ns: Some(12_345.6),
            ns_min: Some(12_000.0),
            ns_max: Some(13_000.0),
            ratio: Some(123.45),
            instructions: Some(12_345.0),
            gbit_s: Some(1_234.0),
            completed: Some(10_000_000),
            delivers: String::new(),
            version: String::new(),
            remark: Some("checksums left to a later stage".to_string()),
            fault: Some("because ".repeat(40)),
        };
        let peer = Row { system: "a peer whose name is long".to_string(), fault: None, ..row.clone() };
        let text = format!("{}\n{}", head(), block(&[row, peer]));
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert!(text.contains("! wideload: because"));
    }

    #[test]
    fn thousands_are_set_apart() {
        let text = [0, 999, 1_000, 123_456_789].map(thousands);
        assert_eq!(text, ["0", "999", "1,000", "123,456,789"]);
    }
}
