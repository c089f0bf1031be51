//! Which queue is meant, and who refmill is to the server of one in a stream: the configuration first, then the
//! variables of the `nats` tool.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::SettingsError;
use crate::config::{Config, NatsConfig, QueueConfig};
use crate::queue::Place;
use crate::queue::nats::Access;

/// Longest file with a secret, in bytes.
const MAX_SECRET: u64 = 64 << 10;

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Its file.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing that could be one.
    #[error("{} has over {MAX_SECRET} bytes, no secret has", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// Half of what is needed.
    #[error("NATS user `{user}` has no password: set queue.nats.password_file or NATS_PASSWORD")]
    Password {
        /// The user.
        user: String,
    },
}

/// The queue that is meant: the one that was typed, else the configuration's.
///
/// # Errors
/// [`SettingsError`]
pub fn queue(typed: Option<PathBuf>, config: Option<&Path>) -> Result<Place, SettingsError> {
    // Read in any case: a configuration that cannot be read is told, not passed over.
    let config = Config::load(config)?;
    place(&QueueConfig { path: typed.unwrap_or(config.queue.path), ..config.queue })
}

/// The queue of a configuration in effect.
pub(super) fn place(config: &QueueConfig) -> Result<Place, SettingsError> {
    let variable = |name: &str| env::var_os(name)?.into_string().ok().filter(|value| !value.is_empty());
    // A file needs nobody's secrets, and none of them is looked at.
    match Place::named(&config.path, Access::default())? {
        file @ Place::File(_) => Ok(file),
        Place::Stream(address, _) => Ok(Place::Stream(address, access(&config.nats, &variable)?)),
    }
}

fn access(config: &NatsConfig, variable: &dyn Fn(&str) -> Option<String>) -> Result<Access, SecretError> {
    let named = |path: &Option<PathBuf>| path.as_deref().map(secret).transpose();
    let token = named(&config.token_file)?.or_else(|| variable("NATS_TOKEN"));
    let credentials = config.credentials.clone().or_else(|| variable("NATS_CREDS").map(PathBuf::from));
    let user = match config.user.clone().or_else(|| variable("NATS_USER")) {
        None => None,
        Some(user) => match named(&config.password_file)?.or_else(|| variable("NATS_PASSWORD")) {
            Some(password) => Some((user, password)),
            None => return Err(SecretError::Password { user }),
        },
    };
    let ca = config.ca.clone().or_else(|| variable("NATS_CA").map(PathBuf::from));
    Ok(Access { user, token, credentials: named(&credentials)?, ca })
}

/// What a file holds, without the end of its line.
pub(super) fn secret(path: &Path) -> Result<String, SecretError> {
    let failed = |source| SecretError::File { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_SECRET {
        return Err(SecretError::Long { path: path.to_owned() });
    }
    Ok(fs::read_to_string(path).map_err(failed)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_goes_before_the_environment_and_files_lose_their_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "from the file\n").unwrap();
        let config = NatsConfig {
            user: Some("mill".into()),
            password_file: Some(file.path().to_owned()),
            ..NatsConfig::default()
        };
        let variable = |name: &str| Some(format!("{name} of the environment"));
        let found = access(&config, &|name| variable(name).filter(|_| name != "NATS_CREDS")).unwrap();
        assert_eq!(found.user, Some(("mill".into(), "from the file".into())));
        assert_eq!(found.token.as_deref(), Some("NATS_TOKEN of the environment"));
        assert_eq!(found.ca, Some("NATS_CA of the environment".into()));
    }

    #[test]
    fn user_without_a_password_and_a_secret_without_a_file_are_told() {
        let nothing = |_: &str| None;
        let user = NatsConfig { user: Some("mill".into()), ..NatsConfig::default() };
        assert!(matches!(access(&user, &nothing), Err(SecretError::Password { .. })));
        let token = NatsConfig { token_file: Some("no/such/file".into()), ..NatsConfig::default() };
        assert!(matches!(access(&token, &nothing), Err(SecretError::File { .. })));
    }
}
