//! The sources of the workspace -> the files that are too long.
//!
//! A file is read from top to bottom. A file longer than [`LEN_MAX`] holds more than one subject: split it by
//! subject. Test modules at a file's end do not count, and neither do test files.
//!
//! This test is in the lowest crate because it needs only the files of the workspace.

mod workspace;

use syn::{Attribute, Ident, Item};
use workspace::{crates, name_of, sources};

/// Maximum length of a source without the tests at its end, in lines.
const LEN_MAX: usize = 700;

#[test]
fn no_source_is_longer_than_700_lines_without_its_tests() {
    let mut wrong = String::new();
    for folder in crates() {
        let name = name_of(&folder);
        for (file, text) in sources(&folder.join("src")) {
            let file = format!("crates/{name}/src/{file}");
            let len = len_without_tests(&file, &text);
            if len > LEN_MAX {
                wrong += &format!("{file}: {len} lines without its tests, at most {LEN_MAX} may be\n");
            }
        }
    }
    assert!(wrong.is_empty(), "split along what it does:\n{wrong}");
}

#[test]
fn tests_at_the_end_of_a_file_do_not_count() {
    let code = "fn f() {}\n\nfn g() {}\n";
    let tests = "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
    assert_eq!(len_without_tests("x", code), 3);
    assert_eq!(len_without_tests("x", &format!("{code}\n{tests}")), 4);
    // Only the last module counts, and only if nothing follows it.
    assert_eq!(len_without_tests("x", &format!("{tests}{code}")), 7);
    assert_eq!(len_without_tests("x", &format!("{code}{tests}{code}{tests}")), 10);
    assert_eq!(len_without_tests("x", &format!("{code}#[cfg(test)]\nfn h() {{}}\n")), 5);
}

/// Returns the number of lines of a file, without the module `tests` if it ends the file.
fn len_without_tests(file: &str, text: &str) -> usize {
    let items = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}")).items;
    let tests = match items.last() {
        Some(Item::Mod(last)) if last.ident == "tests" && last.content.is_some() => last.attrs.iter().find(is_test),
        _ => None,
    };
    tests.map_or_else(|| text.lines().count(), |condition| condition.pound_token.spans[0].start().line - 1)
}

/// Whether the attribute is `#[cfg(test)]`.
fn is_test(attribute: &&Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|condition| condition == "test")
}
