//! An address -> the value of its longest configured prefix.
//!
//! Configured prefixes are few, so they are compared one by one, the longest first. A large routing table would
//! need a trie.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use packet::Address;

/// Addresses with common leading bits: `192.0.2.0/24`, `2001:db8::/32`.
///
/// A prefix has one IP version: `::/0` contains no IPv4 address, and `0.0.0.0/0` contains no IPv6 address.
/// IPv4-mapped addresses are IPv4, as in [`Address`], so `::ffff:192.0.2.0/120` is `192.0.2.0/24`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The first address: all bits behind the prefix are 0.
    address: Address,
    /// Prefix length in bits of the 128-bit address number. For IPv4, it is 96 more than the written length.
    len: u8,
}

/// Values of some prefixes, and a default for all other addresses.
#[derive(Clone, Debug)]
pub struct Prefixes<T> {
    default: T,
    /// Prefixes and their values, the longest prefix first.
    said: Vec<(Prefix, T)>,
}

impl Prefix {
    /// Returns the first address of the prefix.
    pub fn address(&self) -> IpAddr {
        self.address.into()
    }

    /// Returns the written length: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub fn bit_count(&self) -> u8 {
        if self.address().is_ipv4() { self.len - (LEN_MAX - V4_LEN_MAX) } else { self.len }
    }

    /// Whether the prefix contains this address.
    pub fn contains(&self, address: Address) -> bool {
        (address.number() ^ self.address.number()) & mask(self.len) == 0 && is_v4(address) == is_v4(self.address)
    }
}

impl<T> Prefixes<T> {
    /// Creates a map with the value `default` for every address.
    pub fn new(default: T) -> Prefixes<T> {
        Prefixes { default, said: Vec::new() }
    }

    /// Adds the value `what` for all addresses of `prefix`, except addresses with a longer prefix in the map. A
    /// later value of the same prefix replaces an earlier one.
    pub fn with(mut self, prefix: Prefix, what: T) -> Prefixes<T> {
        let at = self.said.partition_point(|(other, _)| other.len > prefix.len);
        self.said.insert(at, (prefix, what));
        self
    }

    /// Returns the value that all addresses share. `None` if any prefix has a value of its own.
    #[inline]
    pub fn one(&self) -> Option<&T> {
        self.said.is_empty().then_some(&self.default)
    }

    /// Whether `is_so` returns true for at least one value, including the default.
    pub fn any(&self, is_so: impl Fn(&T) -> bool) -> bool {
        is_so(&self.default) || self.said.iter().any(|(_, what)| is_so(what))
    }

    /// Returns the value of the longest prefix that contains this address, otherwise the default.
    pub fn get(&self, address: Address) -> &T {
        self.said.iter().find(|(prefix, _)| prefix.contains(address)).map_or(&self.default, |(_, what)| what)
    }
}

impl FromStr for Prefix {
    type Err = String;

