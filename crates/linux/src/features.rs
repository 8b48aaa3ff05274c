//! An interface's name -> its offload features (segmentation, checksums, GRO), read or changed.
//!
//! Every call opens a socket of its own, so it applies to the calling thread's namespace. A [`Previous`] keeps its
//! socket, and restores the features in the namespace in which they were changed.

use crate::device;
use crate::failure::{failed, last};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The state of a feature: on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toggle {
    /// The feature is on.
    On,
    /// The feature is off.
    Off,
}

/// The supported and the active offload features of an interface. The features have the kernel's names, such as
/// `tx-tcp-segmentation` or `rx-gro`.
#[derive(Clone, Debug)]
pub struct Features {
    names: Vec<String>,
    blocks: Vec<Block>,
}

/// The requested features of an interface before a change.
#[derive(Debug)]
#[must_use = "the change stays where this is dropped"]
pub struct Previous {
    card: Card,
    wishes: Vec<Wish>,
}

impl Features {
    /// Returns the features of an interface.
    ///
    /// # Errors
    /// The interface does not exist (`NotFound`).
    pub fn of(name: &str) -> io::Result<Features> {
        Card::open(name)?.features()
    }

    /// Whether this feature is on; false for a feature that the kernel does not know.
    pub fn is_on(&self, feature: &str) -> bool {
        self.has(feature, |block| block.active)
    }

    /// Whether this feature can be switched.
    pub fn can_change(&self, feature: &str) -> bool {
        self.has(feature, |block| block.available & !block.never_changed)
    }

    /// Returns the names of all active features.
    pub fn on(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| !name.is_empty() && self.is_on(name))
    }

    fn has(&self, feature: &str, of: impl Fn(&Block) -> u32) -> bool {
        self.place(feature).is_some_and(|(block, bit)| of(&self.blocks[block]) & bit != 0)
    }

    fn place(&self, feature: &str) -> Option<(usize, u32)> {
        let at = self.names.iter().position(|name| name == feature)?;
        (at / 32 < self.blocks.len()).then_some((at / 32, 1 << (at % 32)))
    }
}

/// Switches features of an interface: all of them, or none on an error. Returns the previous features.
///
/// # Errors
/// - The interface does not exist (`NotFound`).
/// - The kernel does not know a feature (`InvalidInput`).
/// - The interface cannot switch a feature, or did not switch it (`Unsupported`).
/// - Privileges are missing.
pub fn set(name: &str, switches: &[(&str, Toggle)]) -> io::Result<Previous> {
    let card = Card::open(name)?;
    let features = card.features()?;
    let mut wishes = vec![Wish::default(); features.blocks.len()];
    for (feature, switch) in switches {
        let (block, bit) = features.place(feature).ok_or_else(|| no_feature(name, feature))?;
        if features.is_on(feature) == (*switch == Toggle::On) {
            continue;
        }
        if !features.can_change(feature) {
            return Err(unsupported(format!("{name}: cannot set {feature} {switch}: the driver fixes it")));
        }
        wishes[block].valid |= bit;
        wishes[block].requested |= if *switch == Toggle::On { bit } else { 0 };
    }
    let previous = features.blocks.iter().zip(&wishes);
    let previous =
        previous.map(|(block, wish)| Wish { valid: wish.valid, requested: block.requested & wish.valid });
    let previous = Previous { wishes: previous.collect(), card };
    previous.card.wish(&wishes)?;
    let after = previous.card.features()?;
    match switches.iter().find(|(feature, switch)| after.is_on(feature) != (*switch == Toggle::On)) {
        None => Ok(previous),
        Some((feature, switch)) => {
            previous.restore()?;
            Err(unsupported(format!("{name}: cannot set {feature} {switch}: it depends on another feature")))
        }
    }
}

/// Switches off all changeable features of an interface that coalesce or segment packets, or leave their checksums
/// incomplete. Each frame is then as it would be on a wire.
///
/// # Errors
/// The errors of [`set`].
pub fn as_a_wire(name: &str) -> io::Result<Previous> {
    let features = Features::of(name)?;
    let is_off_a_wire = |feature: &&str| alters_packets(feature) && features.can_change(feature);
    let switches: Vec<_> = features.on().filter(is_off_a_wire).map(|feature| (feature, Toggle::Off)).collect();
    set(name, &switches)
}

impl Previous {
    /// Makes a [`Previous`] from known feature states, for example from a record that an earlier process wrote.
    ///
    /// # Errors
    /// The interface does not exist (`NotFound`), or the kernel does not know a feature (`InvalidInput`).
    pub fn known(name: &str, switches: &[(&str, Toggle)]) -> io::Result<Previous> {
        let card = Card::open(name)?;
        let features = card.features()?;
        let mut wishes = vec![Wish::default(); features.blocks.len()];
        for (feature, switch) in switches {
            let (block, bit) = features.place(feature).ok_or_else(|| no_feature(name, feature))?;
            wishes[block].valid |= bit;
            wishes[block].requested |= if *switch == Toggle::On { bit } else { 0 };
        }
        Ok(Previous { card, wishes })
    }

