//! A harness's arguments -> its task.
//!
//! The arguments are those of `crates/bench/peers/README.md`, shared with all peers' harnesses.

use crate::workload::{Function, Work};
use std::path::PathBuf;

/// A harness's task, as defined in `crates/bench/peers/README.md`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// System of this harness to measure.
    pub system: System,
    /// Function to measure.
    pub function: Function,
    /// Extent of the work that is timed.
    pub work: Work,
    /// File with the packets of one section.
    pub file: PathBuf,
    /// File for the output of `verify`.
    pub out: PathBuf,
    /// Number of copies of the section in memory, used in turn.
    pub ring: usize,
    /// Kind of pages for packet memory.
    pub pages: Pages,
    /// Number of sections to process without commands; `None` = execute the commands on standard input.
    pub sections: Option<usize>,
    /// Number of datagrams that are incomplete at the same time.
    pub datagrams: usize,
    /// Longest output packet of the functions `fragment` and `merge`, in bytes.
    pub mtu: usize,
    /// Payload of each output segment of the function `segment`, in bytes.
    pub segment: usize,
    /// Number of TCP flows in the section.
    pub flows: usize,
    /// Number of packets pushed between two flushes.
    pub burst: usize,
    /// Longest output packet of the function `coalesce`, in bytes.
    pub len_max: usize,
    /// Whether all held segments are flushed after each burst.
    pub empties_after_burst: bool,
    /// Limit of the engine's held bytes.
    pub limit: usize,
}

/// Systems that this harness can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// The engine.
    Wideload,
    /// A loop that copies the same bytes to the same places, and does nothing else.
    PlainCopy,
    /// A loop that copies the same bytes to the same places and computes their sum.
    CopyAndSum,
}

/// Kind of pages for packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of 2 MiB, where the kernel has them.
    Huge,
    /// Pages of the heap, usually of 4 KiB.
    Small,
}

impl Ask {
    /// Parses a harness's arguments.
    ///
    /// # Errors
    /// The first argument that cannot be parsed.
    pub fn parse(arguments: &[String]) -> Result<Ask, String> {
        let mut ask = Ask {
            system: System::Wideload,
            function: Function::Parse,
            work: Work::Contiguous,
            file: PathBuf::new(),
            out: PathBuf::new(),
            ring: 1,
            pages: Pages::Small,
            sections: None,
            datagrams: 1,
            mtu: 1_500,
            segment: 1_448,
            flows: 1,
            burst: 64,
            len_max: 65_535,
            empties_after_burst: false,
            limit: 4 << 30,
        };
        for argument in arguments {
            ask.take(argument).ok_or_else(|| format!("{argument}: unknown harness argument"))?;
        }
        if ask.file.as_os_str().is_empty() {
            return Err("file=PATH is missing".to_string());
        }
        Ok(ask)
    }

    fn take(&mut self, argument: &str) -> Option<()> {
        match argument {
            "wideload" => self.system = System::Wideload,
            "plain-copy" => self.system = System::PlainCopy,
            "copy-and-sum" => self.system = System::CopyAndSum,
            _ => {
                let (key, value) = argument.split_once('=')?;
                self.set(key, value)?;
            }
        }
        Some(())
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let number = || value.parse::<usize>().ok();
        match key {
            "function" => self.function = Function::ALL.into_iter().find(|one| one.to_string() == value)?,
            "work" => self.work = Work::ALL.into_iter().find(|one| one.to_string() == value)?,
            "file" => self.file = value.into(),
            "out" => self.out = value.into(),
            "pages" => self.pages = if value == "huge" { Pages::Huge } else { Pages::Small },
            "hold" => self.empties_after_burst = value == "burst",
            "ring" => self.ring = number()?.max(1),
            "sections" => self.sections = Some(number()?),
            "datagrams" => self.datagrams = number()?,
            "pieces" => drop(number()?),
            "mtu" => self.mtu = number()?,
            "segment" => self.segment = number()?,
            "flows" => self.flows = number()?,
            "burst" => self.burst = number()?.max(1),
            "len_max" => self.len_max = number()?,
            "limit" => self.limit = number()?,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Ask, String> {
        Ask::parse(&line.split(' ').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_follow_the_protocol() {
        let ask =
            asked("plain-copy function=coalesce work=checksummed file=/a out=/b ring=7 pages=huge hold=burst");
        let ask = ask.unwrap();
        assert_eq!(
            (ask.system, ask.function, ask.work),
            (System::PlainCopy, Function::Coalesce, Work::Checksummed)
        );
        assert_eq!((ask.ring, ask.pages, ask.empties_after_burst), (7, Pages::Huge, true));
        assert_eq!(asked("file=/a sections=6 pieces=44").unwrap().sections, Some(6));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(asked("file=/a ring=many"), Err("ring=many: unknown harness argument".to_string()));
        assert_eq!(asked("file=/a colour=red"), Err("colour=red: unknown harness argument".to_string()));
        assert_eq!(asked("function=parse"), Err("file=PATH is missing".to_string()));
    }
}
