//! Prometheus text -> counters that do not add up.
//!
//! The sums are computed here from the counters alone, by the rules of COUNTERS.md. The result is compared with the
//! gateway's own check of its counters.

use engine::{Event, Reason};
use gateway::stats::{PortIn, PortOut};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The values of all counters at one moment, by name and labels.
#[derive(Debug)]
pub(super) struct CounterAudit {
    values: HashMap<String, f64>,
}

impl CounterAudit {
    /// Fetches the counters from a gateway.
    pub(super) fn fetch(address: &str) -> io::Result<CounterAudit> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200 ") && body.ends_with("# EOF\n") => {
                Ok(CounterAudit::read(body))
            }
            _ => {
                let said = answer.lines().next().unwrap_or("nothing");
                Err(io::Error::other(format!("{address}: no metrics in the answer: {said}")))
            }
        }
    }

    fn read(text: &str) -> CounterAudit {
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let value = |row: &str| {
            let (name, value) = row.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        CounterAudit { values: rows.filter_map(value).collect() }
    }

    /// Returns the counters of COUNTERS.md that the gateway lacks.
    pub(super) fn missing(&self) -> Vec<String> {
        let of_directions = DIRECTIONS.iter().flat_map(|direction| {
            let reasons = Reason::ALL.iter().flat_map(move |reason| {
                ["retired_packets", "passed_frames"].map(|name| {
                    format!(
                        "{name}_total{{direction=\"{direction}\",way=\"{direction}\",reason=\"{}\"}}",
                        reason.name()
                    )
                })
            });
            let events = Event::ALL.iter().map(move |event| event_name(event.name(), "", direction));
            reasons.chain(events)
        });
        let mut missing: Vec<String> = of_directions.filter(|name| self.value(name).is_none()).collect();
        let of_ports = PortIn::ALL.iter().map(|it| ("in", it.name()));
        for (side, name) in of_ports.chain(PortOut::ALL.iter().map(|it| ("out", it.name()))) {
            let begins = format!("wideload_port_{side}_{name}");
            let count = self.values.keys().filter(|key| is_counter(key, &begins)).count();
            if count != 2 {
                missing.push(format!("{begins} (expected for two ports, found {count})"));
            }
        }
        missing
    }

    /// Describes the sums that do not match.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for direction in DIRECTIONS {
            for (what, tail) in [("packets", "_packets"), ("bytes", "_payload_bytes")] {
                let [came, went] = self.balance(direction, tail);
                if came != went {
                    broken.push(format!(
                        "{direction}: {came} {what} received or made, but {went} sent, ended or held"
                    ));
                }
            }
        }
        let is_law = |name: &str| name.contains("unexplained") || name.starts_with("wideload_broken_laws");
        let laws = self.values.iter().filter(|(name, value)| is_law(name) && **value != 0.0);
        let mut laws: Vec<String> = laws.map(|(name, value)| format!("{name} is {value}")).collect();
        laws.sort();
        broken.append(&mut laws);
        broken
    }

    /// Returns the number of packets of one direction that were received, forwarded, held and retired.
    pub(super) fn fates(&self, direction: &str) -> [u64; 4] {
        let count = |name: &str| {
            self.value(&format!("{name}{{direction=\"{direction}\",way=\"{direction}\"}}")).unwrap_or(0.0)
        };
        let counts = [
            count("received_packets_total"),
            count("forwarded_packets_total"),
            count("held_packets"),
            self.retired(direction, "_packets"),
        ];
        counts.map(|count| count as u64)
    }

    /// Returns the value of an event's counter, summed over both directions.
    pub(super) fn event(&self, event: Event) -> u64 {
        DIRECTIONS.iter().filter_map(|direction| self.value(&event_name(event.name(), "", direction))).sum::<f64>()
            as u64
    }

    /// Returns the number of passed frames without an IP packet, summed over both directions.
    pub(super) fn passed(&self) -> u64 {
        self.sum("wideload_port_in_passed_frames_total{") as u64
    }

    /// Returns both sides of the conservation law: packets received or made, and packets sent, used or held.
    fn balance(&self, direction: &str, tail: &str) -> [f64; 2] {
        let count = |name: &str| {
            self.value(&format!("{name}{{direction=\"{direction}\",way=\"{direction}\"}}")).unwrap_or(f64::NAN)
        };
        let events = |names: &[&str]| {
            let tail = if tail == "_packets" { "" } else { tail };
            names.iter().map(|name| self.value(&event_name(name, tail, direction)).unwrap_or(f64::NAN)).sum::<f64>()
        };
        let came = count(&format!("received{tail}_total")) + events(&MADE);
        let went = count(&format!("forwarded{tail}_total"))
            + self.retired(direction, tail)
            + count(&format!("held{tail}"))
            + events(&USED);
        [came, went]
    }

    fn retired(&self, direction: &str, tail: &str) -> f64 {
        self.sum(&format!("wideload_retired{tail}_total{{direction=\"{direction}\",way=\"{direction}\""))
    }

    fn sum(&self, begins: &str) -> f64 {
        self.values.iter().filter(|(name, _)| name.starts_with(begins)).map(|(_, value)| value).sum()
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.values.get(&format!("wideload_{name}")).copied()
    }
}

