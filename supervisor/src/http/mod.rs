//! The HTTP server of `refmill serve`: bounded, behind bearer tokens, off unless configured. It runs on threads of its
//! own and blocks none of them; what asks the queue does so through [`tokio::task::spawn_blocking`].
//!
//! Whoever has something to serve gives a [`Router`] of its own, behind [`Tokens::guard`] where it is not for
//! everybody, and hands it to [`assembled`].

mod body;
mod figures;
mod health;
mod problem;
mod server;
mod tokens;

pub use body::whole;
pub use figures::figures;
pub use health::Health;
pub use problem::{Problem, Reason};
pub use server::{ListenError, Server, Setup};
pub use tokens::{Allowed, Caller, MIN_TOKEN, Role, Token, Tokens};

use axum::Router;

/// All that a server answers: what `parts` have, `/healthz`, `/readyz`, and problem details for the rest.
pub fn assembled(health: &Health, parts: impl IntoIterator<Item = Router>) -> Router {
    let missing = async || Problem::of(Reason::NotFound, "there is nothing at this path");
    let method = async || Problem::of(Reason::MethodNotAllowed, "this path does not take this method");
    let router = parts.into_iter().fold(health.router(), Router::merge);
    // It holds for the routes that are there by now.
    router.fallback(missing).method_not_allowed_fallback(method)
}
