//! What a batch does when the server, the network or the objects are not what they should be.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::place::{Place, assert_true, assert_whole, ended, fixture, image, start};
use crate::server::{BUCKET, Proxy, Server};

const LINE: [&str; 3] = ["s3://pictures/in", "--out", "s3://pictures/out"];

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
fn server_that_says_no_is_told_before_any_work() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    let mut command = place.on(server.port(), &LINE);
    let wrong = ended(command.env("AWS_SECRET_ACCESS_KEY", "wrong").output().unwrap()).with_code(2);
    assert!(wrong.stderr.contains("the server says 403"), "{}", wrong.stderr);
    assert!(!wrong.stderr.contains("wrong\""), "no secret is told: {}", wrong.stderr);
    let mut command = place.on(server.port(), &LINE);
    let nobody = ended(command.env_remove("AWS_ACCESS_KEY_ID").output().unwrap()).with_code(2);
    assert!(nobody.stderr.contains("no S3 credentials"), "{}", nobody.stderr);
    let missing = place.batch(&server, &["s3://nothere/in", "--out", "s3://pictures/out"]).with_code(2);
    assert!(missing.stderr.contains("cannot list s3://nothere"), "{}", missing.stderr);
    let missing = place.batch(&server, &["s3://pictures/in", "--out", "s3://nothere/out"]).with_code(2);
    assert!(missing.stderr.contains("cannot list s3://nothere"), "{}", missing.stderr);
    let empty = place.batch(&server, &["s3://pictures/none", "--out", "s3://pictures/out"]).with_code(3);
    assert!(empty.stderr.contains("0 ok"), "{}", empty.stderr);
    assert!(server.keys("out/").is_empty());
    server.kill();
    let gone = place.batch(&server, &[&LINE[..], &["--s3-retry", "1"]].concat()).with_code(4);
    assert!(gone.stderr.contains("cannot list"), "{}", gone.stderr);
}

#[test]
fn profile_gives_the_keys() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    let keys = format!(
        "[lab]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        crate::server::KEY,
        crate::server::SECRET
    );
    place.write(".aws/credentials", keys);
    place.write(
        ".aws/config",
        format!("[profile lab]\nregion = garage\nendpoint_url = http://127.0.0.1:{}\n", server.port()),
    );
    let mut command = place.command(&[&LINE[..], &["--s3-allow-http"]].concat());
    ended(command.env("AWS_PROFILE", "lab").output().unwrap()).with_code(0);
    let mut command = place.command(&LINE);
    let refused = ended(command.env("AWS_PROFILE", "lab").output().unwrap()).with_code(2);
    assert!(refused.stderr.contains("--s3-allow-http or `store.allow_http` allows it"), "{}", refused.stderr);
}

/// Runs a batch over three objects; the request for the second one is held until `meanwhile` has happened.
fn held(server: &mut Server, place: &Place, meanwhile: impl FnOnce(&mut Server)) -> crate::place::Ended {
    ["a", "held", "z"].iter().for_each(|name| server.put(&format!("in/{name}.png"), &image()));
    let hold = ["--hold", "GET /pictures/in/held.png", &place.text("seen"), &place.text("go")];
    let proxy = Proxy::start(server.port(), &hold);
    let mut command = place.on(proxy.port, &LINE);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let batch = command.spawn().unwrap();
    until("the request", || place.path("seen").exists());
    meanwhile(server);
    place.write("go", "");
    ended(batch.wait_with_output().unwrap())
}

#[test]
fn object_that_goes_between_listing_and_reading_is_told_and_is_no_mark() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    let ended = held(&mut server, &place, |server| server.delete("in/held.png")).with_code(1);
    assert!(ended.stderr.contains("cannot read s3://pictures/in/held.png: it is no longer there"), "{}", ended.stderr);
    assert_whole(&server.keys("out/"), &["out/a.png".into(), "out/z.png".into()]);
}

#[test]
fn object_that_is_replaced_between_listing_and_reading_is_done_by_the_next_batch() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    let other = fixture("images/plain.jpg");
    let ended = held(&mut server, &place, |server| server.put("in/held.png", &other)).with_code(1);
    assert!(ended.stderr.contains("it was replaced since it was listed"), "{}", ended.stderr);
    let next = place.batch(&server, &[&LINE[..], &["--json"]].concat()).with_code(0);
    assert_eq!(next.counts(&["skipped", "ok"]), [2, 1]);
    assert_eq!(assert_true(&mut server, "out/"), 3);
}

