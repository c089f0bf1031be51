//! `/metrics`: the server's figures, for a scraper.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::task::spawn_blocking;

use super::problem::{Problem, Reason};
use super::tokens::{Role, Tokens};
use crate::queue::{Queue, QueueError, SqliteQueue};
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::Form;

/// What the figures are about. Clones are the same.
#[derive(Debug, Clone)]
struct Shared {
    queue: Arc<SqliteQueue>,
    telemetry: Arc<Telemetry>,
}

/// `/metrics` of this queue, for tokens of metrics and of operators.
pub fn figures(queue: Arc<SqliteQueue>, telemetry: Arc<Telemetry>, tokens: &Tokens) -> Router {
    let router = Router::new().route("/metrics", get(scrape)).with_state(Shared { queue, telemetry });
    tokens.guard(router, |role| matches!(role, Role::Metrics | Role::Operator))
}

async fn scrape(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let form = Form::wanted(headers.get(ACCEPT).and_then(|value| value.to_str().ok()));
    let read = move || -> Result<String, QueueError> {
        let (counts, tenants) = (shared.queue.counts()?, shared.queue.tenants()?);
        Ok(shared.telemetry.metrics.scrape((&counts, &tenants), now_ms(), form))
    };
    match spawn_blocking(read).await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, form.content_type())], text).into_response(),
        Ok(Err(error)) => Problem::of_queue(&error, &|text| tracing::warn!("{text}")).into_response(),
        // It panicked; the log has it.
        Err(_) => Problem::of(Reason::Unavailable, "the figures could not be read").into_response(),
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
