//! A border's `packet:` interfaces -> GRO switched on while the border runs, and restored afterwards.
//!
//! With GRO, a border receives several segments of a flow as one GSO packet. GRO is a setting of the interface and
//! outlives the process. So a record in `/run/wideload` notes for each interface that GRO was off. The record is
//! written before GRO is switched on, and removed after GRO was switched off.
//!
//! After a process was killed, the next process with the same interface takes over the record, or [`undo`] restores
//! all interfaces. A record's name consists of the network namespace's cookie, which the kernel never reuses, and
//! the interface's index.

use crate::claims;
use config::{Config, SideConfig};
use engine::Toggle;
use linux::features::{self, Features, Previous};
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use port::PortAddress;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdir, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// The interfaces whose GRO was switched on. Dropping this value switches GRO off again.
#[derive(Debug, Default)]
pub struct Gro {
    changed: Vec<Changed>,
    /// The network namespace of the first call of [`Gro::apply`]; `None` before.
    home: Option<Home>,
    keeps_records: bool,
}

/// A network namespace, its cookie, and a netlink socket in it.
#[derive(Debug)]
struct Home {
    space: Namespace,
    cookie: u64,
    netlink: Netlink,
}

/// An interface whose GRO was switched on.
#[derive(Debug)]
struct Changed {
    index: u32,
    previous: Previous,
}

impl Gro {
    /// Makes a value without changed interfaces. Later changes are recorded, in case the process is killed.
    pub fn recorded() -> Gro {
        Gro { changed: Vec::new(), home: None, keeps_records: true }
    }

    /// Switches GRO on at the configured interfaces, and restores all others. Returns one sentence for each
    /// failure. Packets are forwarded nevertheless.
    pub fn apply(&mut self, config: &Config) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Err(error) = self.try_suit(config, &mut doubts) {
            doubts.push(format!("GRO was not changed: {error}"));
        }
        doubts
    }

    fn try_suit(&mut self, config: &Config, doubts: &mut Vec<String>) -> io::Result<()> {
        let cookie = Namespace::cookie()?;
        let home = match self.home.take() {
            Some(home) => home,
            None => Home { space: Namespace::here()?, cookie, netlink: Netlink::open()? },
        };
        let mut home = home;
        if home.cookie == cookie {
            self.change(config, &mut home.netlink, home.cookie, doubts);
        } else {
            let Home { space, cookie, netlink } = &mut home;
            space.enter(|| self.change(config, netlink, *cookie, doubts));
        }
        self.home = Some(home);
        Ok(())
    }

    /// Switches GRO at the interfaces; must run in their namespace.
    fn change(&mut self, config: &Config, netlink: &mut Netlink, cookie: u64, doubts: &mut Vec<String>) {
        let mut wanted = Vec::new();
        for side in [&config.wide, &config.narrow] {
            let Some(name) = packet_interface(side) else { continue };
            // A missing interface is reported when its port is opened.
            let Ok(interface) = netlink.interface(&name) else { continue };
            if side.gro == Toggle::On {
                wanted.push(interface.index);
                if self.changed.iter().all(|changed| changed.index != interface.index) {
                    let outcome = self.begin(&name, interface.index, cookie);
                    doubts.extend(outcome.err().map(|error| format!("{name}: GRO was not changed: {error}")));
                }
            } else if self.keeps_records && self.changed.iter().all(|changed| changed.index != interface.index) {
                // An earlier process switched GRO on, and was killed.
                let outcome = put_back_recorded(netlink, cookie, interface.index);
                doubts.extend(outcome.err().map(|error| format!("{name}: cannot switch GRO off again: {error}")));
            }
        }
        let (stay, go) = self.changed.drain(..).partition(|changed| wanted.contains(&changed.index));
        self.changed = stay;
        for changed in go {
            doubts.extend(
                put_back(changed, netlink, cookie, self.keeps_records).err().map(|error| error.to_string()),
            );
        }
        if self.keeps_records {
            // Interfaces that were deleted while no gateway ran need no record.
            let _ = forget_gone(netlink, cookie);
        }
    }

    fn begin(&mut self, name: &str, index: u32, cookie: u64) -> io::Result<()> {
        let is_on = Features::of(name)?.is_on(GRO);
        if self.keeps_records {
            let records = Records::open(Missing::Made)?;
            if records.holds(cookie, index)? {
                // GRO was off before an earlier process switched it on. That process was killed, or left the
                // interface to this process.
                drop(features::set(name, &[(GRO, features::Toggle::On)])?);
                let previous = Previous::known(name, &[(GRO, features::Toggle::Off)])?;
                self.changed.push(Changed { index, previous });
                return Ok(());
            }
            if is_on {
                return Ok(());
            }
            records.write(cookie, index, name)?;
        }
        match features::set(name, &[(GRO, features::Toggle::On)]) {
            Ok(previous) if previous.is_same() => Ok(()),
            Ok(previous) => {
                self.changed.push(Changed { index, previous });
                Ok(())
            }
            Err(error) => {
                if self.keeps_records {
                    Records::open(Missing::Made)?.remove(cookie, index)?;
                }
                Err(error)
            }
        }
    }
}

