//! From an image to its artifacts: what is in them, and that they are the same every time.

use std::collections::BTreeSet;

use refmill::failure::Code;
use refmill::report::{ArtifactKind, Outcome, Report};
use safetensors::Dtype;

use crate::support::fixtures::{Expected, expected, fixture, repository};
use crate::support::scratch::{Scratch, file_name};
use crate::support::skipped;
use crate::support::tensors::{PIXELS, Tensors, assert_near, derived};

const RED: [u8; 3] = [200, 40, 40];
const GREEN: [u8; 3] = [40, 180, 60];
const BLUE: [u8; 3] = [50, 60, 200];
const GREY: [u8; 3] = [190, 190, 190];

/// The tensors of a fixture by [`PIXELS`], and its report.
fn pixels(name: &str) -> (Tensors, Report) {
    let scratch = Scratch::new();
    scratch.copy(&format!("in/{}", file_name(name)), name);
    scratch.write("pixels.toml", PIXELS);
    let reports = scratch.run(["in", "--recipe", "pixels.toml", "--no-image", "--json"]).with_code(0).reports();
    let stem = file_name(name).rsplit_once('.').unwrap().0;
    (scratch.tensors(&format!("out/{stem}.safetensors")), reports.into_iter().next().unwrap())
}

#[test]
fn image_leaves_repaired_image_tensors_and_report_beside_each_other() {
    let scratch = Scratch::new();
    scratch.run([fixture("images/plain.jpg")]).with_code(0);
    assert_eq!(scratch.names("out"), ["plain.png", "plain.report.json", "plain.safetensors"]);
}

#[test]
fn report_names_every_artifact_with_its_path_and_length() {
    let scratch = Scratch::new();
    scratch.run([fixture("images/plain.jpg")]).with_code(0);
    let report = scratch.report("out/plain.report.json");
    let named: Vec<(ArtifactKind, &str, u64)> =
        report.artifacts.iter().map(|it| (it.kind, it.path.as_str(), it.bytes)).collect();
    let length = |name: &str| scratch.read(name).len() as u64;
    let image = (ArtifactKind::Image, "out/plain.png", length("out/plain.png"));
    let tensors = (ArtifactKind::Tensors, "out/plain.safetensors", length("out/plain.safetensors"));
    assert_eq!(named, [image, tensors]);
}

#[test]
fn recipe_sdxl_gives_its_three_tensors() {
    let tensors = derived("sdxl");
    let wide: &[usize] = &[1, 3, 1024, 1024];
    let clip: &[usize] = &[1, 3, 224, 224];
    let form = [("clip_pixels", Dtype::F16, clip), ("controlnet_hint", Dtype::F16, wide)];
    assert_eq!(tensors.form(), [&form[..], &[("vae_pixels", Dtype::F16, wide)]].concat());
}

#[test]
fn recipe_sd15_gives_its_three_tensors() {
    let tensors = derived("sd15");
    let wide: &[usize] = &[1, 3, 512, 512];
    let clip: &[usize] = &[1, 3, 224, 224];
    let form = [("clip_pixels", Dtype::F16, clip), ("controlnet_hint", Dtype::F16, wide)];
    assert_eq!(tensors.form(), [&form[..], &[("vae_pixels", Dtype::F16, wide)]].concat());
}

#[test]
fn recipe_flux_gives_its_three_tensors() {
    let tensors = derived("flux");
    let wide: &[usize] = &[1, 3, 1024, 1024];
    let siglip: &[usize] = &[1, 3, 384, 384];
    let form = [("controlnet_hint", Dtype::BF16, wide), ("siglip_pixels", Dtype::BF16, siglip)];
    assert_eq!(tensors.form(), [&form[..], &[("vae_pixels", Dtype::BF16, wide)]].concat());
}

#[test]
fn recipe_clip_gives_its_tensor() {
    let tensors = derived("clip");
    assert_eq!(tensors.form(), [("clip_pixels", Dtype::F32, [1, 3, 224, 224].as_slice())]);
}

#[test]
fn recipe_clip_normalises_by_mean_and_deviation() {
    let tensors = derived("clip");
    let plane = 224 * 224;
    // Right of the middle and above it everything is the green of the card.
    let at = |channel: usize| (channel * plane + 40 * 224 + 180) * 4;
    let data = &tensors.tensors["clip_pixels"].data;
    let got = [0, 1, 2].map(|channel| f32::from_le_bytes(data[at(channel)..at(channel) + 4].try_into().unwrap()));
    let (mean, deviation) = ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);
    let code = |channel: usize| (got[channel] * deviation[channel] + mean[channel]) * 255.0;
    let near = [0, 1, 2].map(|channel| (code(channel) - f32::from(GREEN[channel])).abs() < 6.0);
    assert_eq!(near, [true; 3], "{got:?}");
}

