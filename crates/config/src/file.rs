//! A TOML file or its text -> a configuration, or all mistakes in it.
//!
//! The daemon and `wideload check` read configurations here. The modules `syntax`, `read` and `check` find the
//! mistakes.

use crate::check;
use crate::problem::{Notes, Problems};
use crate::read;
use crate::renamed;
use crate::settings::Config;
use crate::syntax;
use crate::table::Table;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use toml::de::DeTable;

impl Config {
    /// Reads the configuration in a file.
    ///
    /// # Errors
    /// All mistakes in the file, or the reason why the file cannot be read.
    pub fn read(path: &Path) -> Result<Config, Problems> {
        Config::parse(&Config::text(path)?, &path.to_string_lossy())
    }

    /// Reads the text of a configuration file, up to one byte more than the size limit. [`parse`](Config::parse)
    /// rejects a longer text.
    ///
    /// # Errors
    /// The file cannot be read, or is not UTF-8.
    pub fn text(path: &Path) -> Result<String, Problems> {
        let file = path.to_string_lossy();
        let unread = |error| Problems::unread(&file, format!("cannot read: {error}"), "give a readable file");
        let mut bytes = Vec::new();
        let opened = File::open(path).map_err(unread)?;
        opened.take(FILE_LEN_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unread)?;
        match str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => {
                let (text, _) = bytes.split_at(error.valid_up_to());
                let mut notes = Notes::default();
                notes.error(text.len(), "", "this is not valid UTF-8", "save the file as UTF-8");
                let [problems, _] = notes.sorted(&String::from_utf8_lossy(text), &file);
                Err(problems)
            }
        }
    }

    /// Reads a configuration from its text. `file` is the path of the file. Messages contain the path, and the
    /// configuration gets the file's name.
    ///
    /// # Errors
    /// All mistakes in the text.
    pub fn parse(text: &str, file: &str) -> Result<Config, Problems> {
        if text.len() > FILE_LEN_MAX {
            let what = format!("the file is longer than {} KiB", FILE_LEN_MAX >> 10);
            return Err(Problems::unread(file, what, "give a gateway configuration"));
        }
        let (mut entries, errors) = DeTable::parse_recoverable(text);
        let mut notes = Notes::default();
        syntax::note(text, &errors, &mut notes);
        renamed::apply(entries.get_mut(), &mut notes);
        let root = Table::root(entries.get_ref());
        let said = read::RawConfig::read(&root, &mut notes);
        check::check(&said, &mut notes);
        let config = said.build(&name_of(file), &mut notes);
        let [problems, warnings] = notes.sorted(text, file);
        match config {
            Some(config) if problems.is_empty() => Ok(Config { warnings, ..config }),
            _ => {
                assert!(!problems.is_empty(), "a refused file has a reason");
                Err(problems)
            }
        }
    }
}

/// Returns a file's name without directory and extension; `wideload` if there is no name.
fn name_of(file: &str) -> String {
    let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| "wideload".to_owned())
}

/// Size limit of a configuration file, in bytes.
const FILE_LEN_MAX: usize = 64 << 10;