    /// Parses a prefix. An address without length is the prefix of one host.
    ///
    /// # Errors
    /// The fault of the text, and a correct form.
    fn from_str(text: &str) -> Result<Prefix, String> {
        let (start, len) = text.split_once('/').map_or((text, None), |(start, len)| (start, Some(len)));
        let ip: IpAddr = start.parse().map_err(|_| {
            format!("{text:?} is no prefix; write one such as 192.0.2.0/24, 2001:db8::/32 or 192.0.2.1")
        })?;
        let (version, len_max) = if ip.is_ipv4() { ("IPv4", V4_LEN_MAX) } else { ("IPv6", LEN_MAX) };
        let len = match len.map(decimal) {
            None => len_max,
            Some(Some(len)) if len <= len_max => len,
            Some(_) => {
                return Err(format!("{text:?} has no length of {version}; write {start}/ and 0 to {len_max}"));
            }
        };
        let address = Address::from(ip);
        let len_of_number = LEN_MAX - len_max + len;
        let prefix = Prefix { address: first(address, len_of_number), len: len_of_number };
        if prefix.address != address {
            return Err(format!(
                "{text:?} has bits set behind the first {len}; write {prefix}, or {start} for one host"
            ));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.bit_count())
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses a decimal number without sign and without leading zeros.
fn decimal(text: &str) -> Option<u8> {
    text.parse().ok().filter(|number: &u8| number.to_string() == text)
}

/// Returns the first address that shares the first `len` bits with `address`.
fn first(address: Address, len: u8) -> Address {
    IpAddr::V6((address.number() & mask(len)).into()).into()
}

fn is_v4(address: Address) -> bool {
    IpAddr::from(address).is_ipv4()
}

/// Returns a mask of the first `len` of 128 bits.
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(u32::from(LEN_MAX.saturating_sub(len))).unwrap_or(0)
}

/// Number of bits of an address.
const LEN_MAX: u8 = 128;
/// Number of bits of an IPv4 address: the last 32 of the 128 bits of its number.
const V4_LEN_MAX: u8 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_prefix_reads_back() {
        for (text, written) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("192.0.2.1/32", "192.0.2.1/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("128.0.0.0/1", "128.0.0.0/1"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:DB8:0:0::1", "2001:db8::1/128"),
            ("::/0", "::/0"),
            ("::", "::/128"),
            ("::/96", "::/96"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
            ("::fffe:0:0/95", "::fffe:0:0/95"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn an_invalid_prefix_gives_an_example() {
        let example = "is no prefix; write one such as 192.0.2.0/24, 2001:db8::/32 or 192.0.2.1";
        for (text, answer) in [
            ("192.0.2.1/24", "has bits set behind the first 24; write 192.0.2.0/24, or 192.0.2.1 for one host"),
            ("128.0.0.0/0", "has bits set behind the first 0; write 0.0.0.0/0, or 128.0.0.0 for one host"),
            (
                "2001:db8::1/127",
                "has bits set behind the first 127; write 2001:db8::/127, or 2001:db8::1 for one host",
            ),
            (
                "::ffff:192.0.2.0/95",
                "has bits set behind the first 95; write ::fffe:0:0/95, or ::ffff:192.0.2.0 for one host",
            ),
            ("192.0.2.0/33", "has no length of IPv4; write 192.0.2.0/ and 0 to 32"),
            ("192.0.2.0/", "has no length of IPv4; write 192.0.2.0/ and 0 to 32"),
            ("192.0.2.0/-1", "has no length of IPv4; write 192.0.2.0/ and 0 to 32"),
            ("192.0.2.0/+24", "has no length of IPv4; write 192.0.2.0/ and 0 to 32"),
            ("192.0.2.0/024", "has no length of IPv4; write 192.0.2.0/ and 0 to 32"),
            ("192.0.2.0/24/24", "has no length of IPv4; write 192.0.2.0/ and 0 to 32"),
            ("192.0.2.0/255.255.255.0", "has no length of IPv4; write 192.0.2.0/ and 0 to 32"),
            ("::/129", "has no length of IPv6; write ::/ and 0 to 128"),
            ("::/256", "has no length of IPv6; write ::/ and 0 to 128"),
            ("", example),
            ("/24", example),
            ("192.0.2/24", example),
            (" 192.0.2.0/24", example),
            ("fe80::1%2/64", example),
            ("example.org", example),
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(format!("{text:?} {answer}")));
        }
    }

    #[test]
    fn no_prefix_of_one_version_holds_an_address_of_the_other() {
        let (v4, v6) = (ip("203.0.113.7"), ip("2001:db8::7"));
        for len in 0..=96 {
            let all = Prefix { address: first(v4, len), len };
            assert_eq!(all.contains(v4), len == 96, "{all}");
        }
        for text in ["::/0", "2000::/3"] {
            let prefix: Prefix = text.parse().unwrap();
            assert!(prefix.contains(v6) && !prefix.contains(v4), "{text}");
        }
        for text in ["0.0.0.0/0", "::ffff:0:0/96", "192.0.0.0/4"] {
            let prefix: Prefix = text.parse().unwrap();
            assert!(prefix.contains(v4) && !prefix.contains(v6) && !prefix.contains(ip("::")), "{text}");
        }
    }

    #[test]
    fn the_longest_prefix_and_its_last_value_win() {
        let all = Prefixes::new("else");
        assert_eq!(*all.get(ip("192.0.2.1")), "else");
        let all = ["192.0.0.0/8", "192.0.2.1", "192.0.2.0/24", "::/0", "192.0.2.0/25"]
            .into_iter()
            .fold(all, |all, text| all.with(text.parse().unwrap(), text))
            .with("192.0.2.0/24".parse().unwrap(), "again");
        for (address, what) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.2", "192.0.2.0/25"),
            ("192.0.2.128", "again"),
            ("192.0.3.0", "192.0.0.0/8"),
            ("193.0.0.0", "else"),
            ("::1", "::/0"),
        ] {
            assert_eq!(*all.get(ip(address)), what, "{address}");
        }
    }

    // The model is a list of texts of 0 and 1: a prefix is the start of an address.
    #[test]
    fn lookups_agree_with_a_list_of_bits() {
        let mut found = [0; 2];
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut table = Prefixes::new(0);
            let mut model: Vec<(String, u32)> = Vec::new();
            for number in 1..=random.u32(..20) {
                let bits = bits(address(&mut random));
                let (version, bits) = bits.split_at(1);
                let len = random.usize(..=bits.len());
                let (kept, rest) = bits.split_at(len);
                let start = spelled(version, &format!("{kept}{}", "0".repeat(rest.len())));
                let prefix: Prefix = format!("{start}/{len}").parse().unwrap();
                assert_eq!(prefix.to_string(), format!("{start}/{len}"), "seed {seed}");
                table = table.with(prefix, number);
                model.push((format!("{version}{kept}"), number));
            }
            for _ in 0..200 {
                let address = address(&mut random);
                let bits = bits(address);
                let fitting = model.iter().filter(|(start, _)| bits.starts_with(start));
                // Of prefixes with equal length, the last one counts.
                let expected = fitting.max_by_key(|(start, _)| start.len()).map_or(0, |(_, number)| *number);
                assert_eq!(*table.get(address.into()), expected, "seed {seed}: {address} in {table:?}");
                found[usize::from(expected != 0)] += 1;
            }
        }
        assert!(found.iter().all(|count| *count > 10_000), "both are tried: {found:?}");
    }

