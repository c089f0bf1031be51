//! How an S3 server is reached, checked: options first, then the configuration, the variables of the AWS
//! tools, and their files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;

use crate::args::StoreArgs;
use crate::config::StoreConfig;
use crate::store::connection::{Credentials, Reach};
use crate::store::profile::Profile;

/// Longest file that is read for settings, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// The variables with which AWS names a role.
const ROLE: [&str; 6] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// Why the settings reach no server.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The endpoint cannot be one.
    #[error("S3 endpoint `{text}` is not of the form https://host:port")]
    Endpoint {
        /// As it was set.
        text: String,
    },
    /// Not encrypted, and not allowed to be so.
    #[error(
        "S3 endpoint `{text}` is not encrypted: keys are safe in signatures, images are not; --s3-allow-http or \
         `store.allow_http` allows it"
    )]
    Http {
        /// As it was set.
        text: String,
    },
    /// Nobody to be.
    #[error(
        "no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile with keys in \
         ~/.aws/credentials (`{profile}` has none), or use --s3-instance-role or --s3-anonymous"
    )]
    Nobody {
        /// The profile that was looked for.
        profile: String,
    },
    /// A file of settings.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What the options, the configuration and the environment say.
pub(super) fn reach(args: &StoreArgs, config: &StoreConfig) -> Result<Reach, ReachError> {
    combine(args, config, &|name| env::var_os(name)?.into_string().ok().filter(|value| !value.is_empty()))
}

fn combine(
    args: &StoreArgs,
    config: &StoreConfig,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Reach, ReachError> {
    let first = |names: &[&str]| names.iter().find_map(|name| variable(name));
    let name = config.profile.clone().or_else(|| first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]));
    let name = name.unwrap_or_else(|| "default".into());
    let file = |named: &str, usual: &str| match variable(named) {
        Some(path) => text(Path::new(&path)),
        None => variable("HOME").map_or_else(String::new, |home| text(&Path::new(&home).join(usual))),
    };
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    let profile = Profile::read(&name, &credentials, &file("AWS_CONFIG_FILE", ".aws/config"));
    let allow_http = args.s3_allow_http || config.allow_http;
    let endpoint = args.s3_endpoint.clone().or_else(|| config.endpoint.clone());
    let endpoint = endpoint.or_else(|| first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
    let endpoint = endpoint.or_else(|| profile.endpoint.clone());
    if let Some(endpoint) = &endpoint {
        check(endpoint, allow_http)?;
    }
    let region = args.s3_region.clone().or_else(|| config.region.clone());
    let region = region.or_else(|| first(&["AWS_REGION", "AWS_DEFAULT_REGION"])).or_else(|| profile.region.clone());
    let ca = args.s3_ca.clone().or_else(|| config.ca.clone());
    let ca = ca.or_else(|| first(&["AWS_CA_BUNDLE"]).or(profile.ca_bundle.clone()).map(PathBuf::from));
    let ca = ca.map(|path| fs::read(&path).map_err(|source| ReachError::File { path, source })).transpose()?;
    let seconds = |typed: Option<u16>, configured: u16| Duration::from_secs(typed.unwrap_or(configured).into());
    Ok(Reach {
        endpoint,
        virtual_hosted: args.s3_virtual_hosted || config.virtual_hosted,
        region: region.unwrap_or_else(|| "us-east-1".into()),
        credentials: who(args, variable, &name, profile)?,
        ca,
        allow_http,
        concurrency: args.s3_requests.unwrap_or(config.requests).into(),
        bytes_per_second: args.s3_rate.or(config.bytes_per_second),
        timeout: seconds(args.s3_timeout, config.timeout_s),
        retry: seconds(args.s3_retry, config.retry_s),
    })
}

fn who(
    args: &StoreArgs,
    variable: &dyn Fn(&str) -> Option<String>,
    name: &str,
    profile: Profile,
) -> Result<Credentials, ReachError> {
    if args.s3_anonymous {
        return Ok(Credentials::Anonymous);
    }
    if args.s3_instance_role {
        return Ok(Credentials::Instance);
    }
    // A profile that was named goes before keys in the environment only where there are none.
    if let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
        return Ok(Credentials::Keys { id, secret, token: variable("AWS_SESSION_TOKEN") });
    }
    if let (Some(id), Some(secret)) = (profile.key_id, profile.secret) {
        return Ok(Credentials::Keys { id, secret, token: profile.token });
    }
    let role: Vec<_> = ROLE.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))).collect();
    if role.is_empty() { Err(ReachError::Nobody { profile: name.to_owned() }) } else { Ok(Credentials::Role(role)) }
}

fn check(endpoint: &str, allow_http: bool) -> Result<(), ReachError> {
    let wrong = || ReachError::Endpoint { text: endpoint.to_owned() };
    let address: Uri = endpoint.parse().map_err(|_| wrong())?;
    let has_path = address.path_and_query().is_some_and(|rest| rest.as_str() != "/");
    if address.host().is_none_or(str::is_empty) || has_path || endpoint.contains('@') {
        return Err(wrong());
    }
    match address.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if allow_http => Ok(()),
        Some("http") => Err(ReachError::Http { text: endpoint.to_owned() }),
        _ => Err(wrong()),
    }
}

