//! docs/library.md -> examples that no doc test compiles.
//!
//! The page and the first pages of the crates show the same examples. The crates compile theirs as doc tests; this
//! test compares the texts. No crate can compile the page itself: all depend on the others under shorter names.
//! The test is in the lowest crate because it needs only the files of the workspace.

mod workspace;

use workspace::{crates, read};

#[test]
fn each_example_of_the_page_opens_a_crate() {
    let folders = crates();
    let pages = folders.iter().map(|folder| folder.join("src/lib.rs")).filter(|root| root.exists());
    let openings: Vec<String> = pages.filter_map(|root| opening(&read(&root))).collect();
    let page = read(&folders[0].join("../../docs/library.md"));
    let examples: Vec<String> = blocks(&page).collect();
    assert!(examples.len() >= 4, "the page shows packets, the loop, captures and ports");
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
