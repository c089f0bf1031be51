//! `/healthz` and `/readyz`, for whoever keeps the server running: no token, and nothing told that one would need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::problem::{Problem, Reason};

/// How the server is. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<State>);

#[derive(Debug, Default)]
struct State {
    works: AtomicBool,
    stuck: AtomicBool,
    ends: AtomicBool,
}

impl Health {
    /// A worker is ready.
    pub fn works(&self) {
        self.0.works.store(true, Ordering::Relaxed);
    }

    /// Whether the server makes no progress.
    pub fn stuck(&self, stuck: bool) {
        self.0.stuck.store(stuck, Ordering::Relaxed);
    }

    /// The server was asked to end.
    pub fn ends(&self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }

    /// Why jobs are not worked on now, if they are not.
    fn lacks(&self) -> Option<&'static str> {
        let State { works, stuck, ends } = &*self.0;
        let holds = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let all = [
            (holds(ends), "the server was asked to end"),
            (!holds(works), "no worker is ready yet"),
            (holds(stuck), "the server makes no progress; its log says why"),
        ];
        all.into_iter().find_map(|(lacks, why)| lacks.then_some(why))
    }

    pub(super) fn router(&self) -> Router {
        let health = self.clone();
        let ready = async move || match health.lacks() {
            None => said("{\"status\":\"ready\"}\n"),
            Some(why) => Problem::of(Reason::NotReady, why).into_response(),
        };
        let alive = async || said("{\"status\":\"alive\"}\n");
        Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
    }
}

fn said(text: &'static str) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_ready_once_a_worker_is_until_it_is_stuck_or_ends() {
        let health = Health::default();
        assert_eq!(health.lacks(), Some("no worker is ready yet"));
        health.works();
        assert_eq!(health.lacks(), None);
        health.stuck(true);
        assert!(health.lacks().is_some());
        health.stuck(false);
        health.ends();
        assert_eq!(health.lacks(), Some("the server was asked to end"));
    }
}
