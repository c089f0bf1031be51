//! Who may ask for what: bearer tokens (RFC 6750), known by their hashes alone.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::problem::{Problem, Reason};

/// Fewest characters of a token: what is shorter can be guessed.
pub const MIN_TOKEN: usize = 16;

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The jobs of one tenant.
    Tenant(String),
    /// Events of object stores, and nothing else.
    Events,
    /// Figures, and nothing else.
    Metrics,
    /// Everything of everybody, to look at and to cancel; not to submit, which only a tenant does.
    Operator,
}

/// A token, as its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    hash: blake3::Hash,
    role: Role,
}

// What could be looked up by its hash stands in no message.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Token").field("role", &self.role).finish_non_exhaustive()
    }
}

impl Token {
    /// A token of this text; none where it cannot be one: under [`MIN_TOKEN`] characters, or others than RFC 6750,
    /// section 2.1, has.
    #[must_use]
    pub fn new(text: &str, role: Role) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let sound = text.len() >= MIN_TOKEN && text.bytes().all(is_plain);
        sound.then(|| Self { hash: blake3::hash(text.as_bytes()), role })
    }
}

/// Whether a role may ask.
pub type Allowed = fn(&Role) -> bool;

/// All tokens that are known.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Arc<Vec<Token>>);

/// Who asks; an extension of each request that [`Tokens::guard`] lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(pub Role);

impl Tokens {
    /// These tokens and no others.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Self {
        Self(Arc::new(tokens))
    }

    /// Whether any token has such a role.
    #[must_use]
    pub fn any(&self, allowed: Allowed) -> bool {
        self.0.iter().any(|token| allowed(&token.role))
    }

    /// Lets only those through to `router` whose role `allowed` says yes to. What they ask for is not looked at before.
    pub fn guard(&self, router: Router, allowed: Allowed) -> Router {
        router.route_layer(from_fn_with_state((self.clone(), allowed), check))
    }

    /// Whose token a request has.
    fn role(&self, headers: &HeaderMap) -> Option<&Role> {
        let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let hash = blake3::hash(token.trim().as_bytes());
        // Hashes are compared in constant time, and all of them are.
        self.0.iter().fold(None, |found, token| if token.hash == hash { Some(&token.role) } else { found })
    }
}

async fn check(State((tokens, allowed)): State<(Tokens, Allowed)>, mut request: Request, next: Next) -> Response {
    match tokens.role(request.headers()) {
        None => Problem::of(Reason::Unauthorized, "no bearer token that is known came with it").into_response(),
        Some(role) if !allowed(role) => {
            Problem::of(Reason::Forbidden, "the token is not for this path").into_response()
        }
        Some(role) => {
            let caller = Caller(role.clone());
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(authorization: &str) -> Option<Role> {
        let of = |text: &str, role| Token::new(text, role).unwrap();
        let tenant = Role::Tenant("studio".into());
        let tokens = Tokens::new(vec![of("0123456789abcdef", tenant), of("fedcba9876543210", Role::Events)]);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, authorization.parse().unwrap())]);
        tokens.role(&headers).cloned()
    }

    #[test]
    fn token_is_known_by_its_whole_text_alone() {
        assert_eq!(role("Bearer 0123456789abcdef"), Some(Role::Tenant("studio".into())));
        assert_eq!(role("bearer fedcba9876543210"), Some(Role::Events));
        assert_eq!(role("Bearer 0123456789abcde"), None);
        assert_eq!(role("Basic 0123456789abcdef"), None);
        assert_eq!(role("0123456789abcdef"), None);
    }

    #[test]
    fn short_and_strange_tokens_are_none() {
        assert!(Token::new("0123456789abcde", Role::Events).is_none());
        assert!(Token::new("0123456789 abcdef", Role::Events).is_none());
        assert!(!format!("{:?}", Token::new("0123456789abcdef", Role::Events)).contains("0123"));
    }
}
