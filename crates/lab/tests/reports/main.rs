//! Made-up figures -> reports of experiments in files of this folder, so that a change of wording shows in review.
//!
//! `WIDELOAD_GOLDEN=write cargo test -p wideload-lab reports` writes the files. A report with private parts has its
//! test in its source file, and its text here.

mod border;
mod bursts;
mod datagrams;
mod emulator;
mod hostile;
mod lifecycle;
mod simulated;
mod soak;
mod tcp;

use std::fmt::Display;
use std::path::Path;
use testkit::golden;
use wideload_lab::experiments::{Conditions, Spread, transparency_list};

#[test]
fn the_list_of_kinds_reports_their_families_and_names() {
    compare("transparency_list.txt", &[transparency_list()]);
}

/// Compares reports with a file of this folder.
fn compare<T: Display>(name: &str, reports: &[T]) {
    let texts: Vec<String> = reports.iter().map(ToString::to_string).collect();
    golden(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports").join(name), &texts.join(BETWEEN));
}

/// Returns conditions that are the same on every machine.
fn conditions() -> Conditions {
    let (kernel, build) = ("6.12.38".to_owned(), "1.2.3 release".to_owned());
    Conditions { kernel, processors: 4, load: vec![0.5, 0.25, 1.0], rounds: 3, build }
}

fn spread(median: f64) -> Spread {
    Spread { median, least: median * 0.9, most: median * 1.2 }
}

/// Line between two reports in one file.
const BETWEEN: &str = "----\n";
