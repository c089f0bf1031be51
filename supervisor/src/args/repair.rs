//! `refmill repair`, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs, ValueEnum};

use super::SharedArgs;

/// `refmill repair`.
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("place").required(true).args(["out", "in_place", "png"])))]
pub struct RepairArgs {
    /// Files, folders, globs, or `-` for standard input (with --out or --png); --png takes one
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Rewrite JPEG, PNG and WebP around their coded pixels, which stay bit for bit (the default)
    #[arg(long, conflicts_with_all = ["convert", "png"])]
    pub lossless: bool,
    /// Convert the pixels to upright sRGB PNG instead
    #[arg(long)]
    pub convert: bool,
    /// What a lossless repair leaves out besides what is broken
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["convert", "png"])]
    pub strip: Option<StripArg>,
    /// Folder for NAME.EXT and NAME.report.json, EXT by the content; a file that needs nothing is copied as it is
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace each file by its repaired one; one that needs nothing is not touched
    #[arg(long, conflicts_with = "convert")]
    pub in_place: bool,
    /// Ending of the copy that --in-place leaves of each file it replaces; a copy that exists is never replaced
    #[arg(long, value_name = "SUFFIX", default_value = ".orig", requires = "in_place")]
    pub backup: OsString,
    /// Where one converted image goes, replacing what is there; `-` for standard output
    #[arg(long, value_name = "OUT.png", requires = "convert")]
    pub png: Option<PathBuf>,
    /// Where one file's report goes, replacing what is there; --out writes its own
    #[arg(long, value_name = "OUT.json", conflicts_with = "out")]
    pub report: Option<PathBuf>,
    /// One report a line on standard output, as JSON
    #[arg(long, conflicts_with = "png")]
    pub json: bool,
    /// Worker processes [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Replace files in the output folder that refmill did not make
    #[arg(long, requires = "out")]
    pub force: bool,
    /// What repair and run have in common.
    #[command(flatten)]
    pub shared: SharedArgs,
}

/// `--strip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StripArg {
    /// The GPS position, in EXIF and XMP
    Gps,
    /// That, and serial numbers, owner, artist, maker notes, thumbnail, XMP and IPTC
    Private,
    /// All metadata but orientation and colour, and data after the end of the image
    All,
}

#[cfg(test)]
mod tests {
    use crate::args::Args;
    use clap::Parser;

    fn is_taken(line: &str) -> bool {
        Args::try_parse_from(["refmill", "repair", "a.jpg"].into_iter().chain(line.split_whitespace())).is_ok()
    }

    #[test]
    fn one_place_is_named() {
        assert!(is_taken("--out d") && is_taken("--in-place") && is_taken("--convert --png b.png"));
        assert!(!is_taken("") && !is_taken("--out d --in-place") && !is_taken("--convert"));
    }

    #[test]
    fn pixels_that_are_converted_have_nothing_to_strip_and_no_place_of_their_own() {
        assert!(!is_taken("--convert --out d --strip gps") && !is_taken("--convert --in-place"));
        assert!(is_taken("--convert --out d") && is_taken("--lossless --out d --strip private"));
    }
}
