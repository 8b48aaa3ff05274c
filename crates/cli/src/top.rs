//! Statistics of a running gateway -> a live view of both directions: on a terminal, as a table or as JSON.
//!
//! Rates are calculated from two successive statistics. The most important value is the mean payload of a packet:
//! the bytes after the IP header, before and after the gateway changed packet sizes.

use crate::args::Top;
use crate::command::{Status, failed, unless_closed};
use daemon::control::{Client, find};
use daemon::json;
use engine::Event as Counter;
use gateway::stats::{Count, DirectionFigures, EndpointFigures, MetricGroup, PortIn, PortOut, StageFigures, Stats};
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame, Terminal};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A gateway's activity between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// The gateway's name.
    pub name: String,
    /// The gateway's role.
    pub role: String,
    /// The gateway's version.
    pub version: String,
    /// ID of the gateway's process.
    pub process: u32,
    /// The gateway's running time, in seconds.
    pub seconds: f64,
    /// Number of the gateway's workers.
    pub worker_count: usize,
    /// Mean number of CPUs that the gateway kept busy; 1.0 is one CPU all the time.
    pub processors: f64,
    /// The direction to the wide side, then the direction to the narrow side.
    pub directions: [DirectionView; 2],
    /// Losses since the gateway started, ports that are down, and unexplained gaps.
    pub losses: Vec<Loss>,
}

/// The activity of one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectionView {
    /// The direction's name.
    pub direction: &'static str,
    /// Address of the ingress port.
    pub from: String,
    /// Address of the egress port.
    pub to: String,
    /// Rates of received packets, offloaded flows included.
    pub came: Flow,
    /// Rates of forwarded packets, offloaded flows included.
    pub went: Flow,
    /// Share of received packets that are longer than 8,000 bytes, from 0 to 1; `None` if no packet was received.
    pub wide_share: Option<f64>,
    /// Held packets and their payload bytes.
    pub held: Count,
    /// The stages, in the order in which packets pass through them.
    pub stages: Vec<StageFigures>,
    /// Events per second, most frequent first.
    pub events: Vec<(String, f64)>,
}

/// Rates of packets and bits in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// Packets per second, counted as on the wire.
    pub packets: f64,
    /// Bits per second of complete frames. Of offloaded flows, only the TCP payload is included.
    pub bits: f64,
    /// Mean number of bytes after the IP header; `None` if there was no packet.
    pub payload_len: Option<f64>,
}

/// One kind of loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// Name of the direction or of the port.
    pub at: String,
    /// Name of the counter.
    pub name: String,
    /// The counter's name in version 0.1; `None` if the name has not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_name: Option<&'static str>,
    /// Packets per second.
    pub rate: f64,
    /// Lost packets since the gateway started; for `unexplained`, the gap, which may be negative.
    pub total: i64,
}

/// Runs `wideload top`.
pub fn top(args: &Top) -> Status {
    match run(args) {
        Ok(()) => Status::Done,
        Err(error) => failed(&error),
    }
}

/// Shows the gateway's activity once, or until the user quits.
fn run(args: &Top) -> io::Result<()> {
    let path = find(args.gateway.as_deref())?;
    let mut client = Client::connect(&path)?;
    if args.once || args.json {
        let before = client.status()?;
        sleep(BETWEEN);
        let view = View::between(&before, &client.status()?);
        let text = if args.json { json::line(&view.with_former_names())? } else { view.table(TABLE_WIDTH) };
        return unless_closed(io::stdout().write_all(text.as_bytes()));
    }
    if !io::stdout().is_terminal() {
        return Err(io::Error::other("standard output is not a terminal; give --once or --json"));
    }
    let before = client.status()?;
    let mut terminal = ratatui::try_init()?;
    let outcome = run_screen(&mut terminal, &path, &mut client, before);
    ratatui::try_restore()?;
    outcome
}

