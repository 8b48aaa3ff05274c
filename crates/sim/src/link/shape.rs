//! Text such as `delay=20ms,rate=500M,loss=1%` -> link properties, and properties -> text.
//!
//! Scene files and the lab describe links by such texts. The model itself is in `model.rs`.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The properties of one direction of a link. By default, frames are delivered immediately and in order.
///
/// A frame first waits in a queue, is then transmitted at a limited rate, and is then in transit for the delay.
/// Frames in transit may be lost or damaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LinkShape {
    /// Time from the end of a frame's transmission to its delivery.
    pub delay: Duration,
    /// Maximum difference between the actual delay and `delay`, shorter or longer, with uniform distribution. A
    /// frame that would overtake the previous frame is delivered together with it.
    pub jitter: Duration,
    /// Rate of transmissions; `None` = unlimited.
    pub rate_bits_per_second: Option<u64>,
    /// Link-layer overhead per frame, in bytes, such as 24 for Ethernet's preamble, FCS and gap.
    pub overhead_len: usize,
    /// Limit of the queue. Frames that arrive while the queue is full are dropped.
    pub queue: QueueLimit,
    /// Probability that a frame is lost in transit, independent of other frames.
    pub loss: f64,
    /// Losses in bursts, in addition to `loss`.
    pub burst: Option<Burst>,
    /// Probability that a bit is flipped in transit.
    pub bit_errors: f64,
    /// Probability per byte that the entire frame is lost, so that long frames are lost more often.
    pub byte_loss: f64,
    /// Random early detection: drops before the queue is full.
    pub red: Option<Red>,
    /// Reordering: frames that are delayed until others have overtaken them.
    pub reorder: Option<Reorder>,
    /// Probability that a frame is delivered twice. The second copy needs no transmission time.
    pub duplicates: f64,
    /// The seed of all losses and errors. Two directions with equal seeds lose the same frame numbers.
    pub seed: u64,
}

/// Limit of the frames that wait for transmission, without the frame in transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// This number of frames.
    Packets(usize),
    /// This total length of frames, in bytes.
    Bytes(usize),
}

/// Random early detection (Floyd and Jacobson 1993). The longer the average queue, the more frames are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Unit of queue lengths.
    pub mode: RedMode,
    /// Average queue length up to which no frames are dropped.
    pub min: usize,
    /// Average queue length at and above which all frames are dropped.
    pub max: usize,
    /// Drop probability just below `max`.
    pub share: f64,
}

/// Unit of queue lengths in random early detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedMode {
    /// Frames. All frames have the same drop probability.
    Packets,
    /// Bytes. The drop probability is proportional to the frame's length, relative to [`RED_LEN_MEAN`].
    Bytes,
}

/// Losses in bursts (Gilbert 1960). A fraction `begins / (begins + ends)` of all frames is in a burst, and lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Probability per frame outside of a burst that a burst begins.
    pub begins: f64,
    /// Probability per frame in a burst that the burst ends. The mean burst has `1 / ends` frames.
    pub ends: f64,
}

/// Reordering: some frames are delayed until others have overtaken them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Probability that a frame is delayed.
    pub share: f64,
    /// Number of frames that overtake a held-back frame. If too few follow, the frame is delivered
    /// [`REORDER_TIMEOUT`] late.
    pub displacement: usize,
}

/// A sentence that describes the error in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadShape(String);

impl Default for LinkShape {
    fn default() -> LinkShape {
        LinkShape {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate_bits_per_second: None,
            overhead_len: 0,
            queue: QueueLimit::Packets(1_000),
            loss: 0.0,
            burst: None,
            bit_errors: 0.0,
            byte_loss: 0.0,
            red: None,
            reorder: None,
            duplicates: 0.0,
            seed: 0,
        }
    }
}

impl LinkShape {
    /// Whether long frames are lost more often than short ones.
    pub fn loses_by_len(&self) -> bool {
        let drops_by_len = matches!(self.queue, QueueLimit::Bytes(_)) && self.rate_bits_per_second.is_some()
            || self.red.is_some_and(|red| red.mode == RedMode::Bytes);
        self.bit_errors > 0.0 || self.byte_loss > 0.0 || drops_by_len
    }

