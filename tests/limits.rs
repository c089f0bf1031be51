//! Files that claim or inflate to far more than they hold: each gets a precise answer, from a worker that could not
//! have the memory that they ask for.

use refmill::failure::Code;
use refmill::finding::FindingCode;
use refmill::report::{Outcome, Report};

use crate::support::forged::{
    black_png, bmp_claiming, gif_claiming, iccp_of_zeros, jpeg_claiming, jpeg_of_896_scans, png, tiff_claiming,
    webp_claiming, zlib_zeros,
};
use crate::support::scratch::Scratch;

/// A worker with at most 100 MiB of private memory (RLIMIT_DATA): its own code's, thread stacks and pixels together.
const SMALL: &str = "ulimit -d 102400";

/// The answer of a small worker.
fn small(name: &str, bytes: &[u8]) -> Report {
    let scratch = Scratch::new();
    let worker = scratch.worker_after(SMALL);
    answer(&scratch, name, bytes, &["--worker", worker.to_str().unwrap()])
}

/// The answer of a worker, with options.
fn answer(scratch: &Scratch, name: &str, bytes: &[u8], options: &[&str]) -> Report {
    scratch.write(name, bytes);
    let arguments = [name, "--json", "--recipe", "clip"];
    let ended = scratch.run(arguments.iter().chain(options));
    ended.reports().into_iter().next().unwrap_or_else(|| panic!("no report; standard error: {}", ended.stderr))
}

#[track_caller]
fn assert_over(report: &Report, message: &str) {
    let failure = report.error.as_ref().unwrap_or_else(|| panic!("{report:?}"));
    assert_eq!((failure.code, failure.message.as_str()), (Code::OverLimit, message));
}

#[test]
fn picture_over_100_mib_does_not_fit_into_the_small_worker() {
    // What the other tests rest on: the bound is there. 6000 x 6000 pixels of 3 bytes are 103 MiB.
    let failure = small("big.png", &black_png(6000, 6000, &[])).error.unwrap();
    assert_eq!(failure.code, Code::WorkerCrashed, "{failure}");
}

#[test]
fn png_that_claims_30000_squared_is_over_the_limit() {
    let report = small("a.png", &png(30_000, 30_000, &[], &zlib_zeros(64)));
    assert_over(&report, "image area in pixels is 900000000, the limit is 100000000");
}

#[test]
fn png_that_claims_the_largest_size_is_over_the_limit() {
    let report = small("a.png", &png(i32::MAX.cast_unsigned(), i32::MAX.cast_unsigned(), &[], &zlib_zeros(64)));
    assert_over(&report, "image width in pixels is 2147483647, the limit is 65500");
}

#[test]
fn jpeg_that_claims_65500_squared_is_over_the_limit() {
    let report = small("a.jpg", &jpeg_claiming(65_500, 65_500));
    assert_over(&report, "image area in pixels is 4290250000, the limit is 100000000");
}

#[test]
fn bmp_that_claims_the_largest_size_is_over_the_limit() {
    let report = small("a.bmp", &bmp_claiming(i32::MAX, i32::MAX));
    assert_over(&report, "image width in pixels is 2147483647, the limit is 65500");
}

#[test]
fn bmp_that_claims_the_smallest_height_is_over_the_limit() {
    let report = small("a.bmp", &bmp_claiming(1, i32::MIN));
    assert_over(&report, "image height in pixels is 2147483648, the limit is 65500");
}

#[test]
fn gif_with_the_largest_screen_is_over_the_limit() {
    let report = small("a.gif", &gif_claiming(u16::MAX));
    assert_over(&report, "image width in pixels is 65535, the limit is 65500");
}

#[test]
fn gif_with_a_huge_screen_is_over_the_limit() {
    let report = small("a.gif", &gif_claiming(65_000));
    assert_over(&report, "image area in pixels is 4225000000, the limit is 100000000");
}

#[test]
fn tiff_that_claims_2000000_squared_is_over_the_limit() {
    let report = small("a.tif", &tiff_claiming(2_000_000));
    assert_over(&report, "image width in pixels is 2000000, the limit is 65500");
}

#[test]
fn webp_with_the_largest_canvas_is_over_the_limit() {
    let report = small("a.webp", &webp_claiming(1 << 24));
    assert_over(&report, "image width in pixels is 16777216, the limit is 65500");
}

#[test]
fn profile_that_inflates_to_60_mb_is_left_out_and_the_picture_kept() {
    let report = small("a.png", &black_png(48, 32, &[iccp_of_zeros(60_000_000)]));
    assert_eq!(report.outcome, Outcome::OkWithRepair, "{report:?}");
    let finding = report.findings.iter().find(|finding| finding.code == FindingCode::OverLimit).unwrap();
    assert!(finding.found.contains("16777216"), "{finding:?}");
    assert_eq!(report.colour.unwrap().interpretation, "srgb");
}