fn run_screen(
    terminal: &mut DefaultTerminal,
    path: &Path,
    client: &mut Client,
    mut before: Stats,
) -> io::Result<()> {
    let mut view = View::between(&before, &before);
    let mut next = Instant::now() + FIRST;
    loop {
        terminal.draw(|frame| screen(&view, frame))?;
        while poll(next.saturating_duration_since(Instant::now()))? {
            match read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    _ => {}
                },
                Event::Resize(..) => {
                    terminal.draw(|frame| screen(&view, frame))?;
                }
                _ => {}
            }
        }
        let after = status(path, client)?;
        // The counters of a new process start at zero.
        let since = if after.process == before.process { &before } else { &after };
        view = View::between(since, &after);
        before = after;
        next = Instant::now() + BETWEEN;
    }
}

/// Returns the gateway's statistics. If the gateway's process has ended, as in a restart, waits for the successor.
///
/// # Errors
/// No gateway has answered at this path for five seconds.
pub fn status(path: &Path, client: &mut Client) -> io::Result<Stats> {
    let until = Instant::now() + SUCCESSOR_TIMEOUT;
    let mut outcome = client.status();
    while outcome.is_err() && Instant::now() < until {
        sleep(SUCCESSOR_LOOK);
        outcome = Client::connect(path).and_then(|mut next| {
            let figures = next.status()?;
            *client = next;
            Ok(figures)
        });
    }
    outcome
}

/// Draws a view and the hint that `q` quits.
fn screen(view: &View, frame: &mut Frame<'_>) {
    view.draw(frame);
    let [_, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    let [_, hint, _] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(HINT.len() as u16), Constraint::Length(2)])
            .areas(bottom);
    frame.render_widget(Paragraph::new(HINT), hint);
}

impl View {
    /// Makes the view of the activity between two statistics of one gateway.
    pub fn between(before: &Stats, after: &Stats) -> View {
        let pace = Pace { seconds: after.seconds - before.seconds };
        let (old, new) = (&before.all, &after.all);
        let to_wide = pace.direction(
            "to-wide",
            [&old.to_wide, &new.to_wide],
            [&old.narrow, &new.narrow],
            [&old.wide, &new.wide],
        );
        let to_narrow = pace.direction(
            "to-narrow",
            [&old.to_narrow, &new.to_narrow],
            [&old.wide, &new.wide],
            [&old.narrow, &new.narrow],
        );
        View {
            name: after.name.clone(),
            role: after.role.clone(),
            version: after.version.clone(),
            process: after.process,
            seconds: after.seconds,
            worker_count: after.workers.len(),
            processors: pace.each(new.processor_seconds - old.processor_seconds),
            directions: [to_wide, to_narrow],
            losses: pace.losses(old, new),
        }
    }

    /// Returns this view with copies of renamed events. After each renamed event follows a copy with its name in
    /// version 0.1.
    pub fn with_former_names(mut self) -> View {
        let former = |name: &str| Counter::ALL.iter().find(|it| it.name() == name)?.former_name();
        for direction in &mut self.directions {
            let events = std::mem::take(&mut direction.events).into_iter();
            direction.events = events
                .flat_map(|(name, rate)| {
                    let copy = former(&name).map(|former| (former.to_owned(), rate));
                    [Some((name, rate)), copy].into_iter().flatten()
                })
                .collect();
        }
        self
    }

    /// Returns the view as text. `width` is the width of a line in characters.
    pub fn table(&self, width: u16) -> String {
        let mut terminal = match Terminal::new(TestBackend::new(width, self.height())) {
            Ok(terminal) => terminal,
            Err(never) => match never {},
        };
        match terminal.draw(|frame| self.draw(frame)) {
            Ok(_) => letters(terminal.backend().buffer()),
            Err(never) => match never {},
        }
    }

    /// Returns the number of lines that the complete view needs.
    fn height(&self) -> u16 {
        let done = self.directions.iter().map(|direction| direction.events.len()).max().unwrap_or(0).max(1);
        let stages = self.directions[0].stages.len();
        (TITLE_HEIGHT + DIRECTIONS_HEIGHT)
            + (stages + done + self.losses.len().max(1)) as u16
            + 3 * FRAME_HEIGHT
            + 1
    }

