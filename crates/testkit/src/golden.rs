//! A text -> the comparison with a golden file in the repository. So each change of the text appears in a diff.

use std::fs;
use std::path::Path;

/// Compares a text with a golden file. With `WIDELOAD_GOLDEN=write` in the environment, writes the file instead.
///
/// # Panics
/// If the texts differ, or the file cannot be read or written.
pub fn golden(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if std::env::var_os("WIDELOAD_GOLDEN").is_some_and(|how| how == "write") {
        return fs::write(path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let expected = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}; {WRITE}", path.display()));
    for (number, (expected, actual)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(actual, expected, "line {} of {}; {WRITE}", number + 1, path.display());
    }
    assert_eq!(actual, expected, "{} has other lines at its end; {WRITE}", path.display());
}

const WRITE: &str = "if the change is intended, run this test with WIDELOAD_GOLDEN=write, and read the difference";

#[cfg(test)]
mod tests {
    use super::golden;
    use std::panic::catch_unwind;

    #[test]
    fn a_changed_line_a_shorter_and_a_longer_text_are_noticed() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");
        golden(path, "one\ntwo\n");
        for other in ["one\ntoo\n", "one\n", "one\ntwo\nthree\n", "one\ntwo"] {
            assert!(catch_unwind(|| golden(path, other)).is_err(), "{other:?}");
        }
    }
}
