//! The folders of the workspace -> the sources of all crates, for tests that read all sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The texts of a crate, by their paths inside of the folder that was read.
pub type Texts = BTreeMap<String, String>;

/// The folders of the workspace's crates.
pub fn crates() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates stand in a folder");
    let entries = fs::read_dir(all).unwrap_or_else(|error| panic!("{}: {error}", all.display()));
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("the folder is read").path()).collect();
    folders.retain(|folder| folder.join("Cargo.toml").exists());
    folders.sort();
    assert!(folders.len() > 1, "{}: no crates", all.display());
    folders
}

/// The name of a crate, by its folder.
pub fn name_of(folder: &Path) -> String {
    folder.file_name().expect("a folder has a name").to_string_lossy().into_owned()
}

/// The Rust sources in a folder, by their paths inside of it.
pub fn sources(folder: &Path) -> Texts {
    let mut texts = Texts::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.expect("the folder is read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(folder).expect("it was found there").to_string_lossy().into_owned();
                texts.insert(inside, read(&path));
            }
        }
    }
    texts
}

/// The text of a file.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
