//! Figures of the link emulator -> the report of `lab calibrate`, and lateness in words.

use crate::{compare, conditions};
use wideload_lab::emulator::{Calibration, Lateness, Row};
use wideload_lab::experiments::Calibrated;

#[test]
fn the_calibration_reports_asked_and_measured_values_and_faults() {
    let row = |shape: &str, figure: &str, unit: &str, asked: f64, measured: f64| Row {
        shape: shape.parse().expect("it is a shape"),
        figure: figure.to_owned(),
        unit: unit.to_owned(),
        asked,
        measured,
        error: measured - asked,
    };
    let rows = vec![
        row("", "delay, median", "ms", 0.0, 0.014),
        row("delay=5ms,jitter=1ms", "delay, mean", "ms", 5.0, 5.021),
        row("delay=1ms,loss=1%,seed=1", "lost", "packets", 97.0, 97.0),
        row("delay=5ms,rate=10M,queue=20p", "rate, median", "Mbit/s", 10.0, 9.985),
    ];
    let faults = vec!["delay=5ms: no probe arrived; are all four interfaces up?".to_owned()];
    let good = Calibration { rows, faults: Vec::new() };
    let bad = Calibration { rows: Vec::new(), faults };
    let reports = [good, bad].map(|calibration| Calibrated { conditions: conditions(), calibration });
    compare("calibration.txt", &reports);
}

#[test]
fn lateness_reports_two_quantiles_and_the_largest_value() {
    let mut lateness = Lateness::default();
    [800, 1_200, 1_500, 2_000_000].into_iter().for_each(|nanos| lateness.record(nanos));
    compare("lateness.txt", &[Lateness::default(), lateness].map(|lateness| format!("{lateness}\n")));
}