/// A file of the AWS tools; one that cannot be read says nothing, as with those tools.
fn text(path: &Path) -> String {
    let is_small = fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= MAX_FILE);
    if is_small { fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];

    fn with(args: StoreArgs, variables: &[(&str, &str)]) -> Result<Reach, ReachError> {
        over(args, &StoreConfig::default(), variables)
    }

    fn over(args: StoreArgs, config: &StoreConfig, variables: &[(&str, &str)]) -> Result<Reach, ReachError> {
        let known = |name: &str| variables.iter().find(|(known, _)| *known == name);
        combine(&args, config, &|name| known(name).map(|(_, value)| (*value).to_owned()))
    }

    fn endpoint(text: &str, allow_http: bool) -> Result<Reach, ReachError> {
        let args = StoreArgs { s3_endpoint: Some(text.into()), s3_allow_http: allow_http, ..StoreArgs::default() };
        with(args, &KEYS)
    }

    #[test]
    fn keys_and_region_come_from_the_environment() {
        let variables = [KEYS.as_slice(), &[("AWS_SESSION_TOKEN", "tok"), ("AWS_REGION", "eu-north-1")]].concat();
        let reach = with(StoreArgs::default(), &variables).unwrap();
        let expected = Credentials::Keys { id: "id".into(), secret: "secret".into(), token: Some("tok".into()) };
        assert_eq!((reach.credentials, reach.region.as_str()), (expected, "eu-north-1"));
    }

    #[test]
    fn profile_is_read_from_the_files_that_the_variables_name() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("credentials"), "[lab]\naws_access_key_id=LAB\naws_secret_access_key=s\n").unwrap();
        fs::write(path("config"), "[profile lab]\nregion=us-west-2\nendpoint_url=https://minio:9000\n").unwrap();
        let (credentials, config) = (path("credentials"), path("config"));
        let files = [("AWS_SHARED_CREDENTIALS_FILE", credentials.as_str()), ("AWS_CONFIG_FILE", config.as_str())];
        let reach = with(StoreArgs::default(), &[files.as_slice(), &[("AWS_PROFILE", "lab")]].concat()).unwrap();
        assert!(matches!(&reach.credentials, Credentials::Keys { id, .. } if id == "LAB"));
        assert_eq!((reach.region.as_str(), reach.endpoint.as_deref()), ("us-west-2", Some("https://minio:9000")));
        let nobody = with(StoreArgs::default(), &files).unwrap_err().to_string();
        assert!(nobody.contains("`default` has none"), "{nobody}");
    }

    #[test]
    fn configuration_goes_before_the_environment_and_options_before_both() {
        let config = StoreConfig {
            endpoint: Some("http://configured:9000".into()),
            region: Some("lab".into()),
            allow_http: true,
            virtual_hosted: true,
            requests: 3,
            bytes_per_second: Some(5_000),
            retry_s: 7,
            ..StoreConfig::default()
        };
        let variables = [KEYS.as_slice(), &[("AWS_ENDPOINT_URL", "https://other"), ("AWS_REGION", "other")]].concat();
        let reach = over(StoreArgs::default(), &config, &variables).unwrap();
        assert_eq!((reach.endpoint.as_deref(), reach.region.as_str()), (Some("http://configured:9000"), "lab"));
        assert!(reach.virtual_hosted && reach.allow_http);
        assert_eq!((reach.concurrency, reach.bytes_per_second), (3, Some(5_000)));
        assert_eq!((reach.timeout.as_secs(), reach.retry.as_secs()), (30, 7));
        let args = StoreArgs { s3_region: Some("typed".into()), s3_requests: Some(9), ..StoreArgs::default() };
        let reach = over(args, &config, &variables).unwrap();
        assert_eq!((reach.region.as_str(), reach.concurrency), ("typed", 9));
    }

    #[test]
    fn profile_that_is_configured_goes_before_that_of_the_environment() {
        let config = StoreConfig { profile: Some("lab".into()), ..StoreConfig::default() };
        let nobody = over(StoreArgs::default(), &config, &[("AWS_PROFILE", "other")]).unwrap_err().to_string();
        assert!(nobody.contains("`lab` has none"), "{nobody}");
    }

    #[test]
    fn http_is_refused_unless_it_is_allowed() {
        assert!(matches!(endpoint("http://minio:9000", false), Err(ReachError::Http { .. })));
        assert!(endpoint("http://minio:9000", true).is_ok());
        assert!(endpoint("https://minio:9000/", false).is_ok());
        for text in ["minio:9000", "ftp://minio", "https://", "https://minio/path", "https://me:secret@minio", "x y"] {
            assert!(matches!(endpoint(text, true), Err(ReachError::Endpoint { .. })), "{text}");
        }
    }

    #[test]
    fn role_is_taken_where_there_are_no_keys_and_nobody_is_refused() {
        let role =
            with(StoreArgs::default(), &[("AWS_ROLE_ARN", "arn"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t")]).unwrap();
        assert!(matches!(role.credentials, Credentials::Role(variables) if variables.len() == 2));
        assert!(matches!(with(StoreArgs::default(), &[]), Err(ReachError::Nobody { .. })));
        let anonymous = StoreArgs { s3_anonymous: true, ..StoreArgs::default() };
        assert_eq!(with(anonymous, &KEYS).unwrap().credentials, Credentials::Anonymous);
    }
}
