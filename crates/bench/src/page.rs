//! All rows -> the page that publishes them.
//!
//! The page becomes `docs/BENCHMARKS.md`. `table.rs` formats the same rows for the terminal.

use crate::machine::Machine;
use crate::rows::{Row, WIDELOAD};
use crate::table::{HEAD, cells};
use crate::workload::Function;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Conditions of the measurement.
pub struct Conditions {
    /// The command line of the measurement.
    pub command: String,
    /// The machine and the build.
    pub machine: Machine,
    /// Number of rounds of each workload.
    pub rounds: usize,
    /// Duration of the timed work of each system in each round, in milliseconds.
    pub ms: u64,
    /// Number of the CPU on which all harnesses ran.
    pub processor: usize,
    /// Peers that were not measured, with advice on how to install them.
    pub missing: Vec<String>,
}

/// Returns the page in Markdown.
pub fn page(rows: &[Row], conditions: &Conditions) -> String {
    let mut page = String::new();
    head(&mut page, conditions);
    behind(&mut page, rows);
    for function in Function::ALL.into_iter().chain([Function::Memory]) {
        let of_it: Vec<&Row> = rows.iter().filter(|row| row.function == function).collect();
        if !of_it.is_empty() {
            section(&mut page, function, &of_it);
        }
    }
    deliveries(&mut page, rows);
    missing(&mut page, conditions);
    page
}

fn head(page: &mut String, conditions: &Conditions) {
    page.push_str(
        "# What a packet costs\n\n\
         How to read the tables: each block is one workload, each row one system on the same packets in the same \
         order. Look at *ratio*: above 1, Wideload is faster than the system in that row; below 1, it is\n\
         slower. The columns:\n\n\
         | column | meaning |\n\
         |---|---|\n\
         | ns | nanoseconds a packet: the median of all rounds, where a round counts its median section |\n\
         | spread | the fastest and the slowest round |\n\
         | ratio | the median of each round's ratio to Wideload |\n\
         | instr. | instructions a packet, by callgrind, which has no AVX-512 |\n\
         | Gbit/s | bits of the packets received, IP header counted |\n\
         | out | packets that leave one section |\n\n",
    );
    page.push_str(
        "*Header work only* measures the path from a parsed packet to decision and place, without touching the \
         payload. *Contiguous* measures the path from bytes to a contiguous result. *Checksummed* adds\n\
         transport checksums. *Plain copy* copies the same bytes and does nothing else, as a lower bound. \
         `wideload` with a commit is an earlier build of Wideload.\n\n\
         Every system's output was compared with a reference in the same run, byte for byte. A row marked (!) \
         failed; the reason stands below its table. Filling the buffers is not timed; freeing them is. All\n\
         systems ran on one processor, one round of each in turn. The command was:\n\n",
    );
    let _ = writeln!(page, "    {}\n", conditions.command);
    for line in conditions.machine.lines() {
        let _ = writeln!(page, "- {line}");
    }
    let Conditions { rounds, ms, processor, .. } = conditions;
    let _ = writeln!(page, "- rounds: {rounds}, each system for {ms} ms in each, all on processor {processor}");
}

fn behind(page: &mut String, rows: &[Row]) {
    let behind: Vec<&Row> =
        rows.iter().filter(|row| row.is_sound_peer() && row.ratio.is_some_and(|it| it < 1.0)).collect();
    page.push_str("\n## Where Wideload is behind\n\n");
    let undone: Vec<&Row> = rows.iter().filter(|row| row.system == WIDELOAD && row.ns.is_none()).collect();
    if behind.is_empty() && undone.is_empty() {
        page.push_str("In no row.\n");
    }
    for row in undone {
        let why = row.fault.as_deref().unwrap_or("not measured");
        let _ = writeln!(page, "- {}: {}: Wideload {why}", row.function, row.workload);
    }
    for row in behind {
        let [ns, _, ratio, ..] = cells(row);
        let _ = writeln!(page, "- {}: {}: {} takes {ns} ns, {ratio}", row.function, row.workload, row.system);
    }
}

