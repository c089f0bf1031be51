//! What a batch promises on a bucket.

use std::collections::HashSet;
use std::fs;

use serde_json::Value;

use crate::place::{Place, assert_true, assert_whole, ended, fixture, image, sets};
use crate::server::{KEY, SECRET, Server};

#[test]
fn every_kind_of_key_becomes_one_set_of_artifacts_inside_the_prefix() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    let keys = [
        "a.png",
        "a.jpg",
        "sub/a.png",
        "sub//a.png",
        "/sub/a.png",
        "b c+d&e=f?.png",
        "encoded%2Fslash.png",
        "über/図.PNG",
        "..a/b..png",
        "line\nbreak\u{1}.png",
        "back\\slash~.png",
    ];
    keys.iter().for_each(|key| server.put(&format!("in/{key}"), &image()));
    let long = format!("{}x.png", "long/".repeat(150));
    server.put(&format!("in/{long}"), &image());
    server.put("in/notes.txt", &image());
    let line = ["s3://pictures/in", "--out", "s3://pictures/out", "--json"];
    let first = place.batch(&server, &line).with_code(0);
    assert_eq!(first.counts(&["listed", "ok", "rejected", "not_done"]), [12, 12, 0, 0], "{}", first.stderr);
    assert!(first.stderr.contains("1 objects have no image's extension"), "{}", first.stderr);
    let made = server.keys("out/");
    let whole = sets(&made);
    assert_eq!(whole.len(), 12, "{made:?}");
    assert!(whole.values().all(|endings| endings.len() == 3), "{whole:?}");
    for name in ["a.png", "a.jpg", "sub/%2Fa.png", "%2Fsub/a.png", "encoded%252Fslash.png", "line%0Abreak%01.png"] {
        assert!(whole.contains_key(&format!("out/{name}")), "{name} {made:?}");
    }
    assert_eq!(server.keys("").len(), 13 + 36, "nothing is written elsewhere");
    assert_eq!(assert_true(&mut server, "out/"), 12);
    let sources: HashSet<String> = first
        .stdout
        .lines()
        .filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?["source"]["name"].as_str()?.to_owned()))
        .collect();
    assert_eq!(sources.len(), 12);

    let second = place.batch(&server, &line).with_code(0);
    assert_eq!(second.counts(&["listed", "skipped", "ok", "not_done"]), [12, 12, 0, 0]);
    assert_eq!(server.keys("out/"), made);
}

#[test]
fn key_that_urls_cannot_name_is_told_and_costs_no_other() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    server.put("in/../b.png", &image());
    let ended = place.batch(&server, &["s3://pictures/in", "--out", "s3://pictures/out"]).with_code(1);
    assert!(ended.stderr.contains("a key with a part `.` or `..` cannot be asked for"), "{}", ended.stderr);
    assert_whole(&server.keys("out/"), &["out/a.png".into()]);
}

#[test]
fn replaced_object_and_other_wishes_are_done_again_and_leave_nothing_stale() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    server.put("in/b.png", &image());
    let line = ["s3://pictures/in", "--out", "s3://pictures/out", "--json"];
    place.batch(&server, &line).with_code(0);
    server.put("in/b.png", &fixture("images/plain.jpg"));
    let second = place.batch(&server, &line).with_code(0);
    assert_eq!(second.counts(&["skipped", "ok"]), [1, 1]);
    assert_eq!(assert_true(&mut server, "out/"), 2);
    let third = place.batch(&server, &[&line[..], &["--no-tensors"]].concat()).with_code(0);
    assert_eq!(third.counts(&["skipped", "ok"]), [0, 2]);
    let made = server.keys("out/");
    let endings: Vec<_> = sets(&made).into_values().collect();
    assert_eq!(endings, [[".png", ".report.json"], [".png", ".report.json"]]);
}

#[test]
fn own_artifacts_are_never_inputs() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("a.png", &image());
    let line = ["s3://pictures", "--out", "s3://pictures/out", "--json"];
    place.batch(&server, &line).with_code(0);
    let second = place.batch(&server, &line).with_code(0);
    assert_eq!(second.counts(&["listed", "skipped"]), [1, 1]);
    assert!(second.stderr.contains("3 below s3://pictures/out/ are where artifacts go"), "{}", second.stderr);
    for out in ["s3://pictures", "s3://pictures/in/"] {
        let refused = place.batch(&server, &["s3://pictures/in", "--out", out]).with_code(2);
        assert!(refused.stderr.contains("could take one for the other"), "{}", refused.stderr);
    }
}

