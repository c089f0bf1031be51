//! Which input writes under which name. Pure, and a function of the inputs alone: the same command line gives the
//! same names, and no two inputs of a run share one.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Endings of what one input may leave in the output folder.
pub const IMAGE: &str = ".png";
/// As [`IMAGE`].
pub const TENSORS: &str = ".safetensors";
/// As [`IMAGE`].
pub const REPORT: &str = ".report.json";
/// Endings of files that were repaired without converting them, by their format.
pub const REPAIRED: &[&str] = &[".jpg", ".png", ".webp", ".tif", ".gif", ".bmp", ".avif", ".heic"];

/// The names, in the order of `relative`, which are the inputs' paths below the folders that were named.
///
/// An input is called by its stem. Where that is another's stem too, or would write over a file in `inputs`, by
/// its whole name; where that is not enough, by its path with `__` for `/`; at last by a number.
#[must_use]
pub fn plan(relative: &[PathBuf], out: &Path, inputs: &HashSet<PathBuf>) -> Vec<OsString> {
    plan_with(relative, out, inputs, &[IMAGE, TENSORS, REPORT])
}

/// As [`plan`], for artifacts with these endings.
#[must_use]
pub fn plan_with(relative: &[PathBuf], out: &Path, inputs: &HashSet<PathBuf>, endings: &[&str]) -> Vec<OsString> {
    let hits = |name: &OsStr| hits(name, out, inputs, endings);
    let candidates: Vec<[OsString; 3]> = relative.iter().map(|path| candidates(path)).collect();
    let mut wanted: HashMap<&OsStr, usize> = HashMap::new();
    for [stem, name, path] in &candidates {
        // One input counts once for each different candidate of its own.
        let own: HashSet<&OsStr> = [stem.as_os_str(), name, path].into();
        own.into_iter().for_each(|candidate| *wanted.entry(candidate).or_default() += 1);
    }
    let mut taken = HashSet::new();
    let mut names = Vec::with_capacity(relative.len());
    for choices in &candidates {
        let alone = |name: &&OsString| wanted.get(name.as_os_str()) == Some(&1) && !hits(name);
        let name = choices.iter().find(alone).cloned().unwrap_or_else(|| numbered(choices, &taken, &wanted, hits));
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

fn candidates(relative: &Path) -> [OsString; 3] {
    let whole = relative.file_name().unwrap_or(OsStr::new("image")).to_owned();
    let stem = relative.file_stem().unwrap_or(&whole).to_owned();
    let mut path = OsString::new();
    for part in relative.components() {
        if let Component::Normal(part) = part {
            if !path.is_empty() {
                path.push("__");
            }
            path.push(part);
        }
    }
    [stem, whole, path]
}

fn numbered(
    [_, _, path]: &[OsString; 3],
    taken: &HashSet<OsString>,
    wanted: &HashMap<&OsStr, usize>,
    hits: impl Fn(&OsStr) -> bool,
) -> OsString {
    let named = |number: u64| {
        let mut name = path.clone();
        name.push(format!("-{number}"));
        name
    };
    let free = |name: &OsString| !taken.contains(name) && !wanted.contains_key(name.as_os_str()) && !hits(name);
    (1..u64::MAX).map(named).find(free).unwrap_or_else(|| path.clone())
}

/// Whether an artifact of this name would take an input's place.
fn hits(name: &OsStr, out: &Path, inputs: &HashSet<PathBuf>, endings: &[&str]) -> bool {
    endings.iter().any(|ending| inputs.contains(&file(out, name, ending)))
}

/// The path of one artifact.
#[must_use]
pub fn file(out: &Path, name: &OsStr, ending: &str) -> PathBuf {
    let mut name = name.to_owned();
    name.push(ending);
    out.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(relative: &[&str], inputs: &[&str]) -> Vec<String> {
        let relative: Vec<PathBuf> = relative.iter().map(PathBuf::from).collect();
        let inputs = inputs.iter().map(PathBuf::from).collect();
        let names = plan(&relative, Path::new("/out"), &inputs);
        names.into_iter().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn different_stems_are_the_names() {
        assert_eq!(names(&["a.jpg", "sub/b.png"], &[]), ["a", "b"]);
    }

    #[test]
    fn equal_stems_keep_their_extensions() {
        assert_eq!(names(&["a.jpg", "a.png", "b.png"], &[]), ["a.jpg", "a.png", "b"]);
    }

    #[test]
    fn equal_names_keep_their_folders() {
        assert_eq!(names(&["x/a.jpg", "y/a.jpg"], &[]), ["x__a.jpg", "y__a.jpg"]);
    }

    #[test]
    fn equal_names_of_two_roots_are_numbered() {
        assert_eq!(names(&["a.jpg", "a.jpg"], &[]), ["a.jpg-1", "a.jpg-2"]);
    }

    #[test]
    fn stem_that_is_another_inputs_name_is_not_taken() {
        // `a.jpg.png` by its stem would be `a.jpg`, which the second input falls back to: neither gets it.
        assert_eq!(names(&["a.jpg.png", "a.jpg", "a.gif"], &[]), ["a.jpg.png", "a.jpg-1", "a.gif"]);
    }

    #[test]
    fn input_in_the_output_folder_is_not_written_over() {
        assert_eq!(names(&["photo.png"], &["/out/photo.png"]), ["photo.png"]);
        assert_eq!(names(&["photo.png"], &["/out/photo.png", "/out/photo.png.png"]), ["photo.png-1"]);
    }

    #[test]
    fn input_of_another_kind_in_the_output_folder_is_safe_as_it_is() {
        assert_eq!(names(&["photo.jpg"], &["/out/photo.jpg"]), ["photo"]);
    }
}
