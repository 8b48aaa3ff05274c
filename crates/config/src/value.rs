//! A TOML value -> its meaning, or the mistake and a valid example.
//!
//! Each kind of value has one function that reads it. The module `read` chooses the function for each key.

use crate::problem::Wrong;
use crate::spelling::nearest;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use engine::{Exempt, Prefix, Toggle};
use std::path::PathBuf;
use toml::de::DeValue;

/// A port of the gateway, as written in a file: `packet:lan0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub kind: Kind,
    pub interface: String,
}

/// The kind of a port: how the gateway uses the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tun,
    Tap,
    Packet,
    Xdp,
}

impl Kind {
    /// Each kind's name, as written in front of an interface.
    pub const NAMES: [(&str, Kind); 4] =
        [("tun", Kind::Tun), ("tap", Kind::Tap), ("packet", Kind::Packet), ("xdp", Kind::Xdp)];
}

/// Returns the error about a value of the wrong type. `wanted` describes a valid value.
pub(crate) fn wrong_type(value: &DeValue<'_>, wanted: &str) -> Wrong {
    let what = match value {
        DeValue::Array(_) => "this is a list".to_owned(),
        DeValue::Table(_) => "this is a table".to_owned(),
        DeValue::String(_) => format!("{} is a string", shown(value)),
        DeValue::Integer(_) => format!("{} is a whole number", shown(value)),
        DeValue::Float(_) => format!("{} is a decimal number", shown(value)),
        DeValue::Boolean(_) => format!("this is {}", shown(value)),
        DeValue::Datetime(_) => format!("{} is a date or a time of day", shown(value)),
    };
    Wrong::new(what, format!("write {wanted}"))
}

/// Reads one of the words in `names`, and returns the meaning of the word.
pub(crate) fn word<T: Copy>(value: &DeValue<'_>, names: &[(&str, T)]) -> Result<T, Wrong> {
    let words: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let words = either(&words, "or");
    let text = text(value, &words)?;
    let found = names.iter().find(|(name, _)| *name == text).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let mend = nearest(text, names.iter().map(|(name, _)| *name)).map(|near| format!("write \"{near}\""));
        Wrong::new(format!("{} is not one of the values", quoted(text)), mend.unwrap_or(format!("write {words}")))
    })
}

/// Reads a whole number within bounds.
pub(crate) fn number(value: &DeValue<'_>, bounds: RangeInclusive<u32>, example: u32) -> Result<u32, Wrong> {
    let span = format!("{} to {}", *bounds.start(), *bounds.end());
    let DeValue::Integer(integer) = value else {
        let bare = if value.is_str() { ", without quotation marks" } else { "" };
        return Err(wrong_type(value, &format!("a whole number from {span}, such as {example}{bare}")));
    };
    let number = i128::from_str_radix(integer.as_str(), integer.radix());
    let is_below =
        number.as_ref().map_or(integer.as_str().starts_with('-'), |number| *number < (*bounds.start()).into());
    let within = number.ok().and_then(|number| u32::try_from(number).ok()).filter(|number| bounds.contains(number));
    within.ok_or_else(|| {
        let side = if is_below { "below" } else { "above" };
        let bound = if is_below { bounds.start() } else { bounds.end() };
        Wrong::new(format!("{} is {side} {}", shown(value), *bound), format!("give {span}"))
    })
}

/// Reads `true` or `false`.
pub(crate) fn switch(value: &DeValue<'_>) -> Result<Toggle, Wrong> {
    match value {
        DeValue::Boolean(true) => Ok(Toggle::On),
        DeValue::Boolean(false) => Ok(Toggle::Off),
        DeValue::String(_) => Err(wrong_type(value, "true or false, without quotation marks")),
        _ => Err(wrong_type(value, "true or false")),
    }
}

/// Reads a duration within bounds, such as `"200us"`.
pub(crate) fn stretch(
    value: &DeValue<'_>,
    bounds: RangeInclusive<Duration>,
    example: &str,
) -> Result<Duration, Wrong> {
    let span = format!("{} to {}", shown_stretch(*bounds.start()), shown_stretch(*bounds.end()));
    let text = text(value, &format!("a duration from {span} with its unit, such as \"{example}\""))?;
    let nanos = with_unit(text, &TIME_UNITS)?;
    let stretch = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    within(text, stretch, bounds, shown_stretch)
}

