//! README.md and the guides -> each of their commands, run.
//!
//! A comment above each block of commands says how the block runs. The table in docs/guide.md explains these
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
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(page) = live::page_to_run_inside() {
        return live::inside(&page);
    }
    let mut tests = vec![
        trial("every_block_of_commands_has_a_marker", || read_all().map(drop)),
        trial("every_argument_is_accepted_and_every_file_exists", || arguments::check(&all_commands()?)),
        trial("ci_runs_the_test_command", ci_runs_one_command),
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

/// `.ci/run` takes the first command below this marker.
fn ci_runs_one_command() -> Result<(), Failed> {
    let count = read_all()?.iter().filter(|block| block.marker == Marker::Test).count();
    if count == 1 { Ok(()) } else { Err(format!("{count} blocks are marked as the test command").into()) }
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
