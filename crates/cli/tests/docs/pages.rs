//! A page -> its blocks of commands, with their markers.

use std::fs;
use std::path::{Path, PathBuf};

/// The way in which a test runs a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Without root.
    Check,
    /// With root, and a running gateway where the commands ask for one.
    Root,
    /// With root and systemd; installs and starts.
    Deploy,
    /// With root and systemd; stops and removes.
    Undeploy,
    /// Installs the program for one user.
    Install,
    /// By no test, for a reason.
    Never,
    /// By `.ci/run`.
    Test,
}

/// A fenced block of commands.
pub struct Block {
    pub marker: Marker,
    pub commands: Vec<Command>,
}

/// A command line of a page.
#[derive(Clone)]
pub struct Command {
    /// Page and line.
    pub place: String,
    pub text: String,
    pub marker: Marker,
}

/// The blocks of commands of a page.
///
/// # Errors
/// A block has no marker, or a marker has no block. The error contains page and line of each.
pub fn read(page: &str) -> Result<Vec<Block>, String> {
    let text = fs::read_to_string(root().join(page)).map_err(|error| format!("{page}: {error}"))?;
    let (mut blocks, mut problems) = (Vec::new(), Vec::new());
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    // The marker that waits for its block.
    let mut comment: Option<(usize, &str)> = None;
    while let Some((at, line)) = lines.next() {
        if is_marker(line) {
            comment.replace((at, line)).inspect(|(at, _)| problems.push(format!("{page}:{at}: no block follows")));
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            let inside: Vec<_> =
                lines.by_ref().take_while(|(_, line)| !line.trim_start().starts_with("```")).collect();
            match marker_of(language.trim(), comment.take()) {
                Ok(Some(marker)) => blocks.push(Block { marker, commands: commands(page, marker, &inside) }),
                Ok(None) => {}
                Err(why) => problems.push(format!("{page}:{at}: {why}")),
            }
        } else if !line.trim().is_empty() {
            comment.take().inspect(|(at, _)| problems.push(format!("{page}:{at}: no block follows")));
        }
    }
    if problems.is_empty() { Ok(blocks) } else { Err(problems.join("\n")) }
}

fn is_marker(line: &str) -> bool {
    line.starts_with("<!-- run:") || line == TEST_COMMAND
}

/// The marker of a block in this language; none for a block that has no commands.
fn marker_of(language: &str, comment: Option<(usize, &str)>) -> Result<Option<Marker>, String> {
    match (language, comment) {
        ("" | "sh" | "bash" | "console", Some((_, comment))) => parse(comment).map(Some),
        ("" | "sh" | "bash" | "console", None) => {
            Err("a block of commands needs a marker, such as <!-- run: check -->; other text is ```text".to_owned())
        }
        ("text" | "toml" | "json", None) => Ok(None),
        ("text" | "toml" | "json", Some(_)) => Err(format!("a marker above a block of {language}")),
        _ => Err(format!("{language}: unknown language of a block")),
    }
}

fn parse(comment: &str) -> Result<Marker, String> {
    if comment == TEST_COMMAND {
        return Ok(Marker::Test);
    }
    let name = comment.trim_start_matches("<!-- run:").trim_end_matches("-->").trim();
    match name {
        "check" => Ok(Marker::Check),
        "root" => Ok(Marker::Root),
        "deploy" => Ok(Marker::Deploy),
        "undeploy" => Ok(Marker::Undeploy),
        "install" => Ok(Marker::Install),
        _ if name.starts_with("never (") && name.ends_with(')') && name.len() > "never ()".len() => {
            Ok(Marker::Never)
        }
        _ if name.starts_with("never") => Err("`never` needs a reason in parentheses".to_owned()),
        _ => Err(format!("{name}: unknown marker")),
    }
}

/// The lines of a block that are commands, without comments and empty lines.
fn commands(page: &str, marker: Marker, lines: &[(usize, &str)]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut continues = false;
    for (at, line) in lines {
        let line = line.trim();
        let (text, more) = line.strip_suffix('\\').map_or((line, false), |text| (text, true));
        if continues && let Some(last) = commands.last_mut() {
            last.text.push_str(text);
        } else if !text.is_empty() && !text.starts_with('#') {
            let text = text.strip_prefix("$ ").unwrap_or(text).to_owned();
            commands.push(Command { place: format!("{page}:{at}"), text, marker });
        }
        continues = more;
    }
    commands
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages whose commands are run.
pub const PAGES: [&str; 4] = ["README.md", "docs/guide.md", "docs/rewrite.md", "docs/lab.md"];
const TEST_COMMAND: &str = "<!-- test command -->";