/// Reads a memory size within bounds, such as `"64MiB"`. Returns bytes.
pub(crate) fn size(value: &DeValue<'_>, bounds: RangeInclusive<u64>) -> Result<u64, Wrong> {
    let span = format!("{} to {}", shown_size(*bounds.start()), shown_size(*bounds.end()));
    let text = text(value, &format!("a size from {span} with its unit, such as \"64MiB\""))?;
    let bytes = u64::try_from(with_unit(text, &SIZE_UNITS)?).unwrap_or(u64::MAX);
    within(text, bytes, bounds, shown_size)
}

/// Reads a port: its kind and the interface's name.
pub(crate) fn port(value: &DeValue<'_>) -> Result<Port, Wrong> {
    let wanted = "tun:NAME, tap:NAME, packet:NAME or xdp:NAME, such as \"packet:lan0\"";
    let text = text(value, wanted)?;
    let Some((kind, interface)) = text.split_once(':') else {
        return Err(Wrong::new(format!("{} names no kind of port", quoted(text)), format!("write {wanted}")));
    };
    let Some((_, found)) = Kind::NAMES.iter().find(|(name, _)| *name == kind) else {
        let near = nearest(kind, Kind::NAMES.iter().map(|(name, _)| *name));
        let mend = near
            .map_or(format!("write {wanted}"), |near| format!("write {}", quoted(&format!("{near}:{interface}"))));
        return Err(Wrong::new(format!("{} is not a kind of port", quoted(kind)), mend));
    };
    let is_wrong = |letter: char| letter.is_whitespace() || letter.is_control() || "/:".contains(letter);
    if interface.contains(is_wrong)
        || !(1..=INTERFACE_LEN_MAX).contains(&interface.len())
        || [".", ".."].contains(&interface)
    {
        return Err(Wrong::new(
            format!("{} is not an interface name", quoted(interface)),
            format!("give 1 to {INTERFACE_LEN_MAX} bytes without /, : and white space, as `ip link` shows them"),
        ));
    }
    Ok(Port { kind: *found, interface: interface.to_owned() })
}

/// Reads the address of one host.
pub(crate) fn host(value: &DeValue<'_>) -> Result<IpAddr, Wrong> {
    let wanted = "an address such as \"192.0.2.1\" or \"2001:db8::1\"";
    let text = text(value, wanted)?;
    let ip: IpAddr = text
        .parse()
        .map_err(|_| Wrong::new(format!("{} is not an address", quoted(text)), format!("write {wanted}")))?;
    if packet::Address::from(ip).is_one_host() {
        Ok(ip.to_canonical())
    } else {
        Err(Wrong::new(format!("{ip} is not a unicast address"), "give a unicast address"))
    }
}

/// Reads an address and a TCP port to listen on.
pub(crate) fn socket(value: &DeValue<'_>) -> Result<SocketAddr, Wrong> {
    let wanted = "an address and a port, such as \"127.0.0.1:9469\" or \"[::1]:9469\"";
    let text = text(value, wanted)?;
    let wrong = |what: &str| Wrong::new(format!("{} {what}", quoted(text)), format!("write {wanted}"));
    if text.parse::<IpAddr>().is_ok() {
        return Err(wrong("has no port"));
    }
    let socket: SocketAddr = text.parse().map_err(|_| wrong("is not an address with a port"))?;
    if socket.port() == 0 {
        return Err(wrong("has port 0, which cannot be used"));
    }
    Ok(socket)
}