    /// Checks whether the properties are possible.
    ///
    /// # Errors
    /// If a property is impossible. The error names the first such property.
    pub fn check(&self) -> Result<(), BadShape> {
        let burst = self.burst.unwrap_or(Burst { begins: 0.0, ends: 0.0 });
        let fragment_ranges = [
            ("loss", self.loss),
            ("burst", burst.begins),
            ("burst", burst.ends),
            ("ber", self.bit_errors),
            ("byteloss", self.byte_loss),
            ("red", self.red.map_or(0.0, |red| red.share)),
            ("reorder", self.reorder.map_or(0.0, |reorder| reorder.share)),
            ("duplicate", self.duplicates),
        ];
        if let Some((key, share)) = fragment_ranges.into_iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return bad(format!("{key}={share}: a probability must be between 0 and 1 (0 % and 100 %)"));
        }
        if self.jitter > self.delay {
            let (jitter, delay) = (Stretch(self.jitter), Stretch(self.delay));
            return bad(format!(
                "jitter={jitter}: the jitter is above the delay ({delay}), so frames would arrive before they left; raise delay"
            ));
        }
        if self.delay > DELAY_MAX {
            return bad(format!("delay={}: the delay is above {}", Stretch(self.delay), Stretch(DELAY_MAX)));
        }
        if self.rate_bits_per_second == Some(0) {
            return bad("rate=0: no frame would arrive; omit rate for an unlimited rate".to_owned());
        }
        if let Some(red) = self.red.filter(|red| red.min >= red.max) {
            return bad(format!("red: {} is not below {}; write the lower bound first", red.min, red.max));
        }
        if self.reorder.is_some_and(|reorder| reorder.displacement == 0) {
            return bad("reorder: a displacement of 0 reorders nothing; use at least 1".to_owned());
        }
        Ok(())
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), BadShape> {
        match key {
            "delay" => self.delay = stretch(key, value)?,
            "jitter" => self.jitter = stretch(key, value)?,
            "rate" => {
                self.rate_bits_per_second = Some(scaled(key, value, "", "500M, 2.5G, 64k (bits per second)")?)
            }
            "overhead" => self.overhead_len = scaled(key, value, "B", "24B")? as usize,
            "queue" => self.queue = queue(value)?,
            "loss" => self.loss = share(key, value)?,
            "burst" => {
                let (begins, ends) = pair(key, value, "1%:25% (probability that a burst begins, that it ends)")?;
                self.burst = Some(Burst { begins: share(key, begins)?, ends: share(key, ends)? });
            }
            "ber" => self.bit_errors = share(key, value)?,
            "byteloss" => self.byte_loss = share(key, value)?,
            "red" => self.red = Some(red(value)?),
            "reorder" => {
                let (held, displacement) = pair(key, value, "2%:3 (probability, number of packets that overtake)")?;
                let displacement = whole(key, displacement, "3")? as usize;
                self.reorder = Some(Reorder { share: share(key, held)?, displacement });
            }
            "duplicate" => self.duplicates = share(key, value)?,
            "seed" => self.seed = whole(key, value, "7")?,
            _ => return bad(format!("{key}: unknown property of a link; the properties are {}", KEYS.join(", "))),
        }
        Ok(())
    }
}

impl FromStr for LinkShape {
    type Err = BadShape;

    fn from_str(text: &str) -> Result<LinkShape, BadShape> {
        let mut shape = LinkShape::default();
        let mut seen = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((key, value)) = word.split_once('=') else {
                return bad(format!("{word}: the value is missing; write {word}=…"));
            };
            if seen.contains(&key) {
                return bad(format!("{key}: the property is given twice; remove one"));
            }
            seen.push(key);
            shape.take(key, value)?;
        }
        shape.check()?;
        Ok(shape)
    }
}

impl fmt::Display for LinkShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = LinkShape::default();
        let mut words = Vec::new();
        let mut say = |differs: bool, word: String| words.extend(differs.then_some(word));
        say(self.delay != plain.delay, format!("delay={}", Stretch(self.delay)));
        say(self.jitter != plain.jitter, format!("jitter={}", Stretch(self.jitter)));
        if let Some(rate) = self.rate_bits_per_second {
            say(true, format!("rate={}", Scaled(rate)));
        }
        say(self.overhead_len != plain.overhead_len, format!("overhead={}B", self.overhead_len));
        say(self.queue != plain.queue, format!("queue={}", self.queue));
        say(self.loss != plain.loss, format!("loss={}", Probability(self.loss)));
        if let Some(burst) = self.burst {
            say(true, format!("burst={}:{}", Probability(burst.begins), Probability(burst.ends)));
        }
        say(self.bit_errors != plain.bit_errors, format!("ber={:e}", self.bit_errors));
        say(self.byte_loss != plain.byte_loss, format!("byteloss={:e}", self.byte_loss));
        if let Some(red) = self.red {
            say(true, format!("red={red}"));
        }
        if let Some(reorder) = self.reorder {
            say(true, format!("reorder={}:{}", Probability(reorder.share), reorder.displacement));
        }
        say(self.duplicates != plain.duplicates, format!("duplicate={}", Probability(self.duplicates)));
        say(self.seed != plain.seed, format!("seed={}", self.seed));
        f.write_str(&words.join(","))
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Packets(count) => write!(f, "{count}p"),
            QueueLimit::Bytes(len) => write!(f, "{}B", Scaled(*len as u64)),
        }
    }
}

