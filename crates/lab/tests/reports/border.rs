//! Figures of bulk TCP -> the report of `lab border`.

use crate::{compare, conditions, spread};
use wideload_lab::experiments::{Border, BorderRow, Observed, Receiving, Versus};
use wideload_lab::traffic::Writes;

#[test]
fn the_border_reports_each_kind_of_links_and_hosts() {
    let versus = |goodput, wide_bytes_per_second| Some([Versus { goodput, wide_bytes_per_second }; 2]);
    let unknown = BorderRow {
        version: "IPv6",
        wide_seconds: None,
        narrow_seconds: None,
        middle_seconds: None,
        versus: versus(1.1, None),
        ..row("wideload", Receiving::Plain)
    };
    let good = Border {
        conditions: conditions(),
        timed_len: 256 << 20,
        writes: Writes::Drawn,
        rows: vec![
            row("bridge", Receiving::ThreadWithoutCopy),
            row("forwarding", Receiving::ThreadWithoutCopy),
            BorderRow { versus: versus(1.25, Some(1.8)), ..row("wideload", Receiving::ThreadWithoutCopy) },
            BorderRow { direction: "to narrow", ..row("9,000", Receiving::ThreadWithoutCopy) },
            row("bridge", Receiving::ThreadWithGro),
            row("bridge", Receiving::Thread),
            unknown,
            BorderRow { has_gro_between: true, ..row("bridge", Receiving::ThreadWithoutCopy) },
            BorderRow { has_offloads: true, ..row("bridge", Receiving::Plain) },
        ],
        intact: true,
        broken: Vec::new(),
    };
    let bad = Border {
        writes: Writes::Of(65_536),
        rows: vec![row("bridge", Receiving::Plain)],
        intact: false,
        broken: vec!["to-wide: received 10, forwarded 9, held 0, ended 0".to_owned()],
        ..good.clone()
    };
    compare("border.txt", &[good, bad]);
}

fn row(middle: &'static str, receiving: Receiving) -> BorderRow {
    BorderRow {
        has_offloads: false,
        has_gro_between: false,
        receiving,
        version: "IPv4",
        direction: "to wide",
        middle,
        goodput: spread(9.5),
        wide_seconds: Some(0.41),
        narrow_seconds: Some(0.62),
        middle_seconds: Some(0.25),
        all_seconds: 1.28,
        mean_len: 8_714.0,
        observed: Observed { packets: 1_000, wide_packets: 875, longest: 9_000, missed: 0 },
        versus: None,
    }
}