/// Reads the path of a socket.
pub(crate) fn path(value: &DeValue<'_>) -> Result<PathBuf, Wrong> {
    let wanted = "an absolute path, such as \"/run/wideload/border.sock\"";
    let text = text(value, wanted)?;
    let what = if !text.starts_with('/') {
        format!("{} does not begin with /", quoted(text))
    } else if text.ends_with('/') {
        format!("{} is a directory", quoted(text))
    } else if text.contains('\0') {
        format!("{} has a byte 0", quoted(text))
    } else if text.len() > SOCKET_PATH_LEN_MAX {
        let what =
            format!("the path has {} bytes, more than the {SOCKET_PATH_LEN_MAX} of a socket path", text.len());
        return Err(Wrong::new(what, "give a shorter one"));
    } else {
        return Ok(PathBuf::from(text));
    };
    Err(Wrong::new(what, format!("write {wanted}")))
}

/// Reads the name or the number of a user.
pub(crate) fn user(value: &DeValue<'_>) -> Result<String, Wrong> {
    let wanted = "the name of a user, such as \"nobody\"";
    let text = text(value, wanted)?;
    let is_fit = |letter: char| letter.is_alphanumeric() || "_-.$@".contains(letter);
    if (1..=USER_LEN_MAX).contains(&text.len()) && text.chars().all(is_fit) && !text.starts_with('-') {
        Ok(text.to_owned())
    } else {
        Err(Wrong::new(format!("{} is not a user name", quoted(text)), format!("write {wanted}")))
    }
}

/// Reads an address prefix.
pub(crate) fn prefix(value: &DeValue<'_>) -> Result<Prefix, Wrong> {
    let text = text(value, "a prefix such as \"192.0.2.0/24\" or \"2001:db8::/32\"")?;
    text.parse().map_err(sentence)
}

