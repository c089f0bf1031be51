//! A folder of a test's own, and `refmill batch` run in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use refmill::report::Report;
use serde_json::Value;

use crate::server::{KEY, SECRET, Server};

/// One small tensor, so that thousands of images take little time.
const RECIPE: &str = "name = \"small\"\n[[tensor]]\nname = \"t\"\nfit = \"stretch\"\nsize = 8\n\
                      filter = \"bicubic\"\nlayout = \"nchw\"\ndtype = \"u8\"\n";

pub struct Place(tempfile::TempDir);

/// How a batch ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("recipe.toml"), RECIPE).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_refmill"));
        assert!(program.with_file_name("refmill-worker").is_file(), "build the worker first");
        let mut command = Command::new(program);
        command.args(["batch", "--device", "cpu", "--workers", "2", "--recipe", "recipe.toml"]).args(arguments);
        command.env_clear().env("HOME", self.0.path()).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// With what it takes to reach a server on this machine.
    pub fn on(&self, port: u16, arguments: &[&str]) -> Command {
        let endpoint = format!("http://127.0.0.1:{port}");
        let mut command = self.command(&["--s3-endpoint", &endpoint, "--s3-allow-http", "--s3-region", "garage"]);
        command.args(arguments).env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    }

    pub fn batch(&self, server: &Server, arguments: &[&str]) -> Ended {
        ended(self.on(server.port(), arguments).output().unwrap())
    }
}

pub fn ended(output: Output) -> Ended {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Starts a batch that says what it says into pipes that are read at its end.
pub fn start(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Ended {
    #[track_caller]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        self
    }

    /// The last line of a batch that speaks JSON.
    pub fn summary(&self) -> Value {
        let last: Value = serde_json::from_str(self.stdout.lines().last().unwrap()).unwrap();
        last["summary"].clone()
    }

    /// Counts of the summary, by name.
    pub fn counts(&self, names: &[&str]) -> Vec<u64> {
        names.iter().map(|name| self.summary()[name].as_u64().unwrap()).collect()
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// A sound image of a few bytes.
pub fn image() -> PathBuf {
    fixture("images/rgba.png")
}

/// The endings of each set of artifacts, by the set's name.
pub fn sets(keys: &[String]) -> BTreeMap<String, Vec<&str>> {
    let mut sets: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for key in keys {
        let endings = [".report.json", ".safetensors", ".png"];
        let ending = endings.into_iter().find(|ending| key.ends_with(ending)).unwrap_or_else(|| panic!("{key}"));
        sets.entry(key.strip_suffix(ending).unwrap().to_owned()).or_default().push(ending);
    }
    sets
}

/// Asserts that these inputs, and no others, have one whole set of artifacts each.
#[track_caller]
pub fn assert_whole(keys: &[String], names: &[String]) {
    let sets = sets(keys);
    let missing: Vec<&String> = names.iter().filter(|name| !sets.contains_key(*name)).collect();
    assert!(missing.is_empty(), "without artifacts: {missing:?}");
    assert_eq!(sets.len(), names.len(), "{:?}", sets.keys().find(|name| !names.contains(name)));
    for (name, endings) in sets {
        assert_eq!(endings, [".png", ".report.json", ".safetensors"], "{name}");
    }
}

/// Asserts that all that reports name is there with the bytes that they say; gives how many reports there were.
pub fn assert_true(server: &mut Server, prefix: &str) -> usize {
    let reports: Vec<String> = server.keys(prefix).into_iter().filter(|key| key.ends_with(".report.json")).collect();
    for key in &reports {
        let report: Report = serde_json::from_slice(&server.get(key)).unwrap();
        for artifact in &report.artifacts {
            let key = artifact.path.strip_prefix("s3://pictures/").unwrap();
            assert_eq!(blake3::hash(&server.get(key)).to_hex().as_str(), artifact.blake3, "{key}");
        }
    }
    reports.len()
}
