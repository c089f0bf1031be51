//! Every command as a user types it: what it prints, and how it ends.

use crate::support::fixtures::{expected, fixture, repository};
use crate::support::running::Ended;
use crate::support::scratch::{Scratch, file_name};

fn refmill(arguments: &[&str]) -> Ended {
    Scratch::new().refmill(arguments)
}

/// The arguments that name a fixture.
fn run(scratch: &Scratch, fixtures: &[&str], options: &[&str]) -> Ended {
    let paths: Vec<_> = fixtures.iter().map(|name| fixture(name)).collect();
    let inputs = paths.iter().map(|path| path.to_str().unwrap());
    scratch.run(inputs.chain(options.iter().copied()))
}

#[test]
fn exit_is_0_where_every_image_was_processed() {
    run(&Scratch::new(), &["images/plain.jpg", "defects/icc_broken.png"], &["--recipe", "clip"]).with_code(0);
}

#[test]
fn exit_is_1_where_some_failed_and_the_others_are_processed() {
    let scratch = Scratch::new();
    let inputs = ["images/plain.jpg", "bad/html.jpg", "images/p3.png", "bad/empty.jpg", "images/plain.bmp"];
    let ended = run(&scratch, &inputs, &["--no-image", "--recipe", "clip", "--json", "--workers", "1"]).with_code(1);
    let outcomes: Vec<bool> = ended.reports().iter().map(|report| report.error.is_none()).collect();
    assert_eq!(outcomes, [true, false, true, false, true]);
    let tensors = scratch.names("out").into_iter().filter(|name| name.ends_with(".safetensors"));
    assert_eq!(tensors.collect::<Vec<_>>(), ["p3.safetensors", "plain.bmp.safetensors", "plain.jpg.safetensors"]);
}

#[test]
fn exit_is_3_where_no_image_was_processed() {
    run(&Scratch::new(), &["bad/html.jpg", "bad/empty.jpg"], &[]).with_code(3);
}

#[test]
fn exit_is_3_where_nothing_matches_and_the_glob_is_named() {
    let ended = Scratch::new().run(["*.heic"]).with_code(3);
    assert!(ended.stderr.contains("glob `*.heic` matches nothing"), "{}", ended.stderr);
}

#[test]
fn missing_file_is_named_and_costs_no_other() {
    let ended = run(&Scratch::new(), &["images/plain.jpg"], &["nowhere.jpg", "--recipe", "clip"]).with_code(1);
    assert!(
        ended.stderr.contains("nowhere.jpg: unreadable: cannot read nowhere.jpg: No such file"),
        "{}",
        ended.stderr
    );
}

#[test]
fn every_bad_fixture_is_told_by_name_and_code_and_leaves_a_report_alone() {
    let scratch = Scratch::new();
    let mut wanted = expected("bad");
    // A worker built without a feature refuses its files for that reason.
    wanted.retain(|expected| expected.answer.get("needs").is_none());
    let inputs = wanted.iter().map(|expected| expected.path.to_str().unwrap());
    let ended = scratch.run(inputs).with_code(3);
    let told = |path: &str, code: &str| ended.stderr.contains(&format!("{path}: {code}: "));
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|it| !told(it.path.to_str().unwrap(), it.answer["code"].as_str().unwrap()))
        .map(|it| file_name(it.path.to_str().unwrap()))
        .collect();
    assert_eq!((wanted.len(), missing), (14, Vec::new()), "{}", ended.stderr);
    assert_eq!(scratch.names("out").iter().filter(|name| name.ends_with(".report.json")).count(), 14);
    assert_eq!(scratch.names("out").len(), 14);
}

#[test]
fn limit_that_does_not_hold_is_told_with_value_and_limit() {
    let ended = run(&Scratch::new(), &["bad/bomb.png"], &[]).with_code(3);
    let told = "bomb.png: over_limit: image area in pixels is 3600000000, the limit is 100000000";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
}

#[test]
fn quiet_run_says_failures_alone() {
    let ended = run(&Scratch::new(), &["images/plain.jpg", "bad/html.jpg"], &["--quiet", "--recipe", "clip"]);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].contains("html.jpg: not_an_image: "), "{lines:?}");
    assert_eq!(ended.stdout, b"");
}

#[test]
fn unknown_flag_is_a_usage_error() {
    let ended = refmill(&["run", "a.jpg", "--fast"]).with_code(2);
    assert!(ended.stderr.contains("unexpected argument '--fast'"), "{}", ended.stderr);
}

#[test]
fn unknown_command_is_a_usage_error() {
    refmill(&["mill"]).with_code(2);
}