/// Reads a flow: `PREFIX`, `:PORT` or `PREFIX:PORT`. An IPv6 prefix before a port has brackets.
pub(crate) fn exempt(value: &DeValue<'_>) -> Result<Exempt, Wrong> {
    let wanted = "\"192.0.2.0/24\", \":22\", \"192.0.2.7:22\" or \"[2001:db8::]/32:22\"";
    let text = text(value, &format!("a flow such as {wanted}"))?;
    if let Ok(prefix) = text.parse() {
        return Ok(Exempt { prefix: Some(prefix), port: None });
    }
    let unclear = || Wrong::new(format!("{} is not a flow", quoted(text)), format!("write one such as {wanted}"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
    let Some((prefix, port)) = text.rsplit_once(':').filter(|(_, port)| is_number(port)) else {
        let is_prefix = text.contains('/') && !text.contains('[');
        return Err(if is_prefix {
            text.parse::<Prefix>().map_or_else(sentence, |_| unclear())
        } else {
            unclear()
        });
    };
    let port =
        port.parse().map_err(|_| Wrong::new(format!("{port} is not a port"), "give a number from 0 to 65535"))?;
    let prefix = match prefix {
        "" => None,
        prefix => Some(unbracketed(prefix).ok_or_else(unclear)?.parse().map_err(sentence)?),
    };
    Ok(Exempt { prefix, port: Some(port) })
}

/// Returns the prefix before a port, without the brackets that an IPv6 prefix must have there.
fn unbracketed(prefix: &str) -> Option<String> {
    match prefix.strip_prefix('[').and_then(|prefix| prefix.split_once(']')) {
        Some((address, len)) if !len.contains(['[', ']']) => Some(format!("{address}{len}")),
        _ => (!prefix.contains([':', '[', ']'])).then(|| prefix.to_owned()),
    }
}

/// Reads the text of a string value.
pub(crate) fn text<'t>(value: &'t DeValue<'_>, wanted: &str) -> Result<&'t str, Wrong> {
    value.as_str().ok_or_else(|| wrong_type(value, wanted))
}

/// Returns a value for a message, on one line. Text is cut off after 60 characters. Lists and tables become "a
/// list" and "a table".
pub(crate) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => shortened(&number.to_string()),
        DeValue::Float(number) => shortened(number.as_str()),
        DeValue::Boolean(is_so) => is_so.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Returns a text in quotation marks, on one line. The text is cut off after 60 characters.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

/// Joins words with commas, and with `last` before the last word.
pub(crate) fn either(words: &[impl AsRef<str>], last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.split_last() {
        Some((end, [])) => (*end).to_owned(),
        Some((end, front)) => format!("{} {last} {end}", front.join(", ")),
        None => String::new(),
    }
}

/// Returns a duration as text, such as "200us", in the longest unit of which the duration is a multiple.
pub(crate) fn shown_stretch(stretch: Duration) -> String {
    spelled(stretch.as_nanos(), &TIME_UNITS)
}

fn shown_size(bytes: u64) -> String {
    spelled(bytes.into(), &SIZE_UNITS)
}

fn spelled(number: u128, units: &[(&str, u128)]) -> String {
    let fits = |(_, len): &&(&str, u128)| number.is_multiple_of(*len);
    let found = units.iter().rev().find(fits).map(|(unit, len)| format!("{}{unit}", number / len));
    found.unwrap_or_else(|| number.to_string())
}

/// Reads a whole number with a unit. Returns the number multiplied by the unit: nanoseconds for times, bytes for
/// sizes.
fn with_unit(text: &str, units: &[(&str, u128)]) -> Result<u128, Wrong> {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let example = names.get(1).copied().unwrap_or_default();
    let mend = format!(
        "write a whole number and, without a space, {}, such as \"{}{example}\"",
        either(&names, "or"),
        "500"
    );
    if number.is_empty() {
        return Err(Wrong::new(format!("{} does not begin with a number", quoted(text)), mend));
    }
    if unit.starts_with(['.', ',']) {
        return Err(Wrong::new(format!("{} is not a whole number", quoted(text)), "write it in a smaller unit"));
    }
    if unit.is_empty() {
        return Err(Wrong::new(format!("{} has no unit", quoted(text)), mend));
    }
    let Some((_, len)) = units.iter().find(|(name, _)| *name == unit) else {
        let meant = names.iter().find(|name| is_meant(unit.trim(), name));
        let mend = meant.map_or(mend, |meant| format!("write \"{number}{meant}\""));
        return Err(Wrong::new(format!("{} is not a unit", quoted(unit)), mend));
    };
    Ok(number.parse::<u128>().ok().and_then(|number| number.checked_mul(*len)).unwrap_or(u128::MAX))
}

/// Whether `text` is another spelling of the unit `unit`, such as "MB" for "MiB".
fn is_meant(text: &str, unit: &str) -> bool {
    let text = text.to_lowercase().replace(['µ', 'μ'], "u");
    let unit = unit.to_lowercase();
    let is_size = unit.ends_with("ib");
    text == unit || is_size && (text == unit.replace('i', "") || text == unit.replace("ib", ""))
}

fn within<T: PartialOrd + Copy>(
    text: &str,
    value: T,
    bounds: RangeInclusive<T>,
    spelled: fn(T) -> String,
) -> Result<T, Wrong> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (spelled(*bounds.start()), spelled(*bounds.end()));
    let what = if value < *bounds.start() { format!("is below {least}") } else { format!("is above {most}") };
    Err(Wrong::new(format!("{} {what}", quoted(text)), format!("give {least} to {most}")))
}

/// Creates an error from a message of the form `mistake; fix`.
fn sentence(text: String) -> Wrong {
    let (what, mend) = text.split_once("; ").unwrap_or((&text, "write one such as 192.0.2.0/24"));
    Wrong::new(what, mend)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_LEN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Maximum length of an interface name, in bytes (Linux: `IFNAMSIZ` less the final 0).
const INTERFACE_LEN_MAX: usize = 15;
/// Maximum length of a socket path, in bytes (Linux: `sun_path` less the final 0).
pub(crate) const SOCKET_PATH_LEN_MAX: usize = 107;
/// Maximum length of a user name, in bytes (Linux: useradd(8)).
const USER_LEN_MAX: usize = 32;
/// Maximum length of a shown text, in characters.
const SHOWN_LEN: usize = 60;
/// Units of time, in nanoseconds.
const TIME_UNITS: [(&str, u128); 5] =
    [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000), ("h", 3_600_000_000_000)];
/// Units of memory, in bytes.
const SIZE_UNITS: [(&str, u128); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