    /// Draws the view.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let stages = self.directions[0].stages.len() as u16 + 1 + FRAME_HEIGHT;
        let losses = (self.losses.len().max(1) as u16 + FRAME_HEIGHT).min(frame.area().height / 3);
        let areas = Layout::vertical([
            Constraint::Length(TITLE_HEIGHT),
            Constraint::Length(DIRECTIONS_HEIGHT),
            Constraint::Length(stages),
            Constraint::Min(FRAME_HEIGHT + 1),
            Constraint::Length(losses),
        ]);
        let [title, directions, stages, done, losses] = areas.areas(frame.area());
        self.draw_title(frame, title);
        self.draw_directions(frame, directions);
        self.draw_stages(frame, stages);
        self.draw_done(frame, done);
        self.draw_losses(frame, losses);
    }

    fn draw_title(&self, frame: &mut Frame<'_>, area: Rect) {
        let workers = if self.worker_count == 1 { "worker" } else { "workers" };
        let View { name, role, version, process, worker_count, .. } = self;
        let up = stretch(self.seconds);
        // The longest of these texts that fits is shown.
        let told = [
            format!("  {role} {version}, process {process}, {worker_count} {workers}, up {up}"),
            format!("  process {process}, up {up}"),
            format!("  up {up}"),
        ];
        let room = usize::from(area.width).saturating_sub(Line::from(name.as_str()).width());
        let told = told.into_iter().find(|told| told.len() <= room).unwrap_or_default();
        let line = Line::from(vec![Span::styled(name.clone(), BOLD), Span::raw(told)]);
        let busy = Line::from(format!("CPU {:.0} %", self.processors * 100.0));
        let room = area.width.saturating_sub(line.width() as u16);
        frame.render_widget(Paragraph::new(line), area);
        // Both texts on the same columns would be unreadable.
        if busy.width() as u16 + 2 <= room {
            frame.render_widget(Paragraph::new(busy).alignment(Alignment::Right), area);
        }
    }

    fn draw_directions(&self, frame: &mut Frame<'_>, area: Rect) {
        let columns: &[Column] = match area.width.saturating_sub(FRAME_HEIGHT) {
            ..MEDIUM_WIDTH => &NARROW_COLUMNS,
            MEDIUM_WIDTH..WIDE_WIDTH => &MEDIUM_COLUMNS,
            WIDE_WIDTH.. => &WIDE_COLUMNS,
        };
        let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
        let head = Row::new(columns.iter().map(|(name, _, _)| right((*name).to_owned()))).style(DIM);
        let rows = self.directions.iter().map(|direction| {
            Row::new(columns.iter().map(|(_, _, what)| match what {
                Shows::Direction => Cell::from(Span::styled(direction.direction, BOLD)),
                Shows::ShortDirection => {
                    Cell::from(Span::styled(direction.direction.trim_start_matches("to-"), BOLD))
                }
                Shows::CamePackets => right(short(direction.came.packets)),
                Shows::CameBits => right(short(direction.came.bits)),
                Shows::CameLen => right(len(direction.came.payload_len)).style(IN),
                Shows::WideShare => {
                    right(direction.wide_share.map_or(NONE.to_owned(), |share| format!("{:.0} %", share * 100.0)))
                }
                Shows::WentPackets => right(short(direction.went.packets)),
                Shows::WentBits => right(short(direction.went.bits)),
                Shows::WentLen => right(len(direction.went.payload_len)).style(OUT),
            }))
        });
        let widths = columns.iter().map(|(_, width, _)| Constraint::Length(*width));
        let table = Table::new(rows, widths).header(head).column_spacing(1);
        frame.render_widget(table.block(Block::bordered().title(" Traffic ")), area);
    }

    fn draw_stages(&self, frame: &mut Frame<'_>, area: Rect) {
        for (direction, area) in self.directions.iter().zip(halves(area)) {
            let inner = area.width.saturating_sub(FRAME_HEIGHT);
            let is_roomy = inner >= ROOMY_WIDTH;
            let is_tight = inner < TIGHT_WIDTH;
            let holds = |held: &Count| {
                let (packets, bytes) = (short(held.packets as f64), short(held.bytes as f64));
                match held.packets {
                    _ if is_tight => format!("{bytes}B"),
                    count if is_roomy => format!("holds {count} packets, {bytes}B"),
                    _ => format!("holds {}, {bytes}B", packets.trim_end()),
                }
            };
            let rows = direction.stages.iter().map(|stage| {
                let (switch, style) = if stage.is_on { ("on", Style::new()) } else { ("off", DIM) };
                let held = match stage.held.packets {
                    0 if is_tight => switch.to_owned(),
                    0 => String::new(),
                    _ => holds(&stage.held),
                };
                Row::new([stage.stage.clone(), switch.to_owned(), held]).style(style)
            });
            let all = match direction.held.packets {
                0 if is_tight => "nothing".to_owned(),
                0 => "holds nothing".to_owned(),
                _ if is_roomy => format!("{} in all", holds(&direction.held)),
                _ => holds(&direction.held),
            };
            // In a narrow area, the column with the switch is dropped: the held bytes stand in its place.
            let switch_width = if is_tight { 0 } else { 4 };
            let held_width = if is_tight { Constraint::Fill(1) } else { Constraint::Min(10) };
            let widths = [Constraint::Length(11), Constraint::Length(switch_width), held_width];
            let rows = rows.chain([Row::new([String::new(), String::new(), all]).style(DIM)]);
            let table = Table::new(rows, widths).column_spacing(0);
            let title = format!(" {}: {} to {} ", direction.direction, direction.from, direction.to);
            frame.render_widget(table.block(Block::bordered().title(title)), area);
        }
    }

    fn draw_done(&self, frame: &mut Frame<'_>, area: Rect) {
        for (direction, area) in self.directions.iter().zip(halves(area)) {
            let rows = direction.events.iter().map(|(name, rate)| Row::new([name.clone(), short(*rate)]));
            let table = Table::new(rows, [Constraint::Length(18), Constraint::Min(8)]).column_spacing(1);
            let title = format!(" {}: events per second ", direction.direction);
            frame.render_widget(table.block(Block::bordered().title(title)), area);
        }
    }

    fn draw_losses(&self, frame: &mut Frame<'_>, area: Rect) {
        let block = Block::bordered().title(" Dropped ");
        if self.losses.is_empty() {
            return frame.render_widget(Paragraph::new("nothing").block(block), area);
        }
        let is_roomy = area.width >= MEDIUM_WIDTH;
        let rows = self.losses.iter().map(|loss| {
            let Loss { at, name, rate, total, .. } = loss;
            let total = if is_roomy { format!("{total} in all") } else { brief(*total) };
            Row::new([at.clone(), name.clone(), format!("{}/s", short(*rate)), total]).style(RED)
        });
        let widths = if is_roomy {
            [Constraint::Length(24), Constraint::Length(18), Constraint::Length(10), Constraint::Min(10)]
        } else {
            [Constraint::Fill(1), Constraint::Fill(1), Constraint::Length(8), Constraint::Length(7)]
        };
        frame.render_widget(Table::new(rows, widths).column_spacing(1).block(block), area);
    }
}

