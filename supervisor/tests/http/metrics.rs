//! `/metrics`, and what is made of it: the list, the alerts, the dashboard.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use refmill_supervisor::telemetry::catalogue::{ALL, Kind};

use crate::client::{Server, exchange, request, wait_for};
use crate::served::Place;

const TOKENS: &str = "[http]\nlisten = \"127.0.0.1:0\"\n[[http.token]]\nrole = \"metrics\"\nvariable = \"SCRAPER\"\n\
                      [[http.token]]\nrole = \"operator\"\nvariable = \"OPERATOR\"\n\
                      [[http.token]]\nrole = \"tenant\"\nvariable = \"TENANT\"\n";
const SCRAPER: &str = "scraper-0123456789";
const OPERATOR: &str = "operator-0123456789";
const TENANT: &str = "tenant-0123456789";

/// A server that has ended one sound job, and one that was no image.
fn busy() -> Server {
    let place = Place::new();
    place.image("a.png");
    std::fs::write(place.path("b.png"), "no image").unwrap();
    place.refmill(&["submit", "--recipe", "clip", "a.png", "b.png"]);
    let server = Server::start_in(place, TOKENS, &[("SCRAPER", SCRAPER), ("OPERATOR", OPERATOR), ("TENANT", TENANT)]);
    // A job's figures come after the queue has heard of it.
    wait_for("both jobs", || scrape(&server).contains("refmill_job_seconds_count 2\n").then_some(()));
    server
}

fn scrape(server: &Server) -> String {
    let answer = server.get("/metrics", SCRAPER);
    assert_eq!(answer.status, 200, "{answer:?}");
    String::from_utf8(answer.body).unwrap()
}

/// The value of a sample, by its whole name with its labels.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == sample));
    line.unwrap_or_else(|| panic!("no {sample} in\n{text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// `promtool` with this on its standard input; none where it is missing.
fn promtool(arguments: &[&str], input: &str) -> Option<()> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(root()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: promtool is missing: apt-get install prometheus");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}\n{input}");
    Some(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Every word that begins as our figures do, without the ending of a counter's or a histogram's samples.
fn figures(text: &str) -> BTreeSet<String> {
    let words = text.split(|each: char| !(each.is_ascii_alphanumeric() || each == '_'));
    let base = |word: &str| {
        let endings = ["_total", "_bucket", "_sum", "_count"];
        endings.iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word).to_owned()
    };
    words.filter(|word| word.starts_with("refmill_")).map(base).collect()
}

fn listed() -> BTreeSet<String> {
    ALL.iter().map(|figure| figure.name.to_owned()).collect()
}

#[test]
fn figures_are_for_scrapers_and_operators_alone() {
    let server = busy();
    let asked = ["", TENANT, SCRAPER, OPERATOR].map(|token| server.get("/metrics", token).status);
    assert_eq!(asked, [401, 403, 200, 200]);
}

#[test]
fn jobs_stages_findings_and_the_queue_are_counted() {
    let server = busy();
    let text = scrape(&server);
    let samples = [
        ("refmill_jobs_total{tenant=\"default\",outcome=\"ok\"}", 1.0),
        ("refmill_jobs_total{tenant=\"default\",outcome=\"reject\"}", 1.0),
        ("refmill_rejects_total{code=\"not_an_image\",blame=\"input\"}", 1.0),
        ("refmill_stage_seconds_count{stage=\"intake\"}", 2.0),
        ("refmill_stage_seconds_count{stage=\"decode\"}", 1.0),
        ("refmill_stage_seconds_count{stage=\"publish\"}", 2.0),
        ("refmill_job_seconds_count", 2.0),
        ("refmill_job_wait_seconds_count", 2.0),
        ("refmill_queue_jobs{state=\"done\"}", 1.0),
        ("refmill_queue_jobs{state=\"dead\"}", 1.0),
        ("refmill_queue_jobs{state=\"queued\"}", 0.0),
        ("refmill_input_bytes_total", 143.0 + 8.0),
        ("refmill_uploads_total", 0.0),
        ("refmill_worker_recycles_total", 0.0),
    ];
    for (sample, expected) in samples {
        assert!((value(&text, sample) - expected).abs() < 0.5, "{sample} in\n{text}");
    }
    assert!(value(&text, "refmill_artifact_bytes_total{kind=\"tensors\"}") > 100_000.0);
}

#[test]
fn what_is_exposed_is_what_is_listed_with_its_kind() {
    let server = busy();
    let text = scrape(&server);
    let exposed = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned);
    let exposed: BTreeSet<String> = exposed.map(|line| line.replace("_total ", " ")).collect();
    let listed: BTreeSet<String> =
        ALL.iter().map(|figure| format!("{} {}", figure.name, figure.kind.as_str())).collect();
    // What has labels is exposed from its first sample on, and nothing was tried again here.
    assert_eq!(exposed.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(listed.difference(&exposed).collect::<Vec<_>>(), ["refmill_retries counter"]);
    assert!(ALL.iter().any(|figure| figure.kind == Kind::Histogram));
}

#[test]
fn prometheus_finds_nothing_wrong_with_the_text() {
    let server = busy();
    promtool(&["check", "metrics"], &scrape(&server));
}

#[test]
fn openmetrics_is_given_where_it_is_asked_for() {
    let server = busy();
    let line = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0";
    let asked = String::from_utf8(request("GET /metrics", SCRAPER, "", b"")).unwrap();
    let answer = exchange(server.connect(), asked.replacen("GET /metrics HTTP/1.1", line, 1).as_bytes());
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"), "{}", answer.head);
    assert!(String::from_utf8(answer.body).unwrap().ends_with("# EOF\n"));
}

#[test]
fn alerts_are_sound_and_fire_when_they_should() {
    promtool(&["check", "rules", "deploy/prometheus/rules.yml"], "");
    promtool(&["test", "rules", "deploy/prometheus/rules_test.yml"], "");
}

#[test]
fn alerts_and_dashboard_ask_for_figures_that_are_there() {
    let (rules, dashboard) =
        (figures(&read("deploy/prometheus/rules.yml")), figures(&read("deploy/grafana/refmill.json")));
    assert!(rules.len() > 8 && dashboard.len() > 15, "{rules:?} {dashboard:?}");
    let all: BTreeSet<String> = rules.union(&dashboard).cloned().collect();
    assert_eq!(all.difference(&listed()).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn dashboard_is_what_its_maker_writes_and_its_expressions_can_be_read() {
    let python = std::env::var_os("REFMILL_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let made = Command::new(python).arg(root().join("deploy/grafana/make.py")).arg("--check").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let dashboard: serde_json::Value = serde_json::from_str(&read("deploy/grafana/refmill.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 20);
    // promtool reads expressions in rules only.
    let rules: String = expressions
        .iter()
        .enumerate()
        .map(|(number, expression)| {
            let expression = serde_json::to_string(expression).unwrap();
            format!("  - {{record: \"refmill:panel{number}\", expr: {expression}}}\n")
        })
        .collect();
    let file = tempfile::NamedTempFile::with_suffix(".yml").unwrap();
    std::fs::write(file.path(), format!("groups:\n- name: panels\n  rules:\n{rules}")).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()], "");
}
