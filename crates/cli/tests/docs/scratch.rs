//! A temporary directory with links to the repository -> the place in which a page's commands run.

use crate::arguments;
use crate::pages::{self, Command};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use tempfile::TempDir;
use wideload::args::Job;

/// Folders of the repository by link, the program in `bin/` and `target/release/`, output in `out/`.
pub struct Scratch(TempDir);

impl Scratch {
    /// # Errors
    /// No room for files.
    pub fn new() -> io::Result<Scratch> {
        let folder = TempDir::new()?;
        let root = pages::root().canonicalize()?;
        for name in FOLDERS {
            symlink(root.join(name), folder.path().join(name))?;
        }
        for name in ["bin", "out", "target/release"] {
            fs::create_dir_all(folder.path().join(name))?;
        }
        for name in ["bin/wideload", "target/release/wideload"] {
            symlink(env!("CARGO_BIN_EXE_wideload"), folder.path().join(name))?;
        }
        Ok(Scratch(folder))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a command that needs no root, and expects its success.
    ///
    /// # Errors
    /// The command failed, or took too long.
    pub fn run(&self, command: &Command) -> Result<(), String> {
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{inherited}", self.path().join("bin").display(), shims().display());
        run(self.path(), &path, command).map(drop).map_err(|why| format!("{}: {why}", command.place))
    }

    /// Checks that a command writes no output file through a link into the repository.
    ///
    /// # Errors
    /// The command would write into the repository.
    pub fn keeps_output_inside(&self, command: &Command) -> Result<(), String> {
        let mut outputs: Vec<String> =
            arguments::calls(&command.text).filter_map(|words| output_of(&words)).collect();
        let mut words = command.text.split_whitespace().skip_while(|word| *word != ">");
        outputs.extend(words.nth(1).map(|word| word.trim_matches('"').to_owned()));
        let here = self.path().canonicalize().map_err(|error| error.to_string())?;
        for output in outputs.iter().filter(|output| *output != "-") {
            let path = self.path().join(output.replace("$OUT", &out(self.path()).display().to_string()));
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            if !folder.is_some_and(|folder| folder.starts_with(&here)) {
                return Err(format!("{}: {output} is outside of the temporary directory", command.place));
            }
        }
        Ok(())
    }
}

/// The file that a command writes.
fn output_of(words: &[String]) -> Option<String> {
    match arguments::parse(words).ok()??.job {
        Job::Rewrite(args) => Some(args.output.display().to_string()),
        _ => None,
    }
}

/// Runs a line of the shell in a folder, and returns its output.
///
/// # Errors
/// The command failed, or took too long.
pub fn run(folder: &Path, path: &str, command: &Command) -> Result<String, String> {
    let line = format!("set -euo pipefail; exec 2>&1; {}", command.text);
    let ran = process::Command::new("timeout")
        .args(["--kill-after=2", LIMIT, "bash", "-c", &line])
        .current_dir(folder)
        .envs([
            ("PATH", path),
            ("HOME", &folder.display().to_string()),
            ("OUT", &out(folder).display().to_string()),
        ])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("timeout and bash: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let doctor = command.text.trim_start_matches("sudo ").starts_with("wideload doctor");
    match ran.status.code() {
        Some(0) => Ok(said),
        // The machine lacks a feature.
        Some(1) if doctor => Ok(said),
        Some(124 | 137) => Err(format!("{}: took over {LIMIT} s: {said}", command.text)),
        _ => Err(format!("{}: {}: {said}", command.text, ran.status)),
    }
}

/// Replacements of `cargo`, `sudo` and `systemctl`.
pub fn shims() -> PathBuf {
    pages::root().join("crates/cli/tests/docs/shims")
}

fn out(folder: &Path) -> PathBuf {
    folder.join("out")
}

const FOLDERS: [&str; 4] = ["captures", "packaging", "crates", "docs"];
/// Longest execution of a command, in seconds.
const LIMIT: &str = "25";