/// The time between two statistics, in seconds.
#[derive(Clone, Copy)]
struct Pace {
    seconds: f64,
}

impl Pace {
    /// Returns an amount per second; 0 if no time passed.
    fn each(self, amount: f64) -> f64 {
        if self.seconds > 0.0 { amount / self.seconds } else { 0.0 }
    }

    fn rate(self, [before, after]: [u64; 2]) -> f64 {
        self.each(after.saturating_sub(before) as f64)
    }

    fn direction(
        self,
        direction: &'static str,
        directions: [&DirectionFigures; 2],
        from: [&EndpointFigures; 2],
        to: [&EndpointFigures; 2],
    ) -> DirectionView {
        // Offloaded flows are added, because the kernel forwards them by itself. Of their bytes, ports only count
        // the TCP payload.
        let offloaded = from.map(|end| end.rx(PortIn::OffloadBytes));
        let with_offloaded = |[before, after]: [u64; 2]| [before + offloaded[0], after + offloaded[1]];
        let came_bytes = with_offloaded(from.map(|end| end.rx(PortIn::Bytes)));
        let went_bytes = with_offloaded(to.map(|end| end.tx(PortOut::Bytes)));
        let [before, after] = [0, 1].map(|at| directions[at].totals(from[at]));
        let packets = from.map(|end| end.rx(PortIn::Packets));
        let wide = from.map(|end| end.rx(PortIn::WidePackets));
        let share = |part: [u64; 2], whole: [u64; 2]| {
            let [part, whole] = [part, whole].map(|[before, after]| after.saturating_sub(before) as f64);
            (whole > 0.0).then(|| part / whole)
        };
        let [_, new] = directions;
        DirectionView {
            direction,
            from: from[1].address.clone(),
            to: to[1].address.clone(),
            came: self.flow([before[0], after[0]], came_bytes),
            went: self.flow([before[1], after[1]], went_bytes),
            wide_share: share(wide, packets),
            held: new.held,
            stages: new.stages.clone(),
            events: self.most(directions.map(|direction| &direction.events)),
        }
    }