impl fmt::Display for Red {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds = [self.min, self.max].map(|bound| match self.mode {
            RedMode::Packets => QueueLimit::Packets(bound),
            RedMode::Bytes => QueueLimit::Bytes(bound),
        });
        write!(f, "{}:{}:{}", bounds[0], bounds[1], Probability(self.share))
    }
}

impl From<LinkShape> for String {
    fn from(shape: LinkShape) -> String {
        shape.to_string()
    }
}

impl TryFrom<String> for LinkShape {
    type Error = BadShape;

    fn try_from(text: String) -> Result<LinkShape, BadShape> {
        text.parse()
    }
}

impl fmt::Display for BadShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BadShape {}

fn bad<T>(sentence: String) -> Result<T, BadShape> {
    Err(BadShape(sentence))
}

/// Parses a duration with its unit, such as `20ms`.
///
/// # Errors
/// If the value is not a duration. The error names the property `key`.
pub(crate) fn stretch(key: &str, value: &str) -> Result<Duration, BadShape> {
    for (unit, nanos) in STRETCH_UNITS {
        let Some(number) = value.strip_suffix(unit) else { continue };
        return match decimal(number, nanos) {
            Some(nanos) => Ok(Duration::from_nanos(nanos)),
            None => bad(format!("{key}={value}: `{number}` is not a valid number; write, for example, 20ms")),
        };
    }
    bad(format!("{key}={value}: the time needs a unit (s, ms, us or ns); write, for example, 20ms"))
}

/// Parses a probability, such as `1%` or `0.01`.
fn share(key: &str, value: &str) -> Result<f64, BadShape> {
    let (number, whole) = value.strip_suffix('%').map_or((value, 1.0), |number| (number, 100.0));
    match number.parse::<f64>() {
        Ok(number) if (0.0..=whole).contains(&number) => Ok(number / whole),
        Ok(_) => bad(format!("{key}={value}: a probability must be between 0 and 1 (0 % and 100 %)")),
        Err(_) => bad(format!("{key}={value}: `{number}` is not a number; write a probability such as 1% or 0.01")),
    }
}

fn queue(value: &str) -> Result<QueueLimit, BadShape> {
    match value.strip_suffix('p') {
        Some(count) => Ok(QueueLimit::Packets(whole("queue", count, "200p")? as usize)),
        None => Ok(QueueLimit::Bytes(scaled("queue", value, "B", "200p (packets) or 64kB (bytes)")? as usize)),
    }
}

fn red(value: &str) -> Result<Red, BadShape> {
    const EXAMPLE: &str = "50p:150p:10% or 75kB:225kB:10% (queue length where drops begin, where all is dropped, drop probability just below)";
    let (min, rest) = pair("red", value, EXAMPLE)?;
    let (max, dropped) = pair("red", rest, EXAMPLE)?;
    let (mode, min, max) = match (queue(min)?, queue(max)?) {
        (QueueLimit::Packets(min), QueueLimit::Packets(max)) => (RedMode::Packets, min, max),
        (QueueLimit::Bytes(min), QueueLimit::Bytes(max)) => (RedMode::Bytes, min, max),
        _ => {
            return bad(format!(
                "red={value}: use packets for both bounds, or bytes for both; write, for example, {EXAMPLE}"
            ));
        }
    };
    Ok(Red { mode, min, max, share: share("red", dropped)? })
}

