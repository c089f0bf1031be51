//! What a batch promises on folders.

use std::fs;

use crate::place::{Ended, Place, ended, fixture, image};
use crate::server::Server;

fn batch(place: &Place, arguments: &[&str]) -> Ended {
    ended(place.command(&[arguments, &["--json"]].concat()).output().unwrap())
}

fn files(place: &Place, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn folder_is_done_once_and_only_what_changed_is_done_again() {
    let place = Place::new();
    let bytes = fs::read(image()).unwrap();
    place.write("in/a.png", &bytes);
    place.write("in/sub/a.png", &bytes);
    assert_eq!(batch(&place, &["in", "--out", "in/out"]).with_code(0).counts(&["listed", "ok"]), [2, 2]);
    let second = batch(&place, &["in", "--out", "in/out"]).with_code(0);
    assert_eq!(second.counts(&["listed", "skipped"]), [2, 2]);
    assert_eq!(files(&place, "in/out"), ["a.png.png", "a.png.report.json", "a.png.safetensors", "sub"]);
    place.write("in/a.png", fs::read(fixture("images/plain.jpg")).unwrap());
    assert_eq!(batch(&place, &["in", "--out", "in/out"]).with_code(0).counts(&["ok", "skipped"]), [1, 1]);
}

#[test]
fn file_that_refmill_did_not_make_is_not_replaced() {
    let place = Place::new();
    place.write("in/a.png", fs::read(image()).unwrap());
    place.write("out/a.png.png", "mine");
    let refused = batch(&place, &["in", "--out", "out"]).with_code(3);
    assert!(refused.stdout.contains("a file is there that refmill did not make"), "{}", refused.stdout);
    assert_eq!(fs::read_to_string(place.path("out/a.png.png")).unwrap(), "mine");
    batch(&place, &["in", "--out", "out", "--force"]).with_code(0);
}

#[test]
fn input_that_is_no_folder_is_a_bad_command_line() {
    let place = Place::new();
    let refused = batch(&place, &["none", "--out", "out"]).with_code(2);
    assert!(refused.stderr.contains("is no folder"), "{}", refused.stderr);
    batch(&place, &["gs://x/y", "--out", "out"]).with_code(2);
}

#[test]
fn folder_goes_into_a_bucket_and_a_bucket_into_a_folder() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    place.write("in/b.png", fs::read(image()).unwrap());
    place.batch(&server, &["in", "--out", "s3://pictures/up"]).with_code(0);
    assert_eq!(server.keys("up/").len(), 3);
    server.put("in/../../evil.png", &image());
    server.put("in/c.png", &image());
    place.batch(&server, &["s3://pictures/in", "--out", "down"]).with_code(1);
    assert_eq!(files(&place, "down"), ["c.png.png", "c.png.report.json", "c.png.safetensors"]);
}