#[test]
fn tensor_file_says_where_its_tensors_come_from() {
    let scratch = Scratch::new();
    scratch.run([fixture("images/p3_orientation6.jpg")]).with_code(0);
    let report = scratch.report("out/p3_orientation6.report.json");
    let metadata = scratch.tensors("out/p3_orientation6.safetensors").metadata;
    let said = |key: &str| metadata.get(key).map(String::as_str);
    assert_eq!(said("recipe"), Some("sdxl"));
    assert_eq!(said("colour_space"), Some("sRGB"));
    assert_eq!(said("source_blake3"), Some(report.source.blake3.as_str()));
    assert_eq!(said("source_size"), Some("48x32"));
    assert_eq!(said("orientation_applied"), Some("6"));
    // 48 x 32 covers a square: 8 columns of the source fall off on each side.
    assert_eq!(said("crop_box.controlnet_hint"), Some("8,0,32,32"));
    assert_eq!(said("crop_box.vae_pixels"), Some("8,0,32,32"));
    assert_eq!(said("crop_box.clip_pixels"), Some("8,0,32,32"));
}

#[test]
fn sound_fixtures_give_the_expected_pixels_and_findings() {
    assert_eq!(check_fixtures("images"), 113);
}

#[test]
fn defective_fixtures_give_the_expected_pixels_and_findings() {
    assert_eq!(check_fixtures("defects"), 97);
}

/// Compares every fixture of a folder with `expected.json`, and counts them.
fn check_fixtures(folder: &str) -> usize {
    let scratch = Scratch::new();
    scratch.write("pixels.toml", PIXELS);
    let wanted: Vec<Expected> = expected(folder).into_iter().filter(is_readable).collect();
    let inputs: Vec<&str> = wanted.iter().map(|expected| expected.path.to_str().unwrap()).collect();
    let options = ["--recipe", "pixels.toml", "--no-image"];
    scratch.run(inputs.iter().chain(&options)).with_code(0);
    let reports = scratch.names("out").into_iter().filter(|name| name.ends_with(".report.json"));
    let compared = reports.map(|name| {
        let report = scratch.report(&format!("out/{name}"));
        let expected = wanted.iter().find(|expected| expected.path.to_str() == Some(&report.source.name)).unwrap();
        check_fixture(&scratch, &report, expected);
        report.source.name
    });
    let compared: BTreeSet<String> = compared.collect();
    assert_eq!(compared.len(), wanted.len());
    expected(folder).len()
}

/// Whether this build reads a fixture: AVIF is a feature of the worker.
fn is_readable(expected: &Expected) -> bool {
    let readable = expected.answer.get("needs").is_none() || {
        let scratch = Scratch::new();
        let ended = scratch.run([expected.path.to_str().unwrap(), "--json", "--no-tensors"]);
        ended.reports()[0].error.as_ref().is_none_or(|failure| failure.code != Code::Unsupported)
    };
    if !readable {
        skipped(&format!("{}: the worker is built without its feature `heif`", expected.path.display()));
    }
    readable
}

fn check_fixture(scratch: &Scratch, report: &Report, expected: &Expected) {
    let (name, answer) = (report.source.name.as_str(), &expected.answer);
    assert_eq!(serde_json::to_value(report.outcome).unwrap(), answer["outcome"], "{name}: {report:?}");
    let image = report.image.as_ref().unwrap();
    assert_eq!(serde_json::to_value(image.upright).unwrap(), answer["upright"], "{name}");
    let found: Vec<&str> = report.findings.iter().map(|finding| finding.code.as_str()).collect();
    let has: Vec<String> = serde_json::from_value(answer["has"].clone()).unwrap();
    assert!(has.iter().all(|code| found.contains(&code.as_str())), "{name}: {found:?} lacks some of {has:?}");
    let path = &report.artifacts.iter().find(|artifact| artifact.kind == ArtifactKind::Tensors).unwrap().path;
    let tensors = scratch.tensors(path);
    let corners: Option<Vec<[u8; 3]>> = serde_json::from_value(answer["corners"].clone()).unwrap();
    let tolerance = u8::try_from(answer["tolerance"].as_u64().unwrap()).unwrap();
    corners.iter().for_each(|wanted| assert_near(&tensors.corners(), wanted, tolerance, name));
}

#[test]
fn orientation_6_comes_out_upright() {
    let (tensors, report) = pixels("images/orientation6.jpg");
    let image = report.image.unwrap();
    assert_eq!((image.stored, image.upright, image.orientation), ([32, 48], [48, 32], 6));
    assert_near(&tensors.corners(), &[RED, GREEN, BLUE, GREY], 6, "orientation6");
}

#[test]
fn repaired_image_is_upright_srgb_of_8_bits_and_says_so() {
    let scratch = Scratch::new();
    scratch.run([fixture("images/p3_orientation6.jpg").to_str().unwrap(), "--no-tensors"]).with_code(0);
    let png = scratch.read("out/p3_orientation6.png");
    let header = [&48_u32.to_be_bytes()[..], &32_u32.to_be_bytes(), &[8, 2]].concat();
    assert_eq!(png[16..26], header);
    assert!(png.windows(4).any(|name| name == b"sRGB"), "no sRGB chunk");
}

