//! The text of one argument -> its value, or a sentence with the expected format.

use engine::Exempt;
use std::time::Duration;

pub(super) fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.0..=MINUTES_MAX).contains(minutes));
    minutes.ok_or_else(|| "give minutes, such as 10 or 0.1, from 0 to 1440".to_owned())
}

pub(super) fn flow_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (4..=1_000).contains(count));
    count.ok_or_else(|| "give a number from 4 to 1000".to_owned())
}

pub(super) fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok().filter(|rounds| (1..=100).contains(rounds));
    rounds.ok_or_else(|| "give a number from 1 to 100".to_owned())
}

/// A whole number, also as `1e9`.
pub(super) fn packet_count(text: &str) -> Result<u64, String> {
    let whole = |number: &f64| (1.0..=1e15).contains(number) && number.fract() == 0.0;
    let number = text.parse::<f64>().ok().filter(whole);
    number.map(|number| number as u64).ok_or_else(|| "give a whole number of packets, such as 1e9".to_owned())
}

/// As [`packet_count`], or 0, which skips a part.
pub(super) fn case_count(text: &str) -> Result<u64, String> {
    let count = if text == "0" { Ok(0) } else { packet_count(text) };
    count.map_err(|_| "give a whole number, such as 5e6, or 0 to skip them".to_owned())
}

pub(super) fn transfer_len(text: &str) -> Result<u64, String> {
    let len = packet_count(text).ok().filter(|len| *len <= TRANSFER_LEN_MAX);
    len.ok_or_else(|| "give a whole number of bytes, such as 1e6, at most 1e9".to_owned())
}

/// A share, also in percent.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.parse::<f64>().map(|share| share / whole).ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "give a share, such as 0.001 or 0.1%, below 1".to_owned())
}

pub(super) fn hold(text: &str) -> Result<Duration, String> {
    let hold = seconds(text).ok().filter(|hold| *hold <= HOLD_MAX);
    hold.ok_or_else(|| "give seconds, such as 0.001, above 0 and at most 10".to_owned())
}

/// `PREFIX`, `:PORT` or `PREFIX:PORT`; an IPv6 prefix before a port stands in brackets.
pub(super) fn exempt(text: &str) -> Result<Exempt, String> {
    if let Ok(prefix) = text.parse() {
        return Ok(Exempt { prefix: Some(prefix), port: None });
    }
    let unclear = || {
        format!(
            "{text} is neither a prefix nor a port; give a flow such as 192.0.2.0/24, :22, 192.0.2.7:22 or [2001:db8::]/32:22"
        )
    };
    let (prefix, port) = text.rsplit_once(':').filter(|(_, port)| !port.is_empty()).ok_or_else(unclear)?;
    if !port.bytes().all(|letter| letter.is_ascii_digit()) {
        return Err(unclear());
    }
    let port = port.parse().map_err(|_| format!("{port} is not a port; give a number from 0 to 65535"))?;
    let prefix = prefix.replace(['[', ']'], "");
    let prefix = if prefix.is_empty() { None } else { Some(prefix.parse()?) };
    Ok(Exempt { prefix, port: Some(port) })
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_none(text) {
        Ok(Duration::ZERO) | Err(_) => Err("give seconds, such as 30 or 0.5, above 0 and at most 3600".to_owned()),
        seconds => seconds,
    }
}

pub(super) fn seconds_or_none(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    let stretch = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    stretch.ok_or_else(|| "give seconds, such as 2 or 0.5, from 0 to 3600".to_owned())
}

const SECONDS_MAX: f64 = 3_600.0;
const TRANSFER_LEN_MAX: u64 = 1_000_000_000;
const MINUTES_MAX: f64 = 1_440.0;
const HOLD_MAX: Duration = Duration::from_secs(10);