#[test]
fn server_that_is_silent_is_given_up_after_its_time() {
    let Some(server) = Server::start() else { return };
    let place = Place::new();
    let proxy = Proxy::start(server.port(), &["--mute"]);
    let line = [&LINE[..], &["--s3-timeout", "1", "--s3-retry", "0"]].concat();
    let ended = ended(place.on(proxy.port, &line).output().unwrap()).with_code(4);
    assert!(ended.stderr.contains("cannot list s3://pictures: no answer in time"), "{}", ended.stderr);
}

#[test]
fn object_that_never_comes_costs_no_other_and_is_tried_again_by_the_next_batch() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    ["a", "held", "z"].iter().for_each(|name| server.put(&format!("in/{name}.png"), &image()));
    let hold = ["--hold", "GET /pictures/in/held.png", &place.text("seen"), &place.text("go")];
    let proxy = Proxy::start(server.port(), &hold);
    let line = [&LINE[..], &["--s3-timeout", "1", "--s3-retry", "0"]].concat();
    let ended = ended(place.on(proxy.port, &line).output().unwrap()).with_code(1);
    assert!(ended.stderr.contains("held.png: no answer in time"), "{}", ended.stderr);
    assert_whole(&server.keys("out/"), &["out/a.png".into(), "out/z.png".into()]);
    place.batch(&server, &LINE).with_code(0);
    assert_eq!(assert_true(&mut server, "out/"), 3);
}

/// A CA and a certificate by it for 127.0.0.1.
fn certificates(place: &Place) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(place.path("")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    place.write("ext", "subjectAltName=IP:127.0.0.1\n");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ours"));
    openssl(&format!("req {key} -keyout tls.key -out tls.csr -subj /CN=store"));
    openssl("x509 -req -in tls.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out tls.pem -days 2 -extfile ext");
}

#[test]
fn certificate_of_an_own_ca_is_taken_where_the_ca_is_named() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.put("in/a.png", &image());
    certificates(&place);
    let proxy = Proxy::start(server.port(), &["--tls", &place.text("tls.pem"), &place.text("tls.key")]);
    let endpoint = format!("https://127.0.0.1:{}", proxy.port);
    let run = |more: &[&str]| {
        let mut command =
            place.command(&[&LINE[..], &["--s3-endpoint", &endpoint, "--s3-region", "garage"], more].concat());
        command.env("AWS_ACCESS_KEY_ID", crate::server::KEY).env("AWS_SECRET_ACCESS_KEY", crate::server::SECRET);
        ended(command.output().unwrap())
    };
    let refused = run(&[]).with_code(2);
    assert!(refused.stderr.contains("certificate"), "{}", refused.stderr);
    let empty = place.write("empty.pem", "");
    let refused = run(&["--s3-ca", empty.to_str().unwrap()]).with_code(2);
    assert!(refused.stderr.contains("no certificate in PEM"), "{}", refused.stderr);
    run(&["--s3-ca", "ca.pem"]).with_code(0);
    assert_eq!(assert_true(&mut server, "out/"), 1);
}

#[test]
fn server_killed_under_a_batch_is_waited_for() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.copies("in/", 60, &image());
    let mut batch = start(place.on(server.port(), &LINE));
    until("the first artifacts", || server.keys("out/").len() > 9);
    server.kill();
    thread::sleep(Duration::from_millis(300));
    server.restart();
    assert_eq!(batch.wait().unwrap().code(), Some(0));
    let names: Vec<String> = (0..60).map(|number| format!("out/{number:05}.png")).collect();
    assert_whole(&server.keys("out/"), &names);
    assert_eq!(assert_true(&mut server, "out/"), 60);
}

#[test]
fn server_killed_for_good_leaves_no_report_without_its_artifacts_and_the_next_batch_ends_the_work() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    server.copies("in/", 60, &image());
    let line = [&LINE[..], &["--s3-retry", "0"]].concat();
    let mut batch = start(place.on(server.port(), &line));
    until("the first artifacts", || server.keys("out/").len() > 9);
    server.kill();
    let code = batch.wait().unwrap().code();
    assert!(matches!(code, Some(1 | 3 | 4)), "{code:?}");
    server.restart();
    let reports = assert_true(&mut server, "out/");
    assert!(reports < 60, "it was killed in the middle");
    let failures = Path::new("refmill-failures.jsonl");
    assert!(place.path(failures.to_str().unwrap()).exists());
    let next = place.batch(&server, &[&LINE[..], &["--json"]].concat()).with_code(0);
    let [skipped, ok]: [u64; 2] = next.counts(&["skipped", "ok"]).try_into().unwrap();
    assert_eq!((skipped, ok), (reports as u64, 60 - reports as u64), "{BUCKET}");
    assert_eq!(assert_true(&mut server, "out/"), 60);
}