#[test]
fn pixels_that_inflate_past_their_size_stay_within_the_memory() {
    let report = small("a.png", &png(48, 32, &[], &zlib_zeros(600_000_000)));
    let code = report.error.as_ref().map(|failure| failure.code);
    assert!(matches!(code, None | Some(Code::Corrupt)), "{report:?}");
}

#[test]
fn limit_on_pixels_is_honoured() {
    let scratch = Scratch::new();
    let report = answer(&scratch, "a.png", &black_png(48, 32, &[]), &["--limit", "pixels=1535"]);
    assert_over(&report, "image area in pixels is 1536, the limit is 1535");
}

#[test]
fn limit_on_pixels_that_just_holds_lets_the_picture_pass() {
    let scratch = Scratch::new();
    let report = answer(&scratch, "a.png", &black_png(48, 32, &[]), &["--limit", "pixels=1536"]);
    assert_eq!(report.outcome, Outcome::Ok);
}

#[test]
fn limit_on_width_is_honoured() {
    let scratch = Scratch::new();
    let report = answer(&scratch, "a.png", &black_png(48, 32, &[]), &["--limit", "width=47"]);
    assert_over(&report, "image width in pixels is 48, the limit is 47");
}

#[test]
fn limit_on_height_is_honoured() {
    let scratch = Scratch::new();
    let report = answer(&scratch, "a.png", &black_png(48, 32, &[]), &["--limit", "height=31"]);
    assert_over(&report, "image height in pixels is 32, the limit is 31");
}

#[test]
fn limit_on_input_bytes_is_honoured() {
    let scratch = Scratch::new();
    let bytes = black_png(48, 32, &[]);
    let report = answer(&scratch, "a.png", &bytes, &["--limit", "input_bytes=50"]);
    assert_over(&report, &format!("input length in bytes is {}, the limit is 50", bytes.len()));
}

#[test]
fn limit_on_standard_input_is_honoured() {
    let scratch = Scratch::new();
    let bytes = black_png(48, 32, &[]);
    let ended = scratch.run_with_stdin(["-", "--json", "--limit", "input_bytes=50"], &bytes).with_code(3);
    assert_over(&ended.reports()[0], "stdin has more bytes than the limit of 50");
}

#[test]
fn limit_on_metadata_leaves_out_the_block_and_keeps_the_picture() {
    let scratch = Scratch::new();
    let bytes = black_png(48, 32, &[iccp_of_zeros(3000)]);
    let report = answer(&scratch, "a.png", &bytes, &["--limit", "metadata_bytes=2000"]);
    let codes: Vec<FindingCode> = report.findings.iter().map(|finding| finding.code).collect();
    assert_eq!((report.outcome, codes.contains(&FindingCode::OverLimit)), (Outcome::OkWithRepair, true), "{codes:?}");
}

#[test]
fn limit_on_output_bytes_is_honoured() {
    let scratch = Scratch::new();
    // The recipe clip makes 602,112 bytes of tensor.
    let report = answer(&scratch, "a.png", &black_png(48, 32, &[]), &["--limit", "output_bytes=600000"]);
    let failure = report.error.unwrap();
    assert_eq!(failure.code, Code::OverLimit, "{failure}");
    assert!(failure.message.contains("602112"), "{failure}");
}

#[test]
fn limit_on_frames_is_honoured() {
    let scratch = Scratch::new();
    let bytes = std::fs::read(crate::support::fixtures::fixture("images/animated.gif")).unwrap();
    let report = answer(&scratch, "a.gif", &bytes, &["--limit", "frames=2"]);
    assert_eq!(report.error.map(|failure| failure.code), Some(Code::OverLimit));
}

#[test]
fn jpeg_of_hundreds_of_empty_scans_is_over_the_wall_limit_and_costs_no_other() {
    let scratch = Scratch::new();
    // Every scan goes over all of the 100 million pixels: seconds of decoding until the worker's own limit of 100 scans.
    scratch.write("scans.jpg", jpeg_of_896_scans(10_000));
    scratch.write("small.png", black_png(48, 32, &[]));
    let arguments =
        ["scans.jpg", "small.png", "--json", "--recipe", "clip", "--workers", "1", "--limit", "wall_ms=1000"];
    let reports = scratch.run(arguments).with_code(1).reports();
    let failure = reports[0].error.as_ref().unwrap();
    assert_eq!(failure.code, Code::OverLimit, "{failure}");
    assert!(failure.message.starts_with("wall time in ms is ") && failure.message.ends_with(", the limit is 1000"));
    assert_eq!(reports[1].outcome, Outcome::Ok);
}
