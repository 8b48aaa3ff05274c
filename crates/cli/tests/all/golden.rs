//! The command line -> docs/cli.md: every help text, so that a change of wording shows in review.
//!
//! `WIDELOAD_GOLDEN=write cargo test -p wideload --test all golden` writes the page.

use clap::{Command, CommandFactory};
use std::path::Path;
use testkit::golden;
use wideload::args::Args;

#[test]
fn the_page_of_the_command_line_shows_every_help_text() {
    let mut page = HEAD.to_owned();
    let mut command = Args::command().term_width(80);
    command.build();
    describe(&command, &mut page);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    golden(path, &page);
}

// words.md, rule 9: an imperative sentence of at most ten words, then details, then two examples.
#[test]
fn every_help_text_begins_with_a_short_sentence_and_has_two_examples() {
    let mut command = Args::command();
    command.build();
    let mut all = Vec::new();
    collect(&command, &mut all);
    for command in all {
        let name = command.get_bin_name().unwrap_or("wideload");
        let about = command.get_about().unwrap_or_else(|| panic!("{name} has no first line")).to_string();
        assert!(about.split_whitespace().count() <= 10, "{name}: {about}");
        assert!(!about.ends_with('.'), "{name}: {about}");
        if command.has_subcommands() && name != "wideload lab" {
            continue;
        }
        let after = command.get_after_help().unwrap_or_else(|| panic!("{name} has no examples")).to_string();
        let (_, examples) = after.split_once("Examples:\n").unwrap_or_else(|| panic!("{name} has no examples"));
        assert_eq!(examples.lines().take_while(|line| line.starts_with("  ")).count(), 2, "{name}");
        assert!(after.contains("Exit status: 0 "), "{name}");
    }
}

fn describe(command: &Command, page: &mut String) {
    let mut all = Vec::new();
    collect(command, &mut all);
    for command in all {
        let name = command.get_bin_name().unwrap_or("wideload").to_owned();
        let help = command.clone().term_width(80).render_long_help().to_string();
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    }
}

/// Collects a command and all of its visible subcommands.
fn collect<'a>(command: &'a Command, all: &mut Vec<&'a Command>) {
    all.push(command);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        collect(sub, all);
    }
}

const HEAD: &str = "\
# Command line

Every help text of `wideload`, as `--help` prints it. A test keeps this page equal to the program.
";