fn section(page: &mut String, function: Function, rows: &[&Row]) {
    let _ = writeln!(page, "\n## {function}, for each {}\n", function.unit());
    let [ns, spread, ratio, instructions, gbit_s, completed] = HEAD;
    let _ = writeln!(
        page,
        "| workload | system | {ns} | {spread} | {ratio} | {instructions} | {gbit_s} | {completed} |"
    );
    page.push_str("|---|---|--:|--:|--:|--:|--:|--:|\n");
    let mut last = "";
    for row in rows {
        let workload = if row.workload == last { "" } else { row.workload.as_str() };
        last = &row.workload;
        let system = match (row.system == WIDELOAD, row.fault.is_some()) {
            (true, false) => "**wideload**".to_string(),
            (_, true) => format!("{} (!)", row.system),
            _ => row.system.clone(),
        };
        let _ = writeln!(page, "| {workload} | {system} | {} |", cells(row).join(" | "));
    }
    page.push('\n');
    remarks(page, rows);
}

/// Appends the remarks about rows, each remark only once.
fn remarks(page: &mut String, rows: &[&Row]) {
    let mut said: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for row in rows {
        let fault = row.fault.iter().map(|fault| (format!("(!) {}", row.system), fault));
        let remark = row.remark.iter().map(|remark| (row.system.clone(), remark));
        for (system, words) in fault.chain(remark) {
            said.entry((system, words)).or_default().push(&row.workload);
        }
    }
    for ((system, words), workloads) in said {
        let place = match workloads[..] {
            [one] => one.to_string(),
            _ => format!("{} workloads", workloads.len()),
        };
        let _ = writeln!(page, "- {system}, {place}: {words}");
    }
}

/// Appends a description of each system's output, by function.
fn deliveries(page: &mut String, rows: &[Row]) {
    let mut systems: BTreeMap<(&str, &str), BTreeMap<&str, Vec<Function>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.delivers.is_empty()) {
        let functions =
            systems.entry((&row.system, &row.version)).or_default().entry(row.delivers.as_str()).or_default();
        if !functions.contains(&row.function) {
            functions.push(row.function);
        }
    }
    page.push_str("\n## What each delivers\n\n");
    for ((system, version), deliveries) in systems {
        let _ = writeln!(page, "- {system} {version}");
        for (delivers, functions) in deliveries {
            let functions: Vec<String> = functions.iter().map(Function::to_string).collect();
            let _ = writeln!(page, "  - {}: {delivers}", functions.join(", "));
        }
    }
}

fn missing(page: &mut String, conditions: &Conditions) {
    if !conditions.missing.is_empty() {
        page.push_str("\n## Left out\n\n");
        conditions.missing.iter().for_each(|line| page.push_str(&format!("- {line}\n")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_rows_where_we_are_behind() {
        let row = |system: &str, ns: f64, fault: Option<&str>| Row {
            function: Function::Reassemble,
            workload: "some fragments".to_string(),
            system: system.to_string(),
            ns: Some(ns),
            ns_min: Some(ns),
            ns_max: Some(ns),
            ratio: Some(ns / 10.0),
            instructions: None,
            gbit_s: None,
            completed: Some(64),
            delivers: "whole datagrams".to_string(),
            version: "1".to_string(),
            remark: None,
            fault: fault.map(String::from),
        };
        let rows = [
            row(WIDELOAD, 10.0, None),
            row("wideload 0123abc", 5.0, None),
            row("plain copy", 5.0, None),
            row("faster", 8.0, None),
            row("slower", 80.0, None),
            row("wrong", 4.0, Some("answers wrong: 3 of 64 differ")),
        ];
        let conditions = Conditions {
            command: "bench --quick".to_string(),
            machine: Machine::this(),
            rounds: 5,
            ms: 20,
            processor: 1,
            missing: vec!["dpdk: not there".to_string()],
        };
        let page = page(&rows, &conditions);
        let behind = page.split("## Where").nth(1).unwrap().split("\n##").next().unwrap();
        assert!(behind.contains("faster takes 8.0 ns, x 0.80"), "{behind}");
        assert!(
            !behind.contains("0123abc")
                && !behind.contains("slower")
                && !behind.contains("plain copy")
                && !behind.contains("wrong")
        );
        for expected in
            ["bench --quick", "kernel: Linux", "answers wrong: 3 of 64", "- dpdk: not there", "rounds: 5"]
        {
            assert!(page.contains(expected), "{expected}");
        }
    }
}
