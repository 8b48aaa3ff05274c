//! A listening socket and a gateway's statistics -> the text that Prometheus fetches.
//!
//! The text has the format OpenMetrics 1.0. Each counter's help is its sentence in docs/COUNTERS.md. All reasons of
//! the ledger share one metric with a label `reason`. The metric `wideload_reason_info` explains the reasons.
//! Values are sums over all workers, except CPU time, wake-ups and packets handed between workers.

use crate::listeners::{Connection, Listener, Serve};
use engine::{Event, Reason};
use gateway::stats::{
    Count, DirectionFigures, EndpointFigures, HandoverCounter, PeerCounter, PlacementCounter, PortIn, PortOut,
    Stats, Watch,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::io::{self, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The server of the metrics. It answers requests until dropped.
#[derive(Debug)]
pub struct Metrics {
    _listener: Listener,
}

impl Metrics {
    /// Serves `GET /metrics` on a listening socket, on a thread of its own.
    ///
    /// # Errors
    /// The kernel cannot create a thread or a descriptor.
    pub fn serve(listener: TcpListener, watch: Watch) -> io::Result<Metrics> {
        listener.set_nonblocking(true)?;
        Ok(Metrics { _listener: Listener::open("metrics", listener, MetricsHandler { watch })? })
    }
}

/// Returns the statistics as OpenMetrics text.
///
/// # Panics
/// Never: writing to memory does not fail.
pub fn text(figures: &Stats) -> String {
    let mut registry = Registry::with_prefix("wideload");
    registry.register_collector(Box::new(Page(figures.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("memory takes all that is written");
    text
}

/// The HTTP/1.1 handler. It sends one response per connection.
struct MetricsHandler {
    watch: Watch,
}

impl Serve for MetricsHandler {
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn accept(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    fn serve(&self, mut connection: Connection<'_, TcpStream>) {
        let deadline = Instant::now() + TIMEOUT;
        let answer = match request(&mut connection, deadline) {
            Ok(Some(head)) => self.answer(&head),
            Ok(None) => HttpResponse::new(
                "431 Request Header Fields Too Large",
                "the request is longer than 8 KiB; send a shorter one\n",
            ),
            // A client that is too slow or gone receives no response.
            Err(_) => return,
        };
        if connection.write_all(answer.spelled().as_bytes(), deadline).is_ok() {
            close_gracefully(connection, deadline);
        }
    }

    fn reject_busy(&self, mut stream: TcpStream) {
        let busy =
            HttpResponse::new("503 Service Unavailable", "16 connections are open, the maximum; try again later\n");
        // One write: a client that misses it finds the connection closed.
        let _ = stream.write(busy.spelled().as_bytes());
    }
}

impl MetricsHandler {
    /// Returns the response to a request with this head.
    fn answer(&self, head: &str) -> HttpResponse {
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next()) else {
            return HttpResponse::new("400 Bad Request", "the first line is not an HTTP/1.1 request\n");
        };
        if !version.starts_with("HTTP/1.") {
            return HttpResponse::new("505 HTTP Version Not Supported", "use HTTP/1.1\n");
        }
        let is_head = method == "HEAD";
        let path = target.split('?').next().unwrap_or_default();
        let answer = match (method, path) {
            (_, path) if path != PATH => {
                HttpResponse::new("404 Not Found", "not found; the only path is /metrics\n")
            }
            ("GET" | "HEAD", _) => match self.watch.reading() {
                Ok(figures) => HttpResponse { kind: KIND, ..HttpResponse::new("200 OK", text(&figures)) },
                Err(error) => HttpResponse::new("503 Service Unavailable", format!("{error}\n")),
            },
            _ => HttpResponse {
                allows: true,
                ..HttpResponse::new("405 Method Not Allowed", "only GET and HEAD are allowed\n")
            },
        };
        HttpResponse { is_head, ..answer }
    }
}

/// An HTTP response.
struct HttpResponse {
    status: &'static str,
    kind: &'static str,
    body: String,
    /// Whether the response has the header `Allow`.
    allows: bool,
    /// Whether the response has a length but no body, as the answer to HEAD.
    is_head: bool,
}

impl HttpResponse {
    fn new(status: &'static str, body: impl Into<String>) -> HttpResponse {
        HttpResponse { status, kind: "text/plain; charset=utf-8", body: body.into(), allows: false, is_head: false }
    }

    fn spelled(&self) -> String {
        let HttpResponse { status, kind, body, .. } = self;
        let allow = if self.allows { "Allow: GET, HEAD\r\n" } else { "" };
        let len = body.len();
        let body = if self.is_head { "" } else { body };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{allow}Connection: close\r\n\r\n{body}"
        )
    }
}

/// Reads a request up to its empty line; `None` if the request is too long.
fn request(connection: &mut Connection<'_, TcpStream>, deadline: Instant) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    while bytes.len() < REQUEST_LEN_MAX {
        let count = connection.read(&mut chunk, deadline)?;
        bytes.extend_from_slice(&chunk[..count]);
        if count == 0 || bytes.windows(END.len()).any(|window| window == END) {
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(None)
}

/// Closes the connection so that the response arrives even if the client still sends. A socket closed with unread
/// bytes resets the connection, and the client may lose the response.
fn close_gracefully(mut connection: Connection<'_, TcpStream>, deadline: Instant) {
    if connection.stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let mut unread = 0;
    let mut chunk = [0; 1024];
    while unread < UNREAD_LEN_MAX {
        match connection.read(&mut chunk, deadline) {
            Ok(count) if count > 0 => unread += count,
            _ => return,
        }
    }
}

/// A collector of all metrics, for statistics of one moment.
#[derive(Debug)]
struct Page(Stats);

/// A metric's value.
#[derive(Clone, Copy, Debug)]
enum Value {
    Info,
    Total(u64),
    TotalOf(f64),
    Gauge(u64),
    LevelOf(f64),
    Gap(i64),
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A writer of metrics. It writes all values of a metric together.
struct MetricsText<'e, 'w> {
    encoder: &'e mut DescriptorEncoder<'w>,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut text = MetricsText { encoder: &mut encoder };
        text.about(&self.0)?;
        text.directions(&self.0)?;
        text.events(&self.0)?;
        text.ends(&self.0)?;
        text.laws(&self.0)
    }
}

impl MetricsText<'_, '_> {
    fn about(&mut self, figures: &Stats) -> fmt::Result {
        let Stats { name, version, role, .. } = figures;
        let labels = vec![("name", &name[..]), ("version", &version[..]), ("role", &role[..])];
        self.write("build", "Name, version and role of the gateway.", None, [(labels, Value::Info)])?;
        self.write(
            "start_time",
            "Start time, in seconds since 1970.",
            Some(Unit::Seconds),
            [(vec![], Value::LevelOf(figures.began))],
        )?;
        let numbers: Vec<String> = (0..figures.workers.len()).map(|number| number.to_string()).collect();
        let rows = figures.workers.iter().zip(&numbers);
        let rows =
            rows.map(|(worker, number)| (vec![("worker", &number[..])], Value::TotalOf(worker.processor_seconds)));
        self.write("processor", "CPU time of each worker.", Some(Unit::Seconds), rows)?;
        let rows = figures.workers.iter().zip(&numbers);
        let rows = rows.map(|(worker, number)| (vec![("worker", &number[..])], Value::Total(worker.wakes)));
        self.write("wakes", "Times that each worker was woken from sleep.", None, rows)?;
        for counter in PeerCounter::ALL {
            let rows = figures.workers.iter().zip(&numbers);
            let rows = rows
                .map(|(worker, number)| (vec![("worker", &number[..])], Value::Total(counter.of(&worker.peers))));
            let former = format!("sibling_{}", counter.former_name().unwrap_or(counter.name()));
            let names = Names::new(format!("peer_{}", counter.name()), Some(packets()))
                .with_former(former, Some(packets()));
            self.write_named(names, counter.what(), rows)?;
        }
        for counter in HandoverCounter::ALL {
            let names =
                Names::of(["handover", "succession"], counter.name(), counter.former_name(), counter.unit());
            self.write_named(names, counter.what(), [(vec![], Value::Total(counter.of(&figures.losses)))])?;
        }
        let rows = Reason::ALL.iter().map(|it| (vec![("reason", it.name()), ("meaning", it.what())], Value::Info));
        self.write("reason", "Meanings of the reasons.", None, rows)
    }

    fn directions(&mut self, figures: &Stats) -> fmt::Result {
        self.direction_counts(figures, "received", "Received IP packets", |direction| direction.received)?;
        self.direction_counts(figures, "forwarded", "Forwarded packets, counted as on the wire", |direction| {
            direction.forwarded
        })?;
        self.totals(figures, "all_received", "Received IP packets, including those of offloaded flows", 0)?;
        self.totals(figures, "all_forwarded", "Forwarded packets, including those of offloaded flows", 1)?;
        self.reasons(
            figures,
            "passed",
            ["frames", ""],
            "Frames that were forwarded unchanged",
            DirectionFigures::passed,
        )?;
        self.reasons(
            figures,
            "retired",
            ["packets", "payload"],
            "Packets that were dropped or consumed",
            DirectionFigures::retired,
        )?;
        let held = "Packets that the gateway holds";
        self.levels(figures, "held", packets(), held, |direction| direction.held.packets)?;
        self.levels(
            figures,
            "held_payload",
            Unit::Bytes,
            "Payload of the packets that the gateway holds",
            |direction| direction.held.bytes,
        )?;
        let pool = "Heap memory of the buffer pool, in use and free";
        self.levels(figures, "pool", Unit::Bytes, pool, |direction| direction.pool_bytes)?;
        let names = Names::new("pool_in_use", Some(buffers())).with_former("lent", Some(buffers()));
        let rows = figures.all.directions();
        let rows = rows.map(|(label, direction)| (direction_labels(label), Value::Gauge(direction.lent_buffers)));
        self.write_named(names, "Buffers of the pool that are in use.", rows)?;
        for counter in PlacementCounter::ALL {
            let directions = figures.all.directions().into_iter();
            let rows = directions.map(|(label, direction)| {
                (direction_labels(label), Value::Total(counter.of(&direction.placement)))
            });
            let names = Names::of(["placement", "guess"], counter.name(), counter.former_name(), counter.unit());
            self.write_named(names, counter.what(), rows)?;
        }
        self.stages(figures)
    }

    /// Writes two metrics for each direction: the number of packets, and their payload bytes.
    fn direction_counts(
        &mut self,
        figures: &Stats,
        name: &str,
        what: &str,
        of: impl Fn(&DirectionFigures) -> Count,
    ) -> fmt::Result {
        let rows = |part: fn(Count) -> u64| {
            let directions = figures.all.directions().into_iter();
            directions
                .map(|(label, direction)| (direction_labels(label), Value::Total(part(of(direction)))))
                .collect::<Vec<_>>()
        };
        self.write(name, &format!("{what}."), Some(packets()), rows(|count| count.packets))?;
        let help = format!("{what}: payload bytes after the IP headers.");
        self.write(&format!("{name}_payload"), &help, Some(Unit::Bytes), rows(|count| count.bytes))
    }

    /// Writes packets and bytes of each direction, including offloaded flows: received (`which` = 0) or forwarded
    /// (1).
    fn totals(&mut self, figures: &Stats, name: &str, what: &str, which: usize) -> fmt::Result {
        let totals = figures.all.totals();
        let rows = |part: fn(Count) -> u64| {
            let row = |(label, counts): &(&'static str, [Count; 2])| {
                (direction_labels(label), Value::Total(part(counts[which])))
            };
            totals.iter().map(row).collect::<Vec<_>>()
        };
        self.write(name, &format!("{what}."), Some(packets()), rows(|count| count.packets))?;
        let help =
            format!("{what}: payload bytes after the IP headers, or after the TCP header for offloaded flows.");
        self.write(&format!("{name}_payload"), &help, Some(Unit::Bytes), rows(|count| count.bytes))
    }

    /// Writes packets and bytes of each direction for each reason. The array contains the unit of the number, and
    /// the kind of bytes (`""` for all bytes of the frames).
    fn reasons(
        &mut self,
        figures: &Stats,
        name: &str,
        [unit, bytes_of]: [&str; 2],
        what: &str,
        of: impl Fn(&DirectionFigures, Reason) -> Count,
    ) -> fmt::Result {
        let rows = |part: fn(Count) -> u64| {
            let directions = figures.all.directions().into_iter();
            let rows = directions
                .flat_map(|(label, direction)| Reason::ALL.iter().map(move |reason| (label, direction, *reason)));
            let row = |(label, direction, reason): (_, _, Reason)| {
                (with(direction_labels(label), "reason", reason.name()), Value::Total(part(of(direction, reason))))
            };
            rows.map(row).collect::<Vec<_>>()
        };
        let unit = Unit::Other(unit.to_owned());
        self.write(name, &format!("{what}, by reason."), Some(unit), rows(|count| count.packets))?;
        let (name, help) = match bytes_of {
            "" => (name.to_owned(), format!("{what}, by reason: bytes of the whole frames.")),
            bytes_of => (format!("{name}_{bytes_of}"), format!("{what}, by reason: payload bytes.")),
        };
        self.write(&name, &help, Some(Unit::Bytes), rows(|count| count.bytes))
    }

    fn levels(
        &mut self,
        figures: &Stats,
        name: &str,
        unit: Unit,
        what: &str,
        of: impl Fn(&DirectionFigures) -> u64,
    ) -> fmt::Result {
        let rows = figures
            .all
            .directions()
            .into_iter()
            .map(|(label, direction)| (direction_labels(label), Value::Gauge(of(direction))));
        self.write(name, &format!("{what}."), Some(unit), rows)
    }

    fn stages(&mut self, figures: &Stats) -> fmt::Result {
        let rows = || {
            let directions = figures.all.directions().into_iter();
            directions.flat_map(|(label, direction)| direction.stages.iter().map(move |stage| (label, stage)))
        };
        let labels = |label, stage| with(direction_labels(label), "stage", stage);
        let on = rows().map(|(label, it)| (labels(label, &it.stage[..]), Value::Gauge(it.is_on.into())));
        self.write("stage_on", "1 if the stage is on, 0 if it is bypassed or not configured.", None, on)?;
        let held = rows().map(|(label, it)| (labels(label, &it.stage[..]), Value::Gauge(it.held.bytes)));
        self.write("stage_held_payload", "Payload that the stage holds.", Some(Unit::Bytes), held)
    }

    fn events(&mut self, figures: &Stats) -> fmt::Result {
        for event in Event::ALL {
            let rows = |part: fn(Count) -> u64| {
                let directions = figures.all.directions().into_iter();
                let row = |(label, direction): (_, &DirectionFigures)| {
                    (direction_labels(label), Value::Total(part(direction.event(*event))))
                };
                directions.map(row).collect::<Vec<_>>()
            };
            let name = |name: &str| format!("event_{name}");
            let payload = |name: &str| format!("event_{name}_payload");
            let mut packets = Names::new(name(event.name()), None);
            let mut bytes = Names::new(payload(event.name()), Some(Unit::Bytes));
            if let Some(former) = event.former_name() {
                packets = packets.with_former(name(former), None);
                bytes = bytes.with_former(payload(former), Some(Unit::Bytes));
            }
            self.write_named(packets, event.what(), rows(|count| count.packets))?;
            let help = format!("{} Payload bytes.", event.what());
            self.write_named(bytes, &help, rows(|count| count.bytes))?;
        }
        Ok(())
    }

    fn ends(&mut self, figures: &Stats) -> fmt::Result {
        let up = figures.all.ends().map(|(label, end)| (label, end, Value::Gauge(end.is_up.into())));
        self.write_ends("port_up", "1 if the port works, 0 if it is down.", None, up)?;
        for counter in PortIn::ALL {
            let rows = figures.all.ends().map(|(label, end)| (label, end, Value::Total(end.rx(*counter))));
            let names = Names::of(["port_in"; 2], counter.name(), counter.former_name(), counter.unit());
            self.write_named(names, counter.what(), rows.map(of_end))?;
        }
        for counter in PortOut::ALL {
            let rows = figures.all.ends().map(|(label, end)| (label, end, Value::Total(end.tx(*counter))));
            let names = Names::of(["port_out"; 2], counter.name(), counter.former_name(), counter.unit());
            self.write_named(names, counter.what(), rows.map(of_end))?;
        }
        Ok(())
    }

    fn laws(&mut self, figures: &Stats) -> fmt::Result {
        let directions = figures.all.directions();
        let what = "Packets received or created, minus those forwarded, dropped, consumed or held. A value other than 0 is a bug.";
        let rows = directions
            .map(|(label, direction)| (direction_labels(label), Value::Gap(direction.unexplained.packets)));
        self.write("unexplained", what, Some(packets()), rows)?;
        let what = "Payload received or created, minus payload forwarded, dropped, consumed or held. A value other than 0 is a bug.";
        let rows =
            directions.map(|(label, direction)| (direction_labels(label), Value::Gap(direction.unexplained.bytes)));
        self.write("unexplained_payload", what, Some(Unit::Bytes), rows)?;
        let what = "Packets that the port was to send, minus those that were sent, dropped or handed to other workers. A value other than 0 is a bug.";
        let rows = figures.all.ends().map(|(label, end)| (label, end, Value::Gap(end.unexplained)));
        self.write_ends("port_unexplained", what, Some(packets()), rows)?;
        let what = "Accounting invariants that a worker violates. A value other than 0 is a bug.";
        let rows = directions
            .map(|(label, direction)| (direction_labels(label), Value::Gauge(direction.broken.len() as u64)));
        self.write("broken_laws", what, None, rows)
    }

    fn write_ends(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        rows: [(&'static str, &EndpointFigures, Value); 2],
    ) -> fmt::Result {
        self.write(name, help, unit, rows.map(of_end))
    }

    /// Writes values under the current name, and also under the former name if there is one.
    fn write_named<'a>(
        &mut self,
        names: Names,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'a>, Value)>,
    ) -> fmt::Result {
        let rows: Vec<_> = rows.into_iter().collect();
        let (name, unit) = names.now;
        self.write(&name, help, unit, rows.iter().cloned())?;
        let Some((former, unit)) = names.former else { return Ok(()) };
        let help = format!("Former name of wideload_{name}; version 0.3 removes it.");
        self.write(&former, &help, unit, rows)
    }

    /// Writes one metric with all of its values.
    fn write<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        rows: impl IntoIterator<Item = (Labels<'a>, Value)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        let Some((_, first)) = rows.peek() else { return Ok(()) };
        let mut family = self.encoder.encode_descriptor(name, help, unit.as_ref(), first.kind())?;
        for (labels, value) in rows {
            if let Value::Info = value {
                family.encode_info(&labels)?;
                continue;
            }
            let mut metric = family.encode_family(&labels)?;
            match value {
                Value::Info => {}
                Value::Total(count) => metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?,
                Value::TotalOf(amount) => metric.encode_counter::<NoLabelSet, _, u64>(&amount, None)?,
                Value::Gauge(level) => metric.encode_gauge(&level)?,
                Value::LevelOf(level) => metric.encode_gauge(&level)?,
                Value::Gap(gap) => metric.encode_gauge(&gap)?,
            }
        }
        Ok(())
    }
}

impl Value {
    fn kind(self) -> MetricType {
        match self {
            Value::Info => MetricType::Info,
            Value::Total(_) | Value::TotalOf(_) => MetricType::Counter,
            Value::Gauge(_) | Value::LevelOf(_) | Value::Gap(_) => MetricType::Gauge,
        }
    }
}

/// A metric's name and unit; also the name and unit of version 0.1 if they differ.
struct Names {
    now: (String, Option<Unit>),
    former: Option<(String, Option<Unit>)>,
}

impl Names {
    fn new(name: impl Into<String>, unit: Option<Unit>) -> Names {
        Names { now: (name.into(), unit), former: None }
    }

    fn with_former(self, name: impl Into<String>, unit: Option<Unit>) -> Names {
        Names { former: Some((name.into(), unit)), ..self }
    }

    /// Returns the names of a group's counter. `front` and `former_front` are the group's current and former name.
    fn of([front, former_front]: [&str; 2], name: &str, former: Option<&str>, unit: &str) -> Names {
        let (now, now_unit) = named_with(front, name, unit);
        let names = Names::new(now, now_unit);
        if former.is_none() && front == former_front {
            return names;
        }
        let (former, former_unit) = match former.unwrap_or(name) {
            // In version 0.1, "wires" was the unit too, and the name of the series was the same.
            "wires" => named_with(former_front, "wires", "times"),
            former => named_with(former_front, former, unit),
        };
        names.with_former(former, former_unit)
    }
}

/// Returns the labels of a direction. The label `way` is the former name of `direction`.
fn direction_labels(label: &str) -> Labels<'_> {
    vec![("direction", label), ("way", label)]
}

fn with<'a>(mut labels: Labels<'a>, name: &'static str, value: &'a str) -> Labels<'a> {
    labels.push((name, value));
    labels
}

fn of_end<'a>((label, end, value): (&'static str, &'a EndpointFigures, Value)) -> (Labels<'a>, Value) {
    (vec![("end", label), ("port", &end.address[..])], value)
}

/// Returns the name of a counter's metric, and the unit. The name starts with the group's name. The encoder appends
/// the unit.
fn named_with(front: &str, name: &str, unit: &str) -> (String, Option<Unit>) {
    let stem = name.strip_suffix(unit).unwrap_or(name).trim_end_matches('_');
    let name = [front, stem].join("_");
    let name = name.trim_end_matches('_').to_owned();
    match unit {
        "times" => (name, None),
        "bytes" => (name, Some(Unit::Bytes)),
        unit => (name, Some(Unit::Other(unit.to_owned()))),
    }
}

fn buffers() -> Unit {
    Unit::Other("buffers".to_owned())
}

fn packets() -> Unit {
    Unit::Other("packets".to_owned())
}

/// The path of the metrics in requests.
const PATH: &str = "/metrics";
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The bytes at the end of a request's head.
const END: &[u8] = b"\r\n\r\n";
/// Time limit of one connection.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest head of a request, in bytes.
const REQUEST_LEN_MAX: usize = 8 << 10;
/// Largest number of bytes that are read and discarded after a response.
const UNREAD_LEN_MAX: usize = 64 << 10;
