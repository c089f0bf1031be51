//! Where images come from and where their artifacts go: folders, globs, standard streams, and files that must not be
//! written over.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use refmill::failure::Code;
use refmill::report::Report;

use crate::support::fixtures::fixture;
use crate::support::scratch::Scratch;
use crate::support::tensors::{Tensors, derived};

#[test]
fn standard_input_is_processed_like_a_file() {
    let scratch = Scratch::new();
    let bytes = std::fs::read(fixture("images/plain.jpg")).unwrap();
    scratch.run_with_stdin(["-", "--recipe", "clip"], &bytes).with_code(0);
    assert_eq!(scratch.names("out"), ["stdin.png", "stdin.report.json", "stdin.safetensors"]);
    assert_eq!(scratch.tensors("out/stdin.safetensors").tensors, derived("clip").tensors);
}

#[test]
fn standard_output_carries_the_tensors_and_nothing_else() {
    let scratch = Scratch::new();
    let bytes = std::fs::read(fixture("images/plain.jpg")).unwrap();
    let ended = scratch.run_with_stdin(["-", "--recipe", "clip", "--out", "-"], &bytes).with_code(0);
    assert_eq!(Tensors::parse(&ended.stdout).tensors, derived("clip").tensors);
    assert_eq!(scratch.names(""), Vec::<String>::new());
}

#[test]
fn standard_output_without_tensors_carries_the_image() {
    let scratch = Scratch::new();
    let image = fixture("images/plain.jpg");
    let ended = scratch.run([image.to_str().unwrap(), "--no-tensors", "--out", "-"]).with_code(0);
    assert!(ended.stdout.starts_with(b"\x89PNG\r\n\x1a\n") && ended.stdout.ends_with(b"IEND\xaeB\x60\x82"));
}

#[test]
fn standard_output_with_json_leaves_the_report_to_standard_error() {
    let scratch = Scratch::new();
    let image = fixture("images/plain.jpg");
    let ended = scratch.run([image.to_str().unwrap(), "--recipe", "clip", "--out", "-", "--json", "--quiet"]);
    let report: Report = serde_json::from_str(ended.stderr.trim_end()).unwrap();
    assert_eq!(report.artifacts[0].path, "-");
    assert_eq!(report.artifacts[0].bytes, ended.stdout.len() as u64);
}

#[test]
fn json_is_one_report_a_line_for_folder_glob_and_files_together() {
    let scratch = Scratch::new();
    scratch.copy("folder/a.jpg", "images/plain.jpg");
    scratch.copy("folder/deeper/b.png", "images/p3.png");
    scratch.write("folder/notes.txt", "no image");
    scratch.copy("c1.gif", "images/palette.gif");
    scratch.copy("c2.gif", "images/animated.gif");
    scratch.copy("d.bmp", "images/plain.bmp");
    let ended = scratch.run(["folder", "*.gif", "d.bmp", "--json", "--recipe", "clip"]).with_code(0);
    let reports = ended.reports();
    let named: BTreeSet<&str> = reports.iter().map(|report| report.source.name.as_str()).collect();
    assert_eq!(reports.len(), 5);
    assert_eq!(named, ["folder/a.jpg", "folder/deeper/b.png", "c1.gif", "c2.gif", "d.bmp"].into());
    assert_eq!(scratch.names("out").len(), 15);
}

#[test]
fn json_line_is_the_report_that_was_written() {
    let scratch = Scratch::new();
    let ended = scratch.run([fixture("images/plain.jpg").to_str().unwrap(), "--json"]).with_code(0);
    assert_eq!(ended.reports(), [scratch.report("out/plain.report.json")]);
}

#[test]
fn inputs_of_one_name_overwrite_nothing_of_each_other() {
    let scratch = Scratch::new();
    scratch.copy("x/a.jpg", "images/plain.jpg");
    scratch.copy("x/a.png", "images/p3.png");
    scratch.copy("y/a.jpg", "images/orientation6.jpg");
    let reports = scratch.run(["x", "y", "--json", "--recipe", "clip"]).with_code(0).reports();
    let paths: BTreeSet<&str> =
        reports.iter().flat_map(|report| &report.artifacts).map(|artifact| artifact.path.as_str()).collect();
    assert_eq!(paths.len(), 6, "{paths:?}");
    assert_eq!(scratch.names("out").len(), 9);
}

#[test]
fn output_beside_the_input_leaves_the_input_as_it_was() {
    let scratch = Scratch::new();
    scratch.copy("photo.png", "images/p3.png");
    let before = scratch.read("photo.png");
    scratch.run(["photo.png", "--out", ".", "--recipe", "clip"]).with_code(0);
    assert_eq!(scratch.read("photo.png"), before);
    assert_eq!(scratch.names(""), ["photo.png", "photo.png.png", "photo.png.report.json", "photo.png.safetensors"]);
}

#[test]
fn output_beside_the_input_with_force_leaves_the_input_as_it_was() {
    let scratch = Scratch::new();
    scratch.copy("photo.png", "images/p3.png");
    let before = scratch.read("photo.png");
    scratch.run(["photo.png", "--out", ".", "--force", "--recipe", "clip"]).with_code(0);
    assert_eq!(scratch.read("photo.png"), before);
}

#[test]
fn output_folder_behind_a_link_leaves_the_input_as_it_was() {
    let scratch = Scratch::new();
    scratch.copy("photos/photo.png", "images/p3.png");
    symlink(scratch.path("photos"), scratch.path("link")).unwrap();
    let before = scratch.read("photos/photo.png");
    scratch.run(["photos/photo.png", "--out", "link", "--force", "--recipe", "clip"]).with_code(0);
    assert_eq!(scratch.read("photos/photo.png"), before);
}

#[test]
fn strangers_file_is_replaced_with_force_alone() {
    let scratch = Scratch::new();
    scratch.copy("in/a.jpg", "images/plain.jpg");
    scratch.write("out/a.png", "mine");
    let ended = scratch.run(["in", "--recipe", "clip", "--json"]).with_code(3);
    assert_eq!(ended.reports()[0].error.as_ref().unwrap().code, Code::Unwritable);
    assert_eq!(scratch.read("out/a.png"), b"mine");
    scratch.run(["in", "--recipe", "clip", "--force"]).with_code(0);
    assert!(scratch.read("out/a.png").starts_with(b"\x89PNG"));
}

#[test]
fn run_over_its_own_output_takes_none_of_it_as_input() {
    let scratch = Scratch::new();
    scratch.copy("a.jpg", "images/plain.jpg");
    let run = || scratch.run([".", "--out", ".", "--recipe", "clip", "--json"]).with_code(0).reports().len();
    assert_eq!([run(), run()], [1, 1]);
    assert_eq!(scratch.names(""), ["a.jpg", "a.png", "a.report.json", "a.safetensors"]);
}
