//! What was typed after `refmill batch`, and how an S3 server is reached.

use std::path::PathBuf;

use clap::Args;

use super::{PlaceArgs, SharedArgs};

/// `refmill batch`.
#[derive(Debug, Args)]
pub struct BatchArgs {
    /// Where the images are: a folder or s3://bucket/prefix
    #[arg(required_unless_present = "retry", value_name = "FOLDER|s3://BUCKET/PREFIX")]
    pub input: Option<PathBuf>,
    /// Where NAME.png, NAME.safetensors and NAME.report.json go; NAME is the image's whole key below INPUT
    #[arg(long, value_name = "FOLDER|s3://BUCKET/PREFIX")]
    pub out: PathBuf,
    /// Take the inputs of a failures file instead, also those that were rejected
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "input")]
    pub retry: Option<PathBuf>,
    /// Where inputs that failed are listed [default: refmill-failures.jsonl, with --retry the same file]
    #[arg(long, value_name = "FILE.jsonl")]
    pub failures: Option<PathBuf>,
    /// Which tensors to derive: sdxl, sd15, flux, clip, or a TOML file
    #[arg(long, default_value = "sdxl", value_name = "NAME|FILE.toml")]
    pub recipe: String,
    /// Write no repaired image
    #[arg(long)]
    pub no_image: bool,
    /// Write no tensors
    #[arg(long)]
    pub no_tensors: bool,
    /// Replace files and objects that refmill did not make
    #[arg(long)]
    pub force: bool,
    /// One report a line on standard output, as JSON, and the summary as the last line
    #[arg(long)]
    pub json: bool,
    /// Where the work is done.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// What repair and run have too.
    #[command(flatten)]
    pub shared: SharedArgs,
    /// How the server is reached.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// How an S3 server is reached. Keys, the profile, the region, the endpoint and the CA file come from the variables and
/// files that the AWS tools have, where neither an option nor `[store]` of the configuration says otherwise.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "S3")]
pub struct StoreArgs {
    /// The server [default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile, AWS itself]
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,
    /// The region that requests are signed for [default: AWS_REGION, AWS_DEFAULT_REGION, the profile, us-east-1]
    #[arg(long, value_name = "NAME")]
    pub s3_region: Option<String>,
    /// The bucket is part of the host's name, not of the path
    #[arg(long)]
    pub s3_virtual_hosted: bool,
    /// Certificates that are trusted instead of the system's [default: AWS_CA_BUNDLE, the profile]
    #[arg(long, value_name = "FILE.pem")]
    pub s3_ca: Option<PathBuf>,
    /// Allow an endpoint that is not encrypted
    #[arg(long)]
    pub s3_allow_http: bool,
    /// Sign no request: for buckets that anybody may read
    #[arg(long)]
    pub s3_anonymous: bool,
    /// Take keys from the cloud machine's metadata service
    #[arg(long, conflicts_with = "s3_anonymous")]
    pub s3_instance_role: bool,
    /// How many requests run at a time [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub s3_requests: Option<u16>,
    /// How many bytes go over the wire in a second, both ways together
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1_024..))]
    pub s3_rate: Option<u64>,
    /// How long the server may be silent, in seconds [default: 30]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub s3_timeout: Option<u16>,
    /// For how long a request is tried again that the server could not answer, in seconds [default: 60]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(0..=240))]
    pub s3_retry: Option<u16>,
}