fn event_name(name: &str, tail: &str, direction: &str) -> String {
    format!("event_{name}{tail}_total{{direction=\"{direction}\",way=\"{direction}\"}}")
}

/// Whether the key is a counter with this name, with or without a unit suffix.
fn is_counter(key: &str, begins: &str) -> bool {
    let Some(rest) = key.strip_prefix(begins).and_then(|rest| rest.split_once("_total{")) else { return false };
    matches!(rest.0, "" | "_packets" | "_frames" | "_bytes")
}

/// Names of both directions, as in labels.
pub(super) const DIRECTIONS: [&str; 2] = ["to-narrow", "to-wide"];
/// Events that make packets (COUNTERS.md). `USED` has the events that use packets.
const MADE: [&str; 15] = [
    "reassembled",
    "released_timeout",
    "released_evicted",
    "released_at_end",
    "merged_complete",
    "merged_last",
    "merged_full",
    "merged_gap",
    "merged_changed",
    "merged_timeout",
    "merged_evicted",
    "merged_at_end",
    "equalised_out",
    "segments",
    "fragments",
];
const USED: [&str; 5] = ["fragments_used", "merged", "equalised_in", "resized", "fragmented"];
const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::metrics::text;
    use gateway::stats::{Count, Stats};

    #[test]
    fn every_counter_is_required_and_every_packet_accounted_for() {
        let snapshots = Stats::of(&[]);
        let books = CounterAudit::read(&text(&snapshots));
        assert_eq!((books.missing(), books.broken()), (vec![], vec![]));
        let count = Count { packets: 3, bytes: 100 };
        let mut figures = snapshots.clone();
        figures.all.to_wide.received = count;
        let broken = CounterAudit::read(&text(&figures)).broken();
        assert_eq!(
            broken,
            [
                "to-wide: 3 packets received or made, but 0 sent, ended or held",
                "to-wide: 100 bytes received or made, but 0 sent, ended or held"
            ]
        );
        for name in ["no_buffer", "frag_late"] {
            let mut figures = figures.clone();
            figures.all.to_wide.retired.insert(name.to_owned(), count);
            assert_eq!(CounterAudit::read(&text(&figures)).broken(), [""; 0], "it ended for {name}");
        }
        for name in USED {
            let mut figures = figures.clone();
            figures.all.to_wide.events.insert(name.to_owned(), count);
            assert_eq!(CounterAudit::read(&text(&figures)).broken(), [""; 0], "{name} used it");
        }
        for name in MADE {
            let mut figures = snapshots.clone();
            figures.all.to_wide.events.insert(name.to_owned(), count);
            figures.all.to_wide.forwarded = count;
            assert_eq!(CounterAudit::read(&text(&figures)).broken(), [""; 0], "{name} made it");
        }
    }

    #[test]
    fn unexplained_packets_and_missing_counters_are_detected() {
        let mut figures = Stats::of(&[]);
        figures.all.narrow.unexplained = -2;
        let whole = text(&figures);
        let broken = CounterAudit::read(&whole).broken();
        assert!(broken.len() == 1 && broken[0].ends_with("is -2"), "{broken:?}");
        let rows: Vec<&str> = whole.lines().filter(|line| !line.starts_with('#')).collect();
        let of_the_page = |row: &&&str| {
            ["retired_packets", "passed_frames", "event_", "port_in", "port_out"]
                .iter()
                .any(|name| row.starts_with(&format!("wideload_{name}")) && !row.contains("_payload_bytes_"))
        };
        let former: Vec<String> = whole
            .lines()
            .filter(|line| line.contains("Former name of"))
            .filter_map(|line| Some(format!("{}_total{{", line.strip_prefix("# HELP ")?.split(' ').next()?)))
            .collect();
        let is_former = |row: &&&str| former.iter().any(|name| row.starts_with(name.as_str()));
        for row in rows.iter().filter(of_the_page).filter(|row| !is_former(row)) {
            assert_eq!(CounterAudit::read(&whole.replace(row, "")).missing().len(), 1, "{row}");
        }
    }
}