impl Drop for Gro {
    fn drop(&mut self) {
        let Some(Home { cookie, netlink, .. }) = &mut self.home else { return };
        for changed in self.changed.drain(..) {
            // On failure the record stays, and `undo` can use it.
            let _ = put_back(changed, netlink, *cookie, self.keeps_records);
        }
    }
}

/// Switches GRO off at an interface, if the interface still exists, and removes the interface's record.
fn put_back(changed: Changed, netlink: &mut Netlink, cookie: u64, is_recorded: bool) -> io::Result<()> {
    let Changed { index, previous } = changed;
    if let Ok(interface) = netlink.interface_at(index) {
        previous.renamed(&interface.name).restore()?;
    }
    if is_recorded { Records::open(Missing::Made)?.remove(cookie, index) } else { Ok(()) }
}

/// Switches GRO off at an interface that has a record, and removes the record. Returns whether there was one.
fn put_back_recorded(netlink: &mut Netlink, cookie: u64, index: u32) -> io::Result<bool> {
    let Some(records) = Records::found()?.filter(|records| records.holds(cookie, index).unwrap_or_default()) else {
        return Ok(false);
    };
    if let Ok(interface) = netlink.interface_at(index) {
        Previous::known(&interface.name, &[(GRO, features::Toggle::Off)])?.restore()?;
    }
    records.remove(cookie, index)?;
    Ok(true)
}

/// Removes the records of interfaces that do not exist any more, as their indices are not reused.
fn forget_gone(netlink: &mut Netlink, cookie: u64) -> io::Result<()> {
    let Some(records) = Records::found()? else { return Ok(()) };
    for index in records.of(cookie)? {
        if netlink.interface_at(index).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            records.remove(cookie, index)?;
        }
    }
    Ok(())
}

/// Restores GRO at the interfaces of killed processes, in the calling thread's namespace. Skips interfaces that a
/// gateway serves. Returns the names of the restored interfaces.
///
/// # Errors
/// The kernel refuses an operation.
pub fn undo() -> io::Result<Vec<String>> {
    let cookie = Namespace::cookie()?;
    let Some(records) = Records::found()? else { return Ok(Vec::new()) };
    let mut netlink = Netlink::open()?;
    let mut names = Vec::new();
    for index in records.of(cookie)? {
        // The claim prevents other gateways from serving the interface meanwhile.
        let Some(_claim) = claims::if_unserved(index)? else { continue };
        let name = netlink.interface_at(index).ok().map(|interface| interface.name);
        if put_back_recorded(&mut netlink, cookie, index)? {
            names.extend(name);
        }
    }
    Ok(names)
}

/// Returns a sentence for each interface whose GRO a border of this configuration will switch on or cannot switch
/// on.
pub fn preview(config: &Config) -> Vec<String> {
    let of = |side: &SideConfig| {
        let name = packet_interface(side).filter(|_| side.gro == Toggle::On)?;
        let features = Features::of(&name).ok().filter(|features| !features.is_on(GRO))?;
        Some(if features.can_change(GRO) {
            format!("{name}: GRO is off; the gateway switches it on while it runs, unless offloads = \"as-is\"")
        } else {
            format!(
                "{name}: GRO is off, and the driver cannot switch it on; the kernel does not coalesce received packets"
            )
        })
    };
    [&config.wide, &config.narrow].into_iter().filter_map(of).collect()
}