#[test]
fn server_that_the_configuration_names_is_reached_with_the_keys_of_its_profile() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    let port = server.port();
    let config = format!(
        "[store]\nendpoint = \"http://127.0.0.1:{port}\"\nregion = \"garage\"\nprofile = \"lab\"\nrequests = 2\n"
    );
    place.write("refmill.toml", &config);
    place.write(".aws/credentials", format!("[lab]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"));
    let line = ["s3://pictures/in", "--out", "s3://pictures/out", "--config", "refmill.toml"];
    let refused = ended(place.command(&line).output().unwrap()).with_code(2);
    assert!(refused.stderr.contains("`store.allow_http` allows it"), "{}", refused.stderr);
    place.write("refmill.toml", config + "allow_http = true\n");
    ended(place.command(&line).output().unwrap()).with_code(0);
    assert_whole(&server.keys("out/"), &["out/a.png".into()]);
}

#[test]
fn object_that_refmill_did_not_make_is_replaced_by_force_alone() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    server.put("out/a.png.safetensors", &fixture("bad/html.jpg"));
    let line = ["s3://pictures/in", "--out", "s3://pictures/out"];
    let refused = place.batch(&server, &line).with_code(3);
    assert!(refused.stderr.contains("an object is there that refmill did not make"), "{}", refused.stderr);
    assert_eq!(server.get("out/a.png.safetensors"), fs::read(fixture("bad/html.jpg")).unwrap());
    assert!(!server.keys("out/").contains(&"out/a.png.report.json".into()), "no report, so it is not done");
    place.batch(&server, &[&line[..], &["--force"]].concat()).with_code(0);
    assert_whole(&server.keys("out/"), &["out/a.png".into()]);
    assert_eq!(assert_true(&mut server, "out/"), 1);
}

#[test]
fn large_artifact_goes_in_parts_at_a_bounded_rate() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    let recipe = "name = \"large\"\n[[tensor]]\nname = \"t\"\nfit = \"stretch\"\nsize = 1536\n\
                  filter = \"bicubic\"\nlayout = \"nchw\"\ndtype = \"f32\"\nrange = [0.0, 1.0]\n";
    place.write("recipe.toml", recipe);
    let line = ["s3://pictures/in", "--out", "s3://pictures/out", "--s3-rate", "50000000"];
    place.batch(&server, &line).with_code(0);
    let (_, etag) = server.list("out/a.png.safetensors").remove(0);
    assert!(etag.contains("-5"), "27 MiB of tensor and 9 of mask are five parts: {etag}");
    assert_eq!(assert_true(&mut server, "out/"), 1);
}

#[test]
fn rejected_image_is_listed_and_a_retry_takes_the_list() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/good.png", &image());
    server.put("in/bad.png", &fixture("bad/html.jpg"));
    let first = place.batch(&server, &["s3://pictures/in", "--out", "s3://pictures/out", "--json"]).with_code(1);
    assert_eq!(first.counts(&["ok", "rejected"]), [1, 1]);
    let line: Value = serde_json::from_str(&fs::read_to_string(place.path("refmill-failures.jsonl")).unwrap()).unwrap();
    assert_eq!((&line["input"], &line["key"]), (&"s3://pictures/in/".into(), &"bad.png".into()));
    assert_eq!(line["error"]["code"], "not_an_image");
    let again = place.batch(&server, &["s3://pictures/in", "--out", "s3://pictures/out", "--json"]).with_code(1);
    assert_eq!(again.counts(&["skipped", "skipped_rejected"]), [2, 1], "a second batch ends as the first did");
    let listed = fs::read_to_string(place.path("refmill-failures.jsonl")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap(), line, "and lists the same");
    let retry = ["--retry", "refmill-failures.jsonl", "--out", "s3://pictures/out", "--json"];
    assert_eq!(place.batch(&server, &retry).with_code(3).counts(&["listed", "rejected"]), [1, 1]);
    server.put("in/bad.png", &image());
    assert_eq!(place.batch(&server, &retry).with_code(0).counts(&["listed", "ok"]), [1, 1]);
    assert_eq!(fs::read_to_string(place.path("refmill-failures.jsonl")).unwrap(), "");
    place.batch(&server, &retry).with_code(0);
    assert_eq!(assert_true(&mut server, "out/"), 2);
}