/// Parses a number with k, M or G (powers of ten) before `unit`.
fn scaled(key: &str, value: &str, unit: &str, example: &str) -> Result<u64, BadShape> {
    let read = value.strip_suffix(unit).and_then(|number| {
        let scale = SCALES.into_iter().find(|(letter, _)| number.ends_with(*letter));
        let (number, scale) = scale.map_or((number, 1), |(_, scale)| (&number[..number.len() - 1], scale));
        decimal(number, scale)
    });
    match read {
        Some(number) => Ok(number),
        None => bad(format!("{key}={value}: not a valid value; write, for example, {example}")),
    }
}

fn whole(key: &str, value: &str, example: &str) -> Result<u64, BadShape> {
    match value.parse() {
        Ok(number) => Ok(number),
        Err(_) => bad(format!("{key}: `{value}` is not a whole number; write, for example, {example}")),
    }
}

fn pair<'a>(key: &str, value: &'a str, example: &str) -> Result<(&'a str, &'a str), BadShape> {
    match value.split_once(':') {
        Some(pair) => Ok(pair),
        None => bad(format!("{key}={value}: two numbers are required; write, for example, {example}")),
    }
}

/// Multiplies a decimal number by `scale`. `None` if the result is not an integer.
fn decimal(number: &str, scale: u64) -> Option<u64> {
    let (before, behind) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if before.is_empty() || !is_digits(before) || !is_digits(behind) {
        return None;
    }
    let mut value = before.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in behind.bytes() {
        let tenth = u64::from(digit - b'0');
        if tenth > 0 && !place.is_multiple_of(10) {
            return None;
        }
        place /= 10;
        value = value.checked_add(tenth * place)?;
    }
    Some(value)
}

/// Displays a duration in the largest unit that gives an integer.
struct Stretch(Duration);

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let fits = |(_, unit): &&(&str, u64)| nanos.is_multiple_of(u128::from(*unit));
        let (name, unit) = STRETCH_UNITS.iter().filter(fits).max_by_key(|(_, unit)| *unit).unwrap_or(&("ns", 1));
        write!(f, "{}{name}", nanos / u128::from(*unit))
    }
}

/// Displays a number with the largest prefix (k, M, G) that gives an integer.
struct Scaled(u64);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SCALES.into_iter().find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale)) {
            Some((letter, scale)) => write!(f, "{}{letter}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Displays a probability, in percent if parsing gives exactly the same number.
struct Probability(f64);

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        if percent / 100.0 == self.0 { write!(f, "{percent}%") } else { write!(f, "{}", self.0) }
    }
}