fn packet_interface(side: &SideConfig) -> Option<String> {
    match side.port.parse() {
        Ok(PortAddress::Packet(name)) => Some(name),
        _ => None,
    }
}

/// The directory of the records.
struct Records(OwnedFd);

/// Treatment of a directory that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Made,
    Refused,
}

impl Records {
    /// Opens the directory of the records. Fails if users other than the directory's owner can write to it.
    fn open(missing: Missing) -> io::Result<Records> {
        let said = |error: Errno| io::Error::new(io::Error::from(error).kind(), format!("{DIRECTORY}: {error}"));
        if missing == Missing::Made {
            match mkdir(DIRECTORY, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(said(error)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(DIRECTORY, flags, Mode::empty()).map_err(said)?;
        if fstat(&directory)?.st_mode & 0o022 != 0 {
            let what =
                format!("{DIRECTORY}: users other than its owner can write there; run `chmod go-w {DIRECTORY}`");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(Records(directory))
    }

    /// Opens the directory of the records; `None` if it does not exist.
    fn found() -> io::Result<Option<Records>> {
        match Records::open(Missing::Refused) {
            Ok(records) => Ok(Some(records)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a record that a gateway switched GRO on at this interface.
    ///
    /// # Errors
    /// A file of another kind is at the record's path.
    fn holds(&self, cookie: u64, index: u32) -> io::Result<bool> {
        let name = name_of(cookie, index);
        // With `NONBLOCK`, opening a FIFO does not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.0, &name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(false),
            Err(_) => return Err(no_record(&name)),
        };
        let stat = fstat(&file)?;
        let owners = [geteuid().as_raw(), fstat(&self.0)?.st_uid];
        let is_ours = FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_nlink == 1;
        let mut text = Vec::new();
        if is_ours && owners.contains(&stat.st_uid) {
            File::from(file).take(TEXT.len() as u64).read_to_end(&mut text)?;
        }
        if text == TEXT.as_bytes() { Ok(true) } else { Err(no_record(&name)) }
    }

    fn write(&self, cookie: u64, index: u32, interface: &str) -> io::Result<()> {
        let name = name_of(cookie, index);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, &name, flags, Mode::from_raw_mode(0o600)).map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("{DIRECTORY}/{name}: {error}"))
        })?;
        File::from(file).write_all(format!("{TEXT}{interface}\n").as_bytes())
    }

    /// Removes a record. Files of other kinds are not removed, and are an error.
    fn remove(&self, cookie: u64, index: u32) -> io::Result<()> {
        if self.holds(cookie, index)? {
            unlinkat(&self.0, name_of(cookie, index), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Returns the indices of a namespace's interfaces that have a record.
    fn of(&self, cookie: u64) -> io::Result<Vec<u32>> {
        let mut indices = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            let index = name.strip_prefix(&front(cookie)).and_then(|index| index.parse().ok());
            indices.extend(index.filter(|index| self.holds(cookie, *index).unwrap_or_default()));
        }
        Ok(indices)
    }
}

fn front(cookie: u64) -> String {
    format!("gro-{cookie}-")
}

fn name_of(cookie: u64, index: u32) -> String {
    format!("{}{index}", front(cookie))
}

fn no_record(name: &str) -> io::Error {
    let what = format!(
        "{DIRECTORY}/{name}: cannot write the record of the GRO change: another file has this name; remove it"
    );
    io::Error::new(io::ErrorKind::AlreadyExists, what)
}

/// The kernel's name of the feature `generic-receive-offload`.
const GRO: &str = "rx-gro";
const DIRECTORY: &str = "/run/wideload";
/// Start of a record's text. The interface's name follows, for human readers.
const TEXT: &str = "wideload switched GRO on, `wideload undo` switches it off: ";
