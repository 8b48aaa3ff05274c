//! Effects of events on flows and hosts -> the report of `lab lifecycle`.

use crate::{compare, conditions};
use wideload_lab::experiments::{Change, Lifecycle, LifecycleEvent, LifecycleRow, Remedy, Role};

#[test]
fn the_lifecycle_reports_each_event_and_the_state_that_killed_gateways_left() {
    let good = report(vec![row(Role::Border, LifecycleEvent::Stop, None, Some("0"))], Vec::new());
    let gro = change("interface lan0 feature rx-gro", None, Some("on"));
    let route = change(&"route fd00::/64 table 254 via a gateway ".repeat(4), Some("there"), None);
    let mut rows = vec![
        LifecycleRow {
            stalled: 25,
            mended_by_hand: Some(24),
            longest_gap_ms: 15_120.0,
            left_behind: vec![gro.clone()],
            ..row(Role::Border, LifecycleEvent::KillSupervisor, Some(Remedy::Undo), Some("signal 9"))
        },
        LifecycleRow {
            reset: 1,
            timed_out: 2,
            left_behind: vec![gro.clone(), route.clone()],
            differences: vec![gro.clone()],
            ..row(Role::Border, LifecycleEvent::KillBoth, Some(Remedy::Successor), Some("signal 9"))
        },
    ];
    let others = [
        (LifecycleEvent::Stop, Some("0")),
        (LifecycleEvent::Interrupt, Some("0")),
        (LifecycleEvent::Drain, Some("0")),
        (LifecycleEvent::Reload, None),
        (LifecycleEvent::Restart, Some("0")),
        (LifecycleEvent::BadProgram, Some("1")),
        (LifecycleEvent::BadConfiguration, Some("2")),
        (LifecycleEvent::KillWorker, None),
    ];
    rows.extend(others.map(|(event, exit)| row(Role::Router, event, None, exit)));
    rows.push(LifecycleRow {
        stalled: 4,
        left_behind: vec![route.clone()],
        wrong_bytes: 7,
        ..row(Role::WideInterface, LifecycleEvent::KillBoth, Some(Remedy::Time), Some("signal 9"))
    });
    let faults = vec![
        "border kill -9 both, next: 3 of 50 flows broke".to_owned(),
        format!("border kill -9 both, next: not restored: {gro}"),
        format!("wide interface kill -9 both, alone: not restored: {route}"),
    ];
    compare("lifecycle.txt", &[good, report(rows, faults)]);
}

fn report(rows: Vec<LifecycleRow>, faults: Vec<String>) -> Lifecycle {
    Lifecycle { conditions: conditions(), stall_ms: 3_000.0, rows, faults, seconds: 171.0 }
}

fn row(role: Role, event: LifecycleEvent, remedy: Option<Remedy>, exit: Option<&str>) -> LifecycleRow {
    LifecycleRow {
        role,
        event,
        remedy,
        exit: exit.map(str::to_owned),
        took_ms: 210.0,
        flow_count: 50,
        stalled: 0,
        reset: 0,
        timed_out: 0,
        mended_by_hand: None,
        usual_gap_ms: 21.0,
        longest_gap_ms: 245.0,
        median_gap_ms: 231.0,
        retransmitted: 480,
        bytes: 1 << 20,
        wrong_bytes: 0,
        changed_while_running: 9,
        left_behind: Vec::new(),
        differences: Vec::new(),
    }
}

fn change(item: &str, before: Option<&str>, after: Option<&str>) -> Change {
    Change { item: item.to_owned(), before: before.map(str::to_owned), after: after.map(str::to_owned) }
}
