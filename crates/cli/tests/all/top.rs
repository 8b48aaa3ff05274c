//! Two snapshots of a gateway's counters -> the output of `wideload top`.

use gateway::stats::{Count, DirectionFigures, EndpointFigures, StageFigures, Stats};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::path::Path;
use std::process::Command;
use testkit::golden;
use wideload::top::View;

#[test]
fn the_screen_shows_rates_lengths_stages_and_losses() {
    golden(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top/screen.txt"), &view().table(100));
}

#[test]
fn the_guide_names_the_parts_of_the_screen() {
    let guide = include_str!("../../../../docs/guide.md");
    let (_, table) = guide.split_once("| part | contents |\n|---|---|\n").expect("the guide lists the parts");
    let rows = table.lines().take_while(|line| line.starts_with("| "));
    let parts: Vec<&str> = rows.filter_map(|row| row[2..].split(" | ").next()).collect();
    assert_eq!(parts.len(), 5);
    let screen = view().table(100);
    // The title and the stages have no heading of their own.
    for part in parts.iter().filter(|part| !["title", "stages"].contains(part)) {
        assert!(screen.contains(&format!("{part} ─")), "{part} is no part of the screen:\n{screen}");
    }
}

#[test]
fn losses_alone_are_red() {
    let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
    terminal.draw(|frame| view().draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut reds = Vec::new();
    for y in 0..40 {
        let red = |x: &u16| buffer[(*x, y)].fg == Color::Red;
        let line: String = (0..100).filter(red).map(|x| buffer[(x, y)].symbol()).collect();
        if !line.is_empty() {
            reds.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    let expected = [
        "to-narrow too_big 5 /s 11 in all",
        "to-wide frag_late 0 /s 3 in all",
        "packet:wan0 queue_full 0 /s 7 in all",
        "packet:lan0 unexplained 0 /s -2 in all",
    ];
    assert_eq!(reds, expected);
}

#[test]
fn no_figure_is_cut_at_any_usual_width() {
    // Even large figures are shown completely, from the first digit to the unit.
    let mut large = after();
    large.seconds = 3_901.0;
    for direction in [&mut large.all.to_wide, &mut large.all.to_narrow] {
        direction.received = Count { packets: 12_345_678, bytes: 12_345_678 * 65_495 };
        direction.forwarded = Count { packets: 98_765_432, bytes: 98_765_432 * 1_480 };
        direction.held = Count { packets: 12_345, bytes: 12_345_678 };
        direction.stages[2].held = Count { packets: 123_456, bytes: 123_456_789 };
    }
    large.all.to_narrow.retired.insert("too_big".to_owned(), Count { packets: 123_456_789_013, bytes: 0 });
    let large = View::between(&before(), &large);
    for width in [40, 60, 80, 100, 200] {
        let text = large.table(width);
        let words: Vec<&str> = text.split(['│', '\n']).flat_map(str::split_whitespace).collect();
        let has = |figure: &str| {
            let parts: Vec<&str> = figure.split(' ').collect();
            words.windows(parts.len()).any(|window| window == parts)
        };
        for figure in ["12.3 M", "65495 B", "98.8 M", "1480 B"] {
            assert!(has(figure), "{width}: {figure}\n{text}");
        }
        let held = match width {
            40 | 60 => ["123 MB", "12.3 MB"],
            80 => ["holds 123 k, 123 MB", "holds 12.3 k, 12.3 MB"],
            _ => ["holds 123456 packets, 123 MB", "holds 12345 packets, 12.3 MB"],
        };
        assert!(held.iter().all(|held| has(held)), "{width}: {held:?}\n{text}");
        let lost = if width < 80 { "123 G" } else { "123456789013 in all" };
        assert!(has(lost), "{width}: {lost}\n{text}");
    }
    golden(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top/screen40.txt"), &view().table(40));
}

#[test]
fn kernel_forwarded_packets_count_as_passed() {
    let mut figures = after();
    let offloaded =
        [("offload_packets", 2_000_000), ("offload_packets_out", 300_000), ("offload_bytes", 2_000_000_000)];
    for (name, count) in offloaded {
        figures.all.narrow.came.insert(name.to_owned(), count);
    }
    let view = View::between(&before(), &figures);
    let [to_wide, to_narrow] = &view.directions;
    assert_eq!((to_wide.came.packets, to_wide.went.packets), (1_080_000.0, 163_333.5));
    let bits = (to_wide.came.bits, to_wide.went.bits);
    assert_eq!(bits, (8e9 + 8.0 * 80_000.0 * 1_514.0, 8e9 + 4.0 * 26_667.0 * 8_754.0));
    assert_eq!(to_wide.went.payload_len, Some((2e9 + 26_667.0 * 8_720.0) / 326_667.0));
    assert_eq!(to_narrow, &View::between(&before(), &after()).directions[1]);
    let metrics = daemon::metrics::text(&figures);
    let line = "wideload_all_received_packets_total{direction=\"to-wide\",way=\"to-wide\"} 2160000";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn json_is_printed_once_with_and_without_once() {
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_wideload")).arg("top").args(args).output().unwrap();
    for args in [&["/nowhere/x.sock", "--json"][..], &["/nowhere/x.sock", "--json", "--once"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_small_terminal_is_no_reason_to_fail() {
    for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view().draw(frame)).unwrap();
    }
}

#[test]
fn without_time_between_two_pictures_there_are_no_rates() {
    let figures = after();
    let view = View::between(&figures, &figures);
    assert_eq!(
        (view.processors, view.directions[0].came.packets, view.directions[0].came.payload_len),
        (0.0, 0.0, None)
    );
    assert!(view.directions.iter().all(|direction| direction.events.is_empty() && direction.wide_share.is_none()));
    assert!(view.losses.iter().all(|loss| loss.rate == 0.0));
}

#[test]
fn an_absent_gateway_gives_a_one_sentence_error() {
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_wideload")).arg("top").args(args).output().unwrap();
    let output = run(&["/nowhere/x.sock", "--once"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "wideload: /nowhere/x.sock: cannot connect: No such file or directory (os error 2); no gateway has \
         this name; `wideload run` starts one\n"
    );
}

fn view() -> View {
    View::between(&before(), &after())
}

/// A border that reassembles toward the wide side, after one hour.
fn before() -> Stats {
    let mut figures = Stats {
        name: "border".to_owned(),
        role: "border".to_owned(),
        version: "0.1.0".to_owned(),
        process: 4711,
        seconds: 3_900.0,
        workers: vec![Default::default()],
        ..Stats::default()
    };
    let all = &mut figures.all;
    all.processor_seconds = 100.0;
    all.to_wide = direction(&[("reassemble", false), ("merge", false), ("coalesce", true), ("segment", true)]);
    all.to_narrow = direction(&[("reassemble", false), ("merge", false), ("coalesce", false), ("segment", true)]);
    all.wide = end("packet:lan0");
    all.narrow = end("packet:wan0");
    all.to_narrow.retired.insert("too_big".to_owned(), Count { packets: 1, bytes: 8_980 });
    all.to_wide.retired.insert("frag_late".to_owned(), Count { packets: 3, bytes: 300 });
    all.narrow.went.insert("queue_full".to_owned(), 7);
    figures
}

/// The same border two seconds later.
fn after() -> Stats {
    let mut figures = Stats { seconds: 3_902.0, ..before() };
    let all = &mut figures.all;
    all.processor_seconds += 0.68;
    all.to_wide.received = Count { packets: 160_000, bytes: 160_000 * 1_480 };
    all.to_wide.forwarded = Count { packets: 26_667, bytes: 26_667 * 8_720 };
    all.to_wide.held = Count { packets: 12, bytes: 17_760 };
    all.to_wide.stages[2].held = all.to_wide.held;
    all.to_wide.events.insert("coalesced".to_owned(), Count { packets: 160_000, bytes: 0 });
    all.to_wide.events.insert("run_full".to_owned(), Count { packets: 26_000, bytes: 0 });
    all.to_narrow.received = Count { packets: 4_000, bytes: 4_000 * 8_980 };
    all.to_narrow.forwarded = Count { packets: 24_000, bytes: 24_000 * 1_480 };
    all.to_narrow.events.insert("resized".to_owned(), Count { packets: 4_000, bytes: 0 });
    all.to_narrow.retired.insert("too_big".to_owned(), Count { packets: 11, bytes: 98_780 });
    for (end, came, went) in [
        (&mut all.narrow, [160_000 * 1_514, 160_000, 0], 24_000 * 1_514),
        (&mut all.wide, [4_000 * 9_014, 4_000, 3_880], 26_667 * 8_754),
    ] {
        for (name, count) in ["bytes", "packets", "wide_packets"].into_iter().zip(came) {
            end.came.insert(name.to_owned(), count);
        }
        end.went.insert("bytes".to_owned(), went);
    }
    all.wide.unexplained = -2;
    figures
}

fn direction(stages: &[(&str, bool)]) -> DirectionFigures {
    let stage = |(name, is_on): &(&str, bool)| StageFigures {
        stage: (*name).to_owned(),
        is_on: *is_on,
        ..StageFigures::default()
    };
    DirectionFigures { stages: stages.iter().map(stage).collect(), ..DirectionFigures::default() }
}

fn end(address: &str) -> EndpointFigures {
    EndpointFigures { address: address.to_owned(), is_up: true, ..EndpointFigures::default() }
}
