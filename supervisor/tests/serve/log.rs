//! What a server logs for programs.

use serde_json::Value;

use super::*;

/// Every line of the log.
fn lines(place: &Place) -> Vec<Value> {
    place
        .log()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

fn job<'a>(lines: &'a [Value], image: &str) -> &'a Value {
    let of = |line: &&Value| line["span"]["image"].as_str().is_some_and(|name| name.ends_with(image));
    lines.iter().filter(of).find(|line| line["outcome"].is_string()).unwrap()
}

#[test]
fn log_for_programs_has_each_job_with_its_verdict_and_its_stages_in_its_span() {
    let place = Place::new();
    submit(&place, &["a.png"]);
    fs::write(place.path("b\n.png"), "no image at all").unwrap();
    place.refmill(&["submit", "b\n.png"]);
    assert_eq!(drain(&place, &["--log-format", "json"]), Some(1));
    let lines = lines(&place);
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["message"].is_string()), "{lines:?}");
    let sound = job(&lines, "a.png");
    let said = ["job", "tenant", "slot", "delivery"].map(|name| !sound["span"][name].is_null());
    assert_eq!((said, &sound["outcome"], &sound["level"]), ([true; 4], &"ok".into(), &"INFO".into()));
    let reached = ["intake_us", "open_us", "decode_us", "tensors_us", "publish_us", "taken_us"];
    let times: Vec<Option<u64>> = reached.iter().map(|name| sound[name].as_u64()).collect();
    assert!(times.iter().all(Option::is_some), "{sound}");
    let traces = [&sound, &job(&lines, "b\n.png")].map(|line| line["span"]["trace_id"].as_str().unwrap());
    assert!(
        traces[0] != traces[1] && traces.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()))
    );
    let bad = job(&lines, "b\n.png");
    assert_eq!((&bad["code"], &bad["blame"], &bad["level"]), (&"not_an_image".into(), &"input".into(), &"WARN".into()));
    assert!(bad.get("decode_us").is_none() && bad.get("publish_us").is_some(), "{bad}");
}

#[test]
fn every_attempt_at_a_job_has_the_same_trace_id() {
    let place = Place::new();
    fs::write(place.path("a.crash"), "how the stand-in is to behave").unwrap();
    place.refmill(&["submit", "--no-image", "--no-tensors", "a.crash"]);
    let worker = fake_worker();
    drain(&place, &["--log-format", "json", "--sandbox=off", "--worker", worker.to_str().unwrap()]);
    let lines = lines(&place);
    let spans = lines
        .iter()
        .filter(|line| line["span"]["image"].as_str().is_some_and(|name| name.ends_with("a.crash")))
        .map(|line| &line["span"]);
    let attempts: std::collections::BTreeSet<(u64, &str)> =
        spans.map(|span| (span["delivery"].as_u64().unwrap(), span["trace_id"].as_str().unwrap())).collect();
    let traces: std::collections::BTreeSet<&str> = attempts.iter().map(|attempt| attempt.1).collect();
    assert!(attempts.len() > 1 && traces.len() == 1, "{attempts:?}");
}

#[test]
fn log_for_programs_has_the_error_that_ends_the_server() {
    let place = Place::new();
    fs::write(place.path("refmill.db"), "no queue").unwrap();
    let mut server = place.serve(&["--log-format", "json"]);
    assert_eq!(server.wait().unwrap().code(), Some(2));
    let last = lines(&place).pop().unwrap();
    assert_eq!((&last["level"], last["message"].as_str().unwrap().starts_with("refmill: ")), (&"ERROR".into(), true));
}

#[test]
fn people_are_told_each_job_once_and_not_beside_reports_on_standard_output() {
    let place = Place::new();
    submit(&place, &["a.png", "b.png"]);
    assert_eq!(drain(&place, &[]), Some(0));
    assert_eq!(place.log().lines().filter(|line| line.ends_with(".png: ok")).count(), 2);
    let place = Place::new();
    submit(&place, &["a.png"]);
    assert_eq!(drain(&place, &["--json"]), Some(0));
    assert!(!place.log().contains("a.png"), "{}", place.log());
}
