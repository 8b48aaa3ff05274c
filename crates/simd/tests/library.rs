//! docs/library.md -> examples that no doc test compiles.
//!
//! The page shows the first example of each of its crates. The crates compile these examples as doc tests. This
//! test compares the texts. No crate can compile the page itself, because the crates depend on each other under
//! shorter names. The test is in the lowest crate because it needs only the files of the workspace.

use std::fs;
use std::path::Path;

#[test]
fn each_example_of_the_page_opens_a_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let openings = CRATES.map(|name| {
        let source = format!("crates/{name}/src/lib.rs");
        opening(&read(&source)).unwrap_or_else(|| panic!("{source}: the crate's page has no example"))
    });
    let page = read("docs/library.md");
    let examples: Vec<String> = blocks(&page).collect();
    assert_eq!(examples.len(), CRATES.len(), "docs/library.md has one Rust example for each of {CRATES:?}");
    for example in examples {
        assert!(
            openings.contains(&example),
            "docs/library.md: this example opens no crate's page (src/lib.rs); make both equal:\n{example}"
        );
    }
}

/// The first example of a crate's page.
fn opening(source: &str) -> Option<String> {
    let lines = source.lines().take_while(|line| line.starts_with("//!"));
    let page: Vec<&str> = lines.map(|line| line.strip_prefix("//! ").unwrap_or_default()).collect();
    let mut code = page.into_iter().skip_while(|line| !matches!(*line, "```" | "```no_run"));
    code.next()?;
    Some(code.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect())
}

/// The Rust examples of a page.
fn blocks(page: &str) -> impl Iterator<Item = String> {
    let parts = page.split("```rust\n").skip(1);
    parts.map(|part| part.split_inclusive('\n').take_while(|line| *line != "```\n").collect())
}

/// The crates that the page describes.
const CRATES: [&str; 4] = ["packet", "engine", "capture", "port"];
