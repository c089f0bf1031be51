//! The HTTP server's settings: what the configuration says, with the tokens that its files and variables hold.

use std::env;
use std::time::Duration;

use super::queue::{SecretError, secret};
use crate::config::{Config, RoleName};
use crate::http::{MIN_TOKEN, Role, Setup, Token, Tokens};
use crate::queue::tenant;

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Its file.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Its variable.
    #[error("variable {name}, which `http.token.variable` names, is not set")]
    Variable {
        /// The variable.
        name: String,
    },
    /// Its text.
    #[error("token in {place} is none: it takes at least {MIN_TOKEN} of A-Z, a-z, 0-9 and -._~+/=")]
    Text {
        /// The file or the variable.
        place: String,
    },
}

/// The server that is wanted, and who may ask it; none where it is not configured.
///
/// # Errors
/// [`TokenError`]
pub fn http(config: &Config) -> Result<Option<(Setup, Tokens)>, TokenError> {
    let http = &config.http;
    if http.listen.is_none() && http.socket.is_none() {
        return Ok(None);
    }
    let setup = Setup {
        // The configuration is checked: what is there is an address.
        listen: http.listen.as_ref().and_then(|text| text.parse().ok()),
        socket: http.socket.clone(),
        connections: http.connections.into(),
        patience: Duration::from_secs(http.timeout_s.into()),
    };
    let variable = |name: &str| env::var_os(name)?.into_string().ok().filter(|value| !value.is_empty());
    let tokens = http.tokens.iter().map(|token| {
        let (place, text) = match (&token.file, token.variable.as_deref().unwrap_or_default()) {
            (Some(file), _) => (file.display().to_string(), secret(file)?),
            (None, name) => {
                let text = variable(name).ok_or_else(|| TokenError::Variable { name: name.into() })?;
                (name.to_owned(), text)
            }
        };
        let role = match token.role {
            RoleName::Tenant => Role::Tenant(token.tenant.clone().unwrap_or_else(|| tenant::DEFAULT.into())),
            RoleName::Events => Role::Events,
            RoleName::Metrics => Role::Metrics,
            RoleName::Operator => Role::Operator,
        };
        Token::new(&text, role).ok_or(TokenError::Text { place })
    });
    Ok(Some((setup, Tokens::new(tokens.collect::<Result<_, TokenError>>()?))))
}
