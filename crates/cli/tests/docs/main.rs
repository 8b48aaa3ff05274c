//! README.md and the guides -> each of their commands, run.
//!
//! A comment above each block of commands says how the block runs. The table in docs/TESTING.md explains these
//! markers. Blocks that install and start services run in private mount, process and network namespaces, with a
//! small `systemctl` of the tests. These blocks need root, and are ignored without it. With
//! `WIDELOAD_REQUIRE_TOOLS=1`, as in CI, they fail instead.

mod arguments;
mod live;
mod network;
mod pages;
mod scratch;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use pages::{Block, Command, Marker};
use scratch::Scratch;
use std::fs;
use std::process::{self, ExitCode};

fn main() -> ExitCode {
    if let Some(page) = live::page_to_run_inside() {
        return live::inside(&page);
    }
    let mut tests = vec![
        trial("every_block_of_commands_has_a_marker", || read_all().map(drop)),
        trial("every_argument_is_accepted_and_every_file_exists", || arguments::check(&all_commands()?)),
        trial("ci_runs_the_test_command", ci_runs_the_test_command),
    ];
    for page in pages::PAGES {
        tests.push(trial(&format!("commands_without_root_work: {page}"), || run_anywhere(page)));
        if live::commands(page).is_ok_and(|commands| commands.is_empty()) {
            continue;
        }
        let test = move || run_live(page);
        tests.push(Trial::ignorable_test(format!("commands_of_root_work_and_are_undone: {page}"), test));
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

fn trial(name: &str, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name, test)
}

fn read_all() -> Result<Vec<Block>, Failed> {
    let mut blocks = Vec::new();
    for page in pages::PAGES {
        blocks.extend(pages::read(page)?);
    }
    Ok(blocks)
}

fn all_commands() -> Result<Vec<Command>, Failed> {
    Ok(read_all()?.into_iter().flat_map(|block| block.commands).collect())
}

/// The pages have one test command, and `.ci/run` takes and runs it.
fn ci_runs_the_test_command() -> Result<(), Failed> {
    let mut marked = all_commands()?;
    marked.retain(|command| command.marker == Marker::Test);
    let [command] = &marked[..] else {
        return Err(format!("{} commands are marked as the test command", marked.len()).into());
    };
    let script = fs::read_to_string(pages::root().join(".ci/run"))?;
    if let Some(part) = CI_PARTS.iter().find(|part| !script.contains(**part)) {
        return Err(format!(".ci/run does not contain `{part}`").into());
    }
    let ran = process::Command::new("bash").args(["-c", CI_TAKES]).current_dir(pages::root()).output()?;
    let taken = String::from_utf8_lossy(&ran.stdout);
    if ran.status.success() && taken.trim_end() == command.text {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    Err(format!(".ci/run takes `{}`, not `{}`: {said}", taken.trim_end(), command.text).into())
}

fn run_anywhere(page: &str) -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    for block in pages::read(page)?.iter().filter(|block| block.marker == Marker::Check) {
        for command in &block.commands {
            scratch.keeps_output_inside(command)?;
            scratch.run(command)?;
        }
    }
    Ok(())
}

fn run_live(page: &str) -> Result<Completion, Failed> {
    let commands = live::commands(page)?;
    match live::missing(&commands) {
        Some(missing) if std::env::var_os("WIDELOAD_REQUIRE_TOOLS").is_some() => {
            Err(format!("{missing}, and WIDELOAD_REQUIRE_TOOLS is set").into())
        }
        Some(missing) => Ok(Completion::ignored_with(missing)),
        None => live::outside(page).map(|()| Completion::Completed),
    }
}

/// The lines of `.ci/run` that take the test command and run it.
const CI_PARTS: [&str; 3] =
    ["command=$(test_command)\n", " bash -euo pipefail -c \"$command\"", "\n    run_tests\n"];
/// Runs only the function of `.ci/run` that takes the command.
const CI_TAKES: &str = r"source <(sed -n '/^test_command() {$/,/^}$/p' .ci/run) && test_command";