    fn flow(self, [before, after]: [Count; 2], bytes: [u64; 2]) -> Flow {
        let packets = after.packets.saturating_sub(before.packets);
        let payload = after.bytes.saturating_sub(before.bytes);
        Flow {
            packets: self.each(packets as f64),
            bits: 8.0 * self.rate(bytes),
            payload_len: (packets > 0).then(|| payload as f64 / packets as f64),
        }
    }

    /// Returns the rates of the events that occurred, most frequent first.
    fn most(self, [before, after]: [&BTreeMap<String, Count>; 2]) -> Vec<(String, f64)> {
        let rate = |(name, count): (&String, &Count)| {
            let old = before.get(name).map_or(0, |count| count.packets);
            (name.clone(), self.rate([old, count.packets]))
        };
        let mut events: Vec<_> = after.iter().map(rate).filter(|(_, rate)| *rate > 0.0).collect();
        events.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        events.truncate(EVENT_COUNT);
        events
    }

    /// Returns all losses since the start, with the highest current rate first.
    fn losses(self, old: &MetricGroup, new: &MetricGroup) -> Vec<Loss> {
        let mut losses = Vec::new();
        let mut note = |at: &str, name: &str, former_name: Option<&'static str>, totals: [u64; 2]| {
            let [_, total] = totals;
            if total > 0 {
                losses.push(Loss {
                    at: at.to_owned(),
                    name: name.to_owned(),
                    former_name,
                    rate: self.rate(totals),
                    total: total as i64,
                });
            }
        };
        for ((at, old), (_, new)) in old.directions().into_iter().zip(new.directions()) {
            for (name, count) in &new.retired {
                let before = old.retired.get(name).map_or(0, |count| count.packets);
                note(at, name, None, [before, count.packets]);
            }
        }
        for ((_, old), (_, new)) in old.ends().into_iter().zip(new.ends()) {
            let at = &new.address;
            for it in PortIn::DROPS {
                note(at, it.name(), it.former_name(), [old.rx(it), new.rx(it)]);
            }
            for it in PortOut::DROPS {
                note(at, it.name(), it.former_name(), [old.tx(it), new.tx(it)]);
            }
            if !new.is_up {
                note(at, "is down", None, [1, 1]);
            }
        }
        let directions = new.directions().map(|(at, direction)| (at.to_owned(), direction.unexplained.packets));
        let ends = new.ends().map(|(_, end)| (end.address.clone(), end.unexplained));
        let gaps = directions.into_iter().chain(ends).filter(|(_, gap)| *gap != 0);
        losses.extend(gaps.map(|(at, total)| Loss {
            at,
            name: "unexplained".to_owned(),
            former_name: None,
            rate: 0.0,
            total,
        }));
        losses.sort_by(|one, other| other.rate.total_cmp(&one.rate));
        losses
    }
}

fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1); 2]).areas(area)
}