    /// Returns these features for the interface under the new name `name`.
    pub fn renamed(mut self, name: &str) -> Previous {
        name.clone_into(&mut self.card.name);
        self
    }

    /// Restores the features that were requested before the change.
    ///
    /// # Errors
    /// The interface does not exist any more (`NotFound`), or privileges are missing.
    pub fn restore(self) -> io::Result<()> {
        self.card.wish(&self.wishes)
    }

    /// Whether the change had no effect.
    pub fn is_same(&self) -> bool {
        self.wishes.iter().all(|wish| wish.valid == 0)
    }
}

impl fmt::Display for Toggle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Toggle::On { "on" } else { "off" })
    }
}

fn alters_packets(feature: &str) -> bool {
    let begins = |with: &[&str]| with.iter().any(|start| feature.starts_with(start));
    feature.ends_with("-segmentation")
        || begins(&["tx-checksum", "tx-scatter-gather", "tx-gso-", "rx-gro", "rx-lro", "rx-checksum", "rx-udp-gro"])
}

fn no_feature(name: &str, feature: &str) -> io::Error {
    let text = format!("{name}: no feature {feature}; `ethtool -k {name}` lists the features");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn unsupported(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// State of 32 features (`struct ethtool_get_features_block`).
#[derive(Clone, Copy, Debug)]
struct Block {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// Requested changes to 32 features (`struct ethtool_set_features_block`).
#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    valid: u32,
    requested: u32,
}

#[derive(Debug)]
struct Card {
    socket: OwnedFd,
    name: String,
}

impl Card {
    fn open(name: &str) -> io::Result<Card> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            let text = format!("{name}: not an interface name; use 1 to 15 bytes");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|why| failed("cannot open a socket", &why.into()))?;
        Ok(Card { socket, name: name.to_owned() })
    }

    fn features(&self) -> io::Result<Features> {
        let what = "cannot read its features";
        let mut count = [GET_COUNTS, 0, 1 << FEATURE_NAMES, 0, 0];
        self.ioctl(&mut count, what)?;
        let count = count[4] as usize;
        let mut names = vec![0; 3 + count * NAME_LEN / 4];
        (names[0], names[1], names[2]) = (GET_NAMES, FEATURE_NAMES, count as u32);
        self.ioctl(&mut names, what)?;
        let block_count = count.div_ceil(32);
        let mut blocks = vec![0; 2 + block_count * 4];
        (blocks[0], blocks[1]) = (GET_FEATURES, block_count as u32);
        self.ioctl(&mut blocks, what)?;
        Ok(Features { names: read_names(&names[3..]), blocks: read_blocks(&blocks[2..]) })
    }

    fn wish(&self, wishes: &[Wish]) -> io::Result<()> {
        let mut words = vec![SET_FEATURES, wishes.len() as u32];
        words.extend(wishes.iter().flat_map(|wish| [wish.valid, wish.requested]));
        self.ioctl(&mut words, "cannot set its features")
    }

    /// Sends an ethtool request to the kernel, which writes its answer to `words`. The first word must be the
    /// ethtool command. `words` must be long enough for the answer to this command.
    fn ioctl(&self, words: &mut [u32], what: &str) -> io::Result<()> {
        let mut request = device::request(&self.name);
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the kernel writes no more than `words` holds, as its head says.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        if done < 0 { Err(last(format!("{}: {what}", self.name))) } else { Ok(()) }
    }
}

fn read_names(words: &[u32]) -> Vec<String> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = |slot: &[u8]| {
        let text = slot.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    bytes.chunks_exact(NAME_LEN).map(name).collect()
}

fn read_blocks(words: &[u32]) -> Vec<Block> {
    let (blocks, _) = words.as_chunks::<4>();
    let read = |&[available, requested, active, never_changed]: &[u32; 4]| Block {
        available,
        requested,
        active,
        never_changed,
    };
    blocks.iter().map(read).collect()
}

/// The ioctl number of ethtool (linux/sockios.h). The following numbers are from `linux/ethtool.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// The command ETHTOOL_GSSET_INFO.
const GET_COUNTS: u32 = 0x37;
/// The command ETHTOOL_GSTRINGS.
const GET_NAMES: u32 = 0x1b;
/// The command ETHTOOL_GFEATURES.
const GET_FEATURES: u32 = 0x3a;
/// The command ETHTOOL_SFEATURES.
const SET_FEATURES: u32 = 0x3b;
/// The string set ETH_SS_FEATURES.
const FEATURE_NAMES: u32 = 4;
/// Length of a feature's name (ETH_GSTRING_LEN), in bytes.
const NAME_LEN: usize = 32;