#[test]
fn repaired_image_read_again_is_sound_and_has_the_same_pixels() {
    let scratch = Scratch::new();
    scratch.write("pixels.toml", PIXELS);
    let first = fixture("images/p3_orientation6.jpg");
    scratch.run([first.to_str().unwrap(), "--recipe", "pixels.toml"]).with_code(0);
    let again = ["out/p3_orientation6.png", "--recipe", "pixels.toml", "--out", "again"];
    scratch.run(again).with_code(0);
    let report = scratch.report("again/p3_orientation6.report.json");
    assert_eq!((report.outcome, report.repairs), (Outcome::Ok, Vec::new()));
    let [once, twice] = ["out", "again"].map(|out| scratch.tensors(&format!("{out}/p3_orientation6.safetensors")));
    assert_eq!(once.tensors, twice.tensors);
}

#[test]
fn profile_changes_the_colours_of_the_same_codes() {
    let (untagged, _) = pixels("images/png_named.jpg");
    let (tagged, report) = pixels("images/p3.png");
    let colour = report.colour.unwrap();
    assert_eq!((colour.interpretation.as_str(), colour.engine.as_str()), ("icc", "matrix"));
    assert_near(&untagged.corners(), &[RED, GREEN, BLUE, GREY], 0, "untagged");
    assert_near(&tagged.corners(), &[[218, 0, 26], [0, 183, 30], [47, 60, 208], GREY], 1, "Display P3");
}

#[test]
fn adobe_rgb_by_exif_alone_changes_the_colours() {
    let (_, report) = pixels("images/adobe_r03.jpg");
    assert_eq!(report.colour.unwrap().interpretation, "adobe_rgb");
}

#[test]
fn alpha_is_composited_on_the_recipes_background_and_kept_as_a_mask() {
    let (tensors, report) = pixels("images/rgba.png");
    let names: Vec<&str> = report.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["pixels", "alpha_mask"]);
    assert_eq!(tensors.pixel(24, 16), [0x10, 0x20, 0x30]);
    assert_eq!(tensors.pixel(2, 2), RED);
    let mask = &tensors.tensors["alpha_mask"];
    assert_eq!(mask.shape.iter().product::<usize>(), 48 * 32);
    let bytes = mask.dtype.bitsize() / 8;
    let element = |x: usize, y: usize| mask.data[(y * 48 + x) * bytes..][..bytes].to_vec();
    assert_eq!(element(24, 16), vec![0; bytes]);
    assert_ne!(element(2, 2), vec![0; bytes]);
}

#[test]
fn image_without_alpha_has_no_mask() {
    let (tensors, _) = pixels("images/plain.jpg");
    assert_eq!(tensors.tensors.keys().collect::<Vec<_>>(), ["pixels"]);
}

#[test]
fn cpu_uploads_nothing() {
    let (_, report) = pixels("images/plain.jpg");
    assert_eq!((report.uploads, report.device.unwrap().kind.as_str()), (0, "cpu"));
}

#[test]
fn users_recipe_gives_its_layouts_types_and_sizes() {
    let scratch = Scratch::new();
    let recipe = scratch.write(
        "mine.toml",
        r#"
name = "mine"
[[tensor]]
name = "a"
fit = "contain"
width = 100
height = 100
filter = "lanczos3"
layout = "nhwc"
dtype = "bf16"
range = [-1.0, 1.0]
[[tensor]]
name = "b"
fit = "long_side"
side = 96
filter = "bicubic"
layout = "nchw"
dtype = "f32"
range = [0.0, 1.0]
"#,
    );
    let image = fixture("images/plain.jpg");
    scratch.run([image.to_str().unwrap(), "--recipe", recipe.to_str().unwrap()]).with_code(0);
    let tensors = scratch.tensors("out/plain.safetensors");
    let a: (&str, Dtype, &[usize]) = ("a", Dtype::BF16, &[1, 67, 100, 3]);
    assert_eq!(tensors.form(), [a, ("b", Dtype::F32, &[1, 3, 64, 96])]);
    assert_eq!(tensors.metadata["recipe"], "mine");
}

#[test]
fn recipe_that_was_shown_works_as_a_file() {
    let scratch = Scratch::new();
    let shown = scratch.refmill(["recipe", "show", "clip"]).with_code(0);
    scratch.write("mine.toml", &shown.stdout);
    let image = fixture("images/plain.jpg");
    scratch.run([image.to_str().unwrap(), "--recipe", "mine.toml", "--no-image"]).with_code(0);
    assert_eq!(scratch.tensors("out/plain.safetensors").tensors, derived("clip").tensors);
}

#[test]
fn same_input_gives_the_same_bytes_every_time() {
    let scratch = Scratch::new();
    let inputs = repository("fixtures/images");
    let run = |out: &str, workers: &str| {
        // AVIF is refused where the worker lacks the feature, and the same both times.
        scratch.run([inputs.to_str().unwrap(), "--recipe", "clip", "--out", out, "--workers", workers]);
        let names = scratch.names(out).into_iter().filter(|name| !name.ends_with(".report.json"));
        names.map(|name| (name.clone(), scratch.read(&format!("{out}/{name}")))).collect::<Vec<_>>()
    };
    let (once, twice) = (run("once", "1"), run("twice", "2"));
    assert!(once.len() >= 2 * 23, "{} artifacts", once.len());
    assert!(once == twice);
}
