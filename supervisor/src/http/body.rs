//! The body of a request, bounded before memory is taken.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::problem::{Problem, Reason};

/// All of a body that has at most `limit` bytes.
///
/// # Errors
/// [`Reason::BodyTooLong`], by what its length is said to be or turns out to be; [`Reason::BadRequest`] where it breaks
/// off.
pub async fn whole(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Problem> {
    let long = || Problem::of(Reason::BodyTooLong, format!("the body has over {limit} bytes, the limit"));
    let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|said| said > limit) {
        return Err(long());
    }
    let (mut stream, mut all) = (body.into_data_stream(), BytesMut::new());
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Problem::of(Reason::BadRequest, "the body broke off"))?;
        if all.len().saturating_add(chunk.len()) > limit {
            return Err(long());
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}
