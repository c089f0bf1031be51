//! A batch that ends before its work does: killed, or asked to.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::place::{Place, assert_true, assert_whole, image, start};
use crate::server::Server;

const LINE: [&str; 3] = ["s3://pictures/in", "--out", "s3://pictures/out"];

fn signal(child: &Child, signal: Signal) {
    // It may have ended by itself.
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).ok();
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come about");
}

#[test]
fn two_thousand_objects_over_three_kills_have_one_set_of_artifacts_each() {
    const OBJECTS: usize = 2_000;
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.copies("in/", OBJECTS, &image());
    let mut done = 0;
    for _ in 0..3 {
        let mut batch = start(place.on(server.port(), &LINE));
        until("more artifacts", || server.keys("out/").len() > done + 300);
        signal(&batch, Signal::SIGKILL);
        batch.wait().unwrap();
        done = server.keys("out/").len();
        assert!(done < 3 * OBJECTS, "it was killed in the middle");
    }
    let reports = server.keys("out/").iter().filter(|key| key.ends_with(".report.json")).count() as u64;
    let last = place.batch(&server, &[&LINE[..], &["--json"]].concat()).with_code(0);
    let expected = [OBJECTS as u64, reports, OBJECTS as u64 - reports];
    assert_eq!(last.counts(&["listed", "skipped", "ok"]), expected, "two pages, and nothing twice");
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("out/{number:05}.png")).collect();
    assert_whole(&server.keys("out/"), &names);
}

#[test]
fn asked_to_end_a_batch_finishes_what_it_has_in_hand() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.copies("in/", 400, &image());
    let mut batch = start(place.on(server.port(), &LINE));
    until("the first artifacts", || server.keys("out/").len() > 9);
    signal(&batch, Signal::SIGINT);
    assert_eq!(batch.wait().unwrap().code(), Some(1), "some were not done");
    let made = server.keys("out/");
    let names: Vec<String> =
        made.iter().filter_map(|key| key.strip_suffix(".report.json").map(str::to_owned)).collect();
    assert!(names.len() < 400, "it was asked in the middle");
    assert_whole(&made, &names);
    place.batch(&server, &LINE).with_code(0);
    assert_eq!(server.keys("out/").len(), 1_200);
}

#[test]
fn folder_killed_at_any_moment_holds_only_whole_sets_in_the_end() {
    let place = Place::new();
    (0..200).for_each(|number| drop(place.write(&format!("in/{number:03}.png"), fs::read(image()).unwrap())));
    for round in 0..4 {
        let mut batch = start(place.command(&["in", "--out", "out"]));
        thread::sleep(Duration::from_millis(60 + 40 * round));
        signal(&batch, Signal::SIGKILL);
        batch.wait().unwrap();
    }
    crate::place::ended(place.command(&["in", "--out", "out"]).output().unwrap()).with_code(0);
    let names: Vec<String> = (0..200).map(|number| format!("{number:03}.png")).collect();
    let mut made: Vec<String> = fs::read_dir(place.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    made.sort();
    assert_whole(&made, &names);
}

#[test]
fn bucket_read_after_kills_says_what_is_true() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.copies("in/", 50, &image());
    let mut batch = start(place.on(server.port(), &LINE));
    until("the first artifacts", || server.keys("out/").len() > 9);
    signal(&batch, Signal::SIGKILL);
    batch.wait().unwrap();
    assert!(assert_true(&mut server, "out/") < 50);
}
