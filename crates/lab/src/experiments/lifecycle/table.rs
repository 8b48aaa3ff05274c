//! Results of the lifecycle experiment -> a table of at most 80 columns.
//!
//! The JSON output has all details; this table has room for one line per event.

use super::{Change, Lifecycle, LifecycleEvent, LifecycleRow, Remedy};
use crate::experiments::{Conditions, Role};
use std::fmt;

/// Returns the name of a role in the table.
pub(super) fn name(role: Role) -> &'static str {
    match role {
        Role::Border => "border",
        Role::Router => "router",
        Role::WideInterface => "wide interface",
    }
}

/// Returns the event and the remedy as the label of a row.
pub(super) fn label(event: LifecycleEvent, remedy: Option<Remedy>) -> String {
    let event = match event {
        LifecycleEvent::Stop => "stop (SIGTERM)",
        LifecycleEvent::Interrupt => "Ctrl-C (SIGINT)",
        LifecycleEvent::Drain => "drain, control stop",
        LifecycleEvent::Reload => "reload",
        LifecycleEvent::Restart => "restart",
        LifecycleEvent::BadProgram => "restart, bad program",
        LifecycleEvent::BadConfiguration => "restart, bad config",
        LifecycleEvent::KillWorker => "kill -9 worker",
        LifecycleEvent::KillSupervisor => "kill -9 supervisor",
        LifecycleEvent::KillBoth => "kill -9 both",
    };
    match remedy {
        None => event.to_owned(),
        Some(Remedy::Undo) => format!("{event}, undo"),
        Some(Remedy::Successor) => format!("{event}, next"),
        Some(Remedy::Time) => format!("{event}, alone"),
    }
}

impl fmt::Display for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stall = self.stall_ms / 1e3;
        let count = self.rows.first().map_or(0, |row| row.flow_count);
        writeln!(f, "{count} TCP flows of 1.8 Mbit/s; half of them in each direction, half over IPv6")?;
        writeln!(f, "  stall  flows without an arrival for {stall} s")?;
        writeln!(f, "  broke  flows that were reset, timed out, or did not deliver every byte")?;
        writeln!(f, "  gap    longest time without an arrival: of all flows, and of the median flow")?;
        writeln!(f, "  rexmt  retransmitted segments")?;
        writeln!(f, "  wrong  bytes that arrived changed")?;
        writeln!(f, "  left   items of the host's state left changed by a killed gateway")?;
        writeln!(f, "  diff   items that still differ at the end")?;
        writeln!(f, "After a kill: `wideload undo` (undo), a new gateway (next), or no action until")?;
        writeln!(f, "the flows continue (alone).")?;
        let mut role = None;
        for row in &self.rows {
            if role.replace(row.role) != Some(row.role) {
                let spare = "";
                writeln!(f, "\n{:<30}      flows      gap, ms {spare:>17} state", name(row.role))?;
                writeln!(
                    f,
                    "{spare:<24} {:>5} {:>3} {:>5} {:>5} {:>5} {:>4} {:>5} {:>5} {:>4} {:>4}",
                    "exit", "on", "stall", "broke", "max", "p50", "rexmt", "wrong", "left", "diff"
                )?;
            }
            writeln!(f, "{row}")?;
        }
        writeln!(f)?;
        self.write_left(f)?;
        for row in self.rows.iter().filter(|row| row.mended_by_hand.is_some()) {
            let (role, label) = (name(row.role), label(row.event, row.remedy));
            let text = format!(
                "{role}, {label}: {} flows stalled, because their segments with the raised MSS do not fit; {} of them continued after the \
                 wide host got a route with MTU 1500",
                row.stalled,
                row.mended_by_hand.unwrap_or_default()
            );
            write_wrapped(f, &text)?;
        }
        for row in self.rows.iter().filter(|row| row.remedy == Some(Remedy::Time) && row.stalled > 0) {
            let (role, label) = (name(row.role), label(row.event, row.remedy));
            let text = format!(
                "{role}, {label}: {} flows stalled until their IPv6 routes had expired, at most ten seconds \
                 later, and their senders retransmitted",
                row.stalled
            );
            write_wrapped(f, &text)?;
        }
        self.faults.iter().try_for_each(|fault| write_wrapped(f, &format!("fault: {fault}")))?;
        if self.faults.is_empty() {
            writeln!(f, "no faults")?;
        }
        let Conditions { kernel, processors, build, .. } = &self.conditions;
        writeln!(f, "Linux {kernel}, {processors} processors, build {build}, {:.0} s", self.seconds)
    }
}

impl Lifecycle {
    /// Writes the changes that killed gateways left on the host. For each role, only the gateway with the most
    /// changes is listed.
    fn write_left(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for role in super::ROLES {
            let rows = self.rows.iter().filter(|row| row.role == role && !row.left_behind.is_empty());
            let Some(row) = rows.max_by_key(|row| row.left_behind.len()) else { continue };
            writeln!(f, "host state left by a killed {}, until `wideload undo` restores it:", name(role))?;
            for change in &row.left_behind {
                writeln!(f, "  {}", clipped(&change.item, WIDTH - 2))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for LifecycleRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broke = self.reset + self.timed_out;
        let exit = self.exit.as_deref().unwrap_or("-").replace("signal", "sig");
        let left = if matches!(self.remedy, Some(Remedy::Undo | Remedy::Time)) {
            self.left_behind.len().to_string()
        } else {
            "-".to_owned()
        };
        write!(
            f,
            "{:<24} {exit:>5} {:>3} {:>5} {broke:>5} {:>5.0} {:>4.0} {:>5} {:>5} {left:>4} {:>4}",
            label(self.event, self.remedy),
            self.flow_count.saturating_sub(self.stalled + broke),
            self.stalled,
            self.longest_gap_ms,
            self.median_gap_ms,
            self.retransmitted,
            self.wrong_bytes,
            self.differences.len()
        )
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let (before, after) = (shown(&self.before), shown(&self.after));
        write!(
            f,
            "{}: {} before, {} after",
            clipped(&self.item, ITEM_LEN),
            clipped(&before, ITEM_LEN),
            clipped(&after, ITEM_LEN)
        )
    }
}

/// Writes a text in wrapped lines. All lines except the first are indented.
fn write_wrapped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH && !line.trim().is_empty() {
            writeln!(f, "{line}")?;
            line = " ".to_owned();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&clipped(word, WIDTH - 2));
    }
    writeln!(f, "{line}")
}

fn clipped(text: &str, len: usize) -> String {
    if text.chars().count() <= len {
        return text.to_owned();
    }
    text.chars().take(len - 1).chain(['…']).collect()
}

/// Width of the table, in columns.
const WIDTH: usize = 80;
/// Largest number of characters of a setting or value in a sentence. The JSON output has the complete text.
const ITEM_LEN: usize = 120;