    // Helpers.

    /// Returns one of a few adjacent addresses, of both IP versions.
    fn address(random: &mut fastrand::Rng) -> IpAddr {
        let bases = ["10.0.0.0", "192.0.2.0", "::", "::fffe:0:0", "::1:0:0:0", "2001:db8::"];
        let base = bases[random.usize(..bases.len())].parse().unwrap();
        match base {
            IpAddr::V4(ip) => {
                let flipped = (0..random.u32(..3)).fold(ip.to_bits(), |bits, _| bits ^ 1 << random.u32(..32));
                Ipv4Addr::from_bits(flipped).into()
            }
            IpAddr::V6(ip) => {
                let flipped = (0..random.u32(..3)).fold(ip.to_bits(), |bits, _| bits ^ 1 << random.u32(..128));
                Ipv6Addr::from_bits(flipped).to_canonical()
            }
        }
    }

    /// Returns the version and the bits of an address as text.
    fn bits(address: IpAddr) -> String {
        match address {
            IpAddr::V4(ip) => format!("4{:032b}", ip.to_bits()),
            IpAddr::V6(ip) => format!("6{:0128b}", ip.to_bits()),
        }
    }

    fn spelled(version: &str, bits: &str) -> IpAddr {
        match version {
            "4" => Ipv4Addr::from_bits(u32::from_str_radix(bits, 2).unwrap()).into(),
            _ => Ipv6Addr::from_bits(u128::from_str_radix(bits, 2).unwrap()).into(),
        }
    }

    fn ip(text: &str) -> Address {
        text.parse::<IpAddr>().unwrap().into()
    }
}