#[test]
fn run_without_inputs_is_a_usage_error() {
    refmill(&["run"]).with_code(2);
}

#[test]
fn unknown_limit_is_named_with_the_known_ones() {
    let ended = refmill(&["run", "a.jpg", "--limit", "pixel=4"]).with_code(2);
    assert!(ended.stderr.starts_with("refmill: limit `pixel` is not known; the keys are "), "{}", ended.stderr);
}

#[test]
fn limit_without_a_number_is_named() {
    let ended = refmill(&["run", "a.jpg", "--limit", "pixels=many"]).with_code(2);
    assert!(ended.stderr.contains("limit `pixels` is `many`, it takes a whole number"), "{}", ended.stderr);
}

#[test]
fn unknown_recipe_is_named_with_the_known_ones() {
    let ended = refmill(&["run", "a.jpg", "--recipe", "sdxxl"]).with_code(2);
    let told = "refmill: recipe `sdxxl` is neither built in (sdxl, sd15, flux, clip) nor a .toml file that exists\n";
    assert_eq!(ended.stderr, told);
}

const BAD_RECIPE: &str = "name = \"x\"\n\n[[tensor]]\nname = \"a\"\nfit = \"cove\"\n";
const BAD_RECIPE_TOLD: &str = "\
refmill: bad.toml:5:7: unknown variant `cove`, expected one of `cover`, `contain`, `stretch`, `long_side`
  |
5 | fit = \"cove\"
  |       ^^^^^^
";

#[test]
fn bad_recipe_file_is_shown_with_line_column_and_caret() {
    let scratch = Scratch::new();
    scratch.write("bad.toml", BAD_RECIPE);
    let ended = scratch.run(["a.jpg", "--recipe", "bad.toml"]).with_code(2);
    assert_eq!(ended.stderr, BAD_RECIPE_TOLD);
}

#[test]
fn recipe_check_shows_the_same_error() {
    let scratch = Scratch::new();
    scratch.write("bad.toml", BAD_RECIPE);
    assert_eq!(scratch.refmill(["recipe", "check", "bad.toml"]).with_code(2).stderr, BAD_RECIPE_TOLD);
}

#[test]
fn recipe_check_sums_up_a_sound_file() {
    let scratch = Scratch::new();
    let shown = scratch.refmill(["recipe", "show", "sdxl"]).with_code(0);
    scratch.write("mine.toml", &shown.stdout);
    let summary = scratch.refmill(["recipe", "check", "mine.toml"]).with_code(0);
    assert!(summary.text().starts_with("sdxl\n  controlnet_hint  cover 1024x1024 "), "{}", summary.text());
}

#[test]
fn recipe_list_names_the_four() {
    let ended = refmill(&["recipe", "list"]).with_code(0);
    let names: Vec<&str> = ended.text().lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(names, ["sdxl", "sd15", "flux", "clip"]);
}

#[test]
fn recipe_show_of_an_unknown_name_is_a_usage_error() {
    let ended = refmill(&["recipe", "show", "nope"]).with_code(2);
    assert_eq!(ended.stderr, "refmill: recipe `nope` is not built in; there are sdxl, sd15, flux, clip\n");
}

#[test]
fn schema_is_the_published_one() {
    let published = std::fs::read_to_string(repository("docs/report.schema.json")).unwrap();
    let own = refmill(&["schema"]).with_code(0);
    assert!(own.text() == published, "run `refmill schema > docs/report.schema.json`");
}