/// Returns the text of a screen, one line per row, without trailing spaces.
fn letters(buffer: &Buffer) -> String {
    let Rect { width, height, .. } = buffer.area;
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a number with three digits and a unit prefix, such as `12.3 k`.
fn short(number: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match steps.into_iter().find(|(step, _)| number >= *step * 0.9995) {
        Some((step, name)) => {
            let number = number / step;
            let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
            format!("{number:.decimals$} {name}")
        }
        None => format!("{number:.0} "),
    }
}

/// Returns a positive or negative number with three digits and a unit prefix, without a trailing space.
fn brief(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", short(number.unsigned_abs() as f64).trim_end())
}

fn len(len: Option<f64>) -> String {
    len.map_or(NONE.to_owned(), |len| format!("{len:.0} B"))
}

/// Returns a time as `2 d 3 h`, `3 h 5 min`, `5 min 7 s` or `7 s`.
fn stretch(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{days} d {hours} h"),
    }
}

/// A column of the directions' table: its name, its width in characters, its content.
type Column = (&'static str, u16, Shows);

/// The content of a column.
#[derive(Clone, Copy)]
enum Shows {
    Direction,
    ShortDirection,
    CamePackets,
    CameBits,
    CameLen,
    WideShare,
    WentPackets,
    WentBits,
    WentLen,
}

const WIDE_COLUMNS: [Column; 8] = [
    ("", 9, Shows::Direction),
    ("in: packets/s", 13, Shows::CamePackets),
    ("bits/s", 9, Shows::CameBits),
    ("payload each", 12, Shows::CameLen),
    ("over 8,000 B", 12, Shows::WideShare),
    ("out: packets/s", 14, Shows::WentPackets),
    ("bits/s", 9, Shows::WentBits),
    ("payload each", 12, Shows::WentLen),
];
/// The columns for a terminal of 80 columns.
const MEDIUM_COLUMNS: [Column; 8] = [
    ("", 9, Shows::Direction),
    ("in: pkt/s", 10, Shows::CamePackets),
    ("bit/s", 7, Shows::CameBits),
    ("payload", 8, Shows::CameLen),
    ("over 8 kB", 9, Shows::WideShare),
    ("out: pkt/s", 10, Shows::WentPackets),
    ("bit/s", 7, Shows::WentBits),
    ("payload", 8, Shows::WentLen),
];
/// The columns for a terminal of 40 columns.
const NARROW_COLUMNS: [Column; 5] = [
    ("to", 6, Shows::ShortDirection),
    ("in/s", 6, Shows::CamePackets),
    ("payload", 8, Shows::CameLen),
    ("out/s", 6, Shows::WentPackets),
    ("payload", 8, Shows::WentLen),
];
/// Width of the columns for a wide terminal, in characters, with one space between two columns.
const WIDE_WIDTH: u16 = 97;
/// Width of the columns for a terminal of 80 columns, in characters.
const MEDIUM_WIDTH: u16 = 75;
/// Width that the stages of a direction need to show held packets in full, in characters.
const ROOMY_WIDTH: u16 = 46;
/// Width of a stage's area below which its switch is not shown, in characters.
const TIGHT_WIDTH: u16 = 30;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const RED: Style = Style::new().fg(Color::Red);
const IN: Style = Style::new().fg(Color::Yellow);
const OUT: Style = Style::new().fg(Color::Green);
const HINT: &str = " q quits ";
/// Text that is shown for a missing value.
const NONE: &str = "-";
/// Time between two statistics of a view.
const BETWEEN: Duration = Duration::from_secs(1);
/// Longest wait for the successor of a gateway's process.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(5);
const SUCCESSOR_LOOK: Duration = Duration::from_millis(50);
/// Time until the first rates are shown on a terminal.
const FIRST: Duration = Duration::from_millis(250);
/// Width of a printed table, in characters.
const TABLE_WIDTH: u16 = 100;
/// Largest number of events shown for each direction.
const EVENT_COUNT: usize = 8;
/// Height of the title, in lines.
const TITLE_HEIGHT: u16 = 1;
/// Height of the directions, in lines: both directions, their headings, and the frame.
const DIRECTIONS_HEIGHT: u16 = 5;
/// Height of the frame around a part of the screen, in lines.
const FRAME_HEIGHT: u16 = 2;
