//! The files of `fixtures/`, and what `fixtures/expected.json` says of them.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// One fixture and the right answer to it.
#[derive(Debug)]
pub struct Expected {
    pub path: PathBuf,
    pub answer: Value,
}

/// A path below the root of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// One fixture, such as `images/plain.jpg`.
pub fn fixture(name: &str) -> PathBuf {
    let path = repository("fixtures").join(name);
    assert!(path.is_file(), "fixture {} is missing", path.display());
    path
}

/// The files of one folder, sorted; never none.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no file", folder.display());
    files
}

/// What is expected of every file of one folder of `fixtures/`; neither may know a file that the other lacks.
pub fn expected(folder: &str) -> Vec<Expected> {
    let text = std::fs::read_to_string(repository("fixtures/expected.json")).unwrap();
    let table: Value = serde_json::from_str(&text).unwrap();
    let prefix = format!("{folder}/");
    let named = table.as_object().unwrap().iter().filter(|(name, _)| name.starts_with(&prefix));
    let mut expected: Vec<Expected> =
        named.map(|(name, answer)| Expected { path: fixture(name), answer: answer.clone() }).collect();
    expected.sort_by(|a, b| a.path.cmp(&b.path));
    let paths: Vec<&PathBuf> = expected.iter().map(|expected| &expected.path).collect();
    assert_eq!(paths, files(&repository("fixtures").join(folder)).iter().collect::<Vec<_>>());
    expected
}