#[test]
fn help_names_commands_examples_and_exit_codes() {
    let ended = refmill(&["--help"]).with_code(0);
    let lacks = |word: &&str| !ended.text().contains(*word);
    let words = ["run ", "repair ", "recipe ", "schema ", "Examples:", "Exit codes:"];
    assert_eq!(words.into_iter().filter(lacks).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn version_is_the_packages() {
    assert_eq!(refmill(&["--version"]).with_code(0).text(), concat!("refmill ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn missing_worker_is_told_in_one_sentence() {
    let ended = run(&Scratch::new(), &["images/plain.jpg"], &["--worker", "/no/such/worker"]).with_code(4);
    let told = "refmill: worker program /no/such/worker does not exist; build it, or name another with --worker PATH\n";
    assert_eq!(ended.stderr, told);
}

#[test]
fn program_that_is_no_worker_is_told_in_one_sentence() {
    let ended = run(&Scratch::new(), &["images/plain.jpg"], &["--worker", "/bin/false"]).with_code(4);
    let told = "refmill: no worker could be started: worker exited with 1 before it was ready\n";
    assert_eq!(ended.stderr, told);
}

#[test]
fn strict_run_refuses_a_defect_and_names_it() {
    let inputs = ["images/plain.jpg", "defects/icc_broken.png"];
    let ended = run(&Scratch::new(), &inputs, &["--recipe", "clip", "--strict"]).with_code(1);
    assert!(ended.stderr.contains("icc_broken.png: policy_reject: "), "{}", ended.stderr);
    assert!(ended.stderr.contains("icc_corrupt"), "{}", ended.stderr);
}

#[test]
fn policy_decides_one_code_against_strict() {
    let options = ["--recipe", "clip", "--strict", "--policy", "icc_corrupt=repair"];
    run(&Scratch::new(), &["defects/icc_broken.png"], &options).with_code(0);
}

#[test]
fn policy_for_an_unknown_finding_is_a_usage_error() {
    let ended = refmill(&["run", "a.jpg", "--policy", "icc_bad=reject"]).with_code(2);
    assert!(ended.stderr.starts_with("refmill: --policy names `icc_bad`, which is no finding"), "{}", ended.stderr);
}

#[test]
fn graphics_card_that_is_not_there_is_told() {
    let gpu = "GPU-00000000-0000-0000-0000-000000000000";
    let image = fixture("images/plain.jpg");
    let ended = refmill(&["run", image.to_str().unwrap(), "--gpu", gpu]);
    assert!(matches!(ended.code, Some(2 | 4)), "{ended:?}");
    assert!(ended.stderr.starts_with("refmill: "), "{}", ended.stderr);
}

#[test]
fn repair_writes_image_and_report_where_it_is_told() {
    let scratch = Scratch::new();
    scratch.copy("a.jpg", "images/p3_orientation6.jpg");
    scratch.refmill(["repair", "a.jpg", "--convert", "--png", "fixed.png", "--report", "fixed.json"]).with_code(0);
    assert!(scratch.read("fixed.png").starts_with(b"\x89PNG"));
    let report = scratch.report("fixed.json");
    assert_eq!(report.artifacts.len(), 1);
    assert_eq!(report.artifacts[0].path, "fixed.png");
    assert!(report.tensors.is_empty());
}

#[test]
fn repair_of_a_bad_file_removes_the_image_of_an_earlier_repair() {
    let scratch = Scratch::new();
    scratch.copy("a.jpg", "images/plain.jpg");
    let repair = ["repair", "a.jpg", "--convert", "--png", "fixed.png", "--report", "fixed.json"];
    scratch.refmill(repair).with_code(0);
    scratch.copy("a.jpg", "bad/truncated.jpg");
    let ended = scratch.refmill(repair).with_code(3);
    assert!(ended.stderr.contains("a.jpg: truncated: "), "{}", ended.stderr);
    assert!(!scratch.exists("fixed.png"));
    assert_eq!(scratch.report("fixed.json").error.unwrap().code.as_str(), "truncated");
    assert!(scratch.exists("a.jpg"));
}

#[test]
fn repair_writes_the_image_to_standard_output() {
    let scratch = Scratch::new();
    scratch.copy("a.jpg", "images/plain.jpg");
    let ended = scratch.refmill(["repair", "a.jpg", "--convert", "--png", "-"]).with_code(0);
    assert!(ended.stdout.starts_with(b"\x89PNG"));
}

#[test]
fn repair_onto_its_own_input_is_refused() {
    let scratch = Scratch::new();
    scratch.copy("a.png", "images/p3.png");
    let before = scratch.read("a.png");
    let ended = scratch.refmill(["repair", "a.png", "--convert", "--png", "./a.png"]).with_code(2);
    assert!(ended.stderr.contains("./a.png is named twice"), "{}", ended.stderr);
    assert_eq!(scratch.read("a.png"), before);
}

#[test]
fn repair_needs_to_be_told_how() {
    refmill(&["repair", "a.jpg", "--png", "b.png"]).with_code(2);
}

#[test]
fn standard_output_for_two_inputs_is_refused() {
    let inputs = ["images/plain.jpg", "images/p3.png"];
    let ended = run(&Scratch::new(), &inputs, &["--out", "-"]).with_code(2);
    assert_eq!(ended.stderr, "refmill: --out - takes one input, 2 are named\n");
    assert_eq!(ended.stdout, b"");
}

#[test]
fn control_characters_in_a_name_do_not_reach_the_terminal() {
    let scratch = Scratch::new();
    scratch.copy("a\u{1b}[31m.jpg", "bad/html.jpg");
    let ended = scratch.run(["a\u{1b}[31m.jpg"]).with_code(3);
    assert!(ended.stderr.contains("a?[31m.jpg: not_an_image") && !ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
}