/// Maximum additional delay of a reordered frame.
pub const REORDER_TIMEOUT: Duration = Duration::from_millis(10);
/// Mean frame length in random early detection, in bytes: a full Ethernet packet.
pub const RED_LEN_MEAN: usize = 1_500;
/// Maximum delay, so that sums of times do not overflow.
const DELAY_MAX: Duration = Duration::from_secs(3_600);
/// The keys of all properties in texts.
const KEYS: [&str; 13] = [
    "delay",
    "jitter",
    "rate",
    "overhead",
    "queue",
    "loss",
    "burst",
    "ber",
    "byteloss",
    "red",
    "reorder",
    "duplicate",
    "seed",
];
/// Units of durations, with their length in nanoseconds. The unit `s` must be last, because all others end in `s`.
const STRETCH_UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
/// Prefixes for powers of ten.
const SCALES: [(char, u64); 3] = [('G', 1_000_000_000), ('M', 1_000_000), ('k', 1_000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_is_read_and_written_back() {
        let text = "delay=20ms,jitter=1500us,rate=500M,overhead=24B,queue=200p,loss=1%,burst=1%:25%,ber=1e-6,byteloss=2e-5,red=75kB:225kB:10%,\
                    reorder=2%:3,duplicate=0.1%,seed=7";
        let shape: LinkShape = text.parse().unwrap();
        let asked = LinkShape {
            delay: Duration::from_millis(20),
            jitter: Duration::from_micros(1_500),
            rate_bits_per_second: Some(500_000_000),
            overhead_len: 24,
            queue: QueueLimit::Packets(200),
            loss: 0.01,
            burst: Some(Burst { begins: 0.01, ends: 0.25 }),
            bit_errors: 1e-6,
            byte_loss: 2e-5,
            red: Some(Red { mode: RedMode::Bytes, min: 75_000, max: 225_000, share: 0.1 }),
            reorder: Some(Reorder { share: 0.02, displacement: 3 }),
            duplicates: 0.001,
            seed: 7,
        };
        assert_eq!(shape, asked);
        assert_eq!(shape.to_string(), text);
        assert_eq!("".parse(), Ok(LinkShape::default()));
        assert_eq!(LinkShape::default().to_string(), "");
        assert_eq!(
            "delay=1.5ms,rate=2.5G,queue=64kB".parse::<LinkShape>().unwrap().to_string(),
            "delay=1500us,rate=2500M,queue=64kB"
        );
    }

    #[test]
    fn any_written_shape_reads_back() {
        let mut rng = fastrand::Rng::with_seed(20);
        for _ in 0..20_000 {
            let delay = rng.u64(0..10_000_000_000);
            let shape = LinkShape {
                delay: Duration::from_nanos(delay),
                jitter: Duration::from_nanos(rng.u64(0..=delay)),
                rate_bits_per_second: rng.bool().then(|| rng.u64(1..)),
                overhead_len: rng.usize(0..100),
                queue: if rng.bool() {
                    QueueLimit::Packets(rng.usize(..))
                } else {
                    QueueLimit::Bytes(rng.usize(..))
                },
                loss: rng.f64(),
                burst: rng.bool().then(|| Burst { begins: rng.f64(), ends: rng.f64() }),
                bit_errors: rng.f64() * 1e-5,
                byte_loss: rng.f64() * 1e-5,
                red: rng.bool().then(|| Red {
                    mode: if rng.bool() { RedMode::Packets } else { RedMode::Bytes },
                    min: rng.usize(..1_000),
                    max: rng.usize(1_000..),
                    share: rng.f64(),
                }),
                reorder: rng.bool().then(|| Reorder { share: rng.f64(), displacement: rng.usize(1..) }),
                duplicates: f64::from(rng.u32(0..=1_000)) / 1_000.0,
                seed: rng.u64(..),
            };
            assert_eq!(shape.to_string().parse(), Ok(shape.clone()), "{shape}");
            let json = serde_json::to_string(&shape).unwrap();
            assert_eq!(serde_json::from_str::<LinkShape>(&json).unwrap(), shape);
        }
    }

    #[test]
    fn shape_errors_are_one_sentence() {
        for (text, sentence) in [
            ("delay=20", "delay=20: the time needs a unit (s, ms, us or ns); write, for example, 20ms"),
            ("delay=-1ms", "delay=-1ms: `-1` is not a valid number; write, for example, 20ms"),
            ("delay=0.5ns", "delay=0.5ns: `0.5` is not a valid number; write, for example, 20ms"),
            ("delay", "delay: the value is missing; write delay=…"),
            (
                "dely=1ms",
                "dely: unknown property of a link; the properties are delay, jitter, rate, overhead, queue, loss, burst, ber, byteloss, red, reorder, duplicate, seed",
            ),
            ("loss=1%,loss=2%", "loss: the property is given twice; remove one"),
            ("loss=120%", "loss=120%: a probability must be between 0 and 1 (0 % and 100 %)"),
            ("loss=NaN", "loss=NaN: a probability must be between 0 and 1 (0 % and 100 %)"),
            ("loss=few", "loss=few: `few` is not a number; write a probability such as 1% or 0.01"),
            (
                "jitter=1ms",
                "jitter=1ms: the jitter is above the delay (0s), so frames would arrive before they left; raise delay",
            ),
            ("rate=0", "rate=0: no frame would arrive; omit rate for an unlimited rate"),
            ("rate=5x", "rate=5x: not a valid value; write, for example, 500M, 2.5G, 64k (bits per second)"),
            ("queue=5", "queue=5: not a valid value; write, for example, 200p (packets) or 64kB (bytes)"),
            (
                "reorder=2%",
                "reorder=2%: two numbers are required; write, for example, 2%:3 (probability, number of packets that overtake)",
            ),
            ("reorder=2%:0", "reorder: a displacement of 0 reorders nothing; use at least 1"),
            ("red=5p:3p:10%", "red: 5 is not below 3; write the lower bound first"),
            (
                "red=5p:3B:10%",
                "red=5p:3B:10%: use packets for both bounds, or bytes for both; write, for example, 50p:150p:10% or 75kB:225kB:10% (queue length where drops begin, where all is dropped, drop probability just below)",
            ),
            ("seed=x", "seed: `x` is not a whole number; write, for example, 7"),
            ("delay=3601s", "delay=3601s: the delay is above 3600s"),
        ] {
            assert_eq!(
                text.parse::<LinkShape>().map_err(|bad| bad.to_string()),
                Err(sentence.to_owned()),
                "{text}"
            );
        }
    }
}
