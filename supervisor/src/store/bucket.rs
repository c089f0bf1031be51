//! One bucket: listed and read by requests of our own, since the client library knows no key with a leading or a
//! doubled slash; written by the library. Every call blocks its thread.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{CONTENT_LENGTH, IF_MATCH};
use http::{Method, Request};
use object_store::ObjectStoreExt;
use object_store::aws::{AmazonS3, AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequestBody, HttpResponse, ReqwestConnector,
};
use object_store::path::Path;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::connection::{Connection, Credentials, Patience};
use super::error::{Kind, StoreError, innermost};
use super::listing::Page;
use super::upload;

/// All but what RFC 3986 2.3 calls unreserved: what signatures expect in a query (AWS Signature Version 4).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same, and the slash: a key as a path.
const PATH: &AsciiSet = &QUERY.remove(b'/');
/// Longest page of a listing, in bytes: 1,000 keys of 1,024 bytes, thrice encoded, and as much again.
const MAX_PAGE: usize = 8 << 20;
/// Longest error that is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// A bucket.
pub struct Bucket {
    pub(super) connection: Arc<Connection>,
    pub(super) name: String,
    pub(super) store: Arc<AmazonS3>,
    pub(super) heeds: AtomicU8,
    url: String,
    client: HttpClient,
    credentials: AwsCredentialProvider,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bucket").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The bytes of an object, as they come.
pub struct Download {
    connection: Arc<Connection>,
    patience: Patience,
    stream: BoxStream<'static, Result<Bytes, HttpError>>,
    chunk: Bytes,
    /// The length that the server says, in bytes.
    pub bytes: Option<u64>,
}

impl fmt::Debug for Download {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Download").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Bucket {
    /// Makes ready to ask for this bucket.
    ///
    /// # Errors
    /// [`Kind::Refused`], saying which setting cannot be used.
    pub fn new(connection: &Arc<Connection>, name: &str) -> Result<Self, StoreError> {
        let refused = |error: object_store::Error| StoreError::new(Kind::Refused, innermost(&error));
        let store = connection.builder(name)?.build().map_err(refused)?;
        let client = ReqwestConnector::default().connect(&connection.client_options()?).map_err(refused)?;
        let (credentials, url) = (Arc::clone(store.credentials()), connection.bucket_url(name));
        let (connection, store) = (Arc::clone(connection), Arc::new(store));
        let heeds = AtomicU8::new(upload::UNKNOWN);
        Ok(Self { connection, name: name.to_owned(), store, heeds, url, client, credentials })
    }

    /// What people call an object.
    #[must_use]
    pub fn address(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    /// One page of the objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`StoreError`]
    pub fn page(&self, prefix: &str, next: Option<&str>, most: u32, patience: &Patience) -> Result<Page, StoreError> {
        let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
        let next = next.map(|token| format!("continuation-token={}&", encoded(token))).unwrap_or_default();
        let prefix = encoded(prefix);
        let query = format!("?{next}encoding-type=url&list-type=2&max-keys={most}&prefix={prefix}");
        let asked = self.connection.retried(|| async {
            let answer = self.get(&query, None).await?;
            let bytes = collect(answer, MAX_PAGE).await?;
            Page::parse(&String::from_utf8_lossy(&bytes))
        });
        self.connection.wait(patience, asked).map_err(|error| error.about(&format!("cannot list s3://{}", self.name)))
    }

    /// Begins to read an object; where an ETag is given, only if it is still that one.
    ///
    /// # Errors
    /// [`StoreError`]; [`Kind::Changed`] for another ETag.
    pub fn read(&self, key: &str, etag: Option<&str>, patience: &Patience) -> Result<Download, StoreError> {
        if key.split('/').any(|part| matches!(part, "." | "..")) {
            // URLs have no such part: every client would ask for another key than this one (RFC 3986 5.2.4).
            return Err(StoreError::new(Kind::Refused, "a key with a part `.` or `..` cannot be asked for"));
        }
        let path = format!("/{}", utf8_percent_encode(key, PATH));
        let answer = self.connection.wait(patience, self.connection.retried(|| self.get(&path, etag)))?;
        let bytes = answer.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let (connection, patience) = (Arc::clone(&self.connection), patience.clone());
        Ok(Download { connection, patience, stream: answer.into_body().bytes_stream(), chunk: Bytes::new(), bytes })
    }

    /// All of a small object; none where there is no such object.
    ///
    /// # Errors
    /// [`StoreError`]; [`Kind::Refused`] where it has over `limit` bytes.
    pub fn small(&self, key: &str, limit: usize, patience: &Patience) -> Result<Option<Bytes>, StoreError> {
        let path = format!("/{}", utf8_percent_encode(key, PATH));
        let asked = self.connection.retried(|| async { collect(self.get(&path, None).await?, limit).await });
        match self.connection.wait(patience, asked) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind == Kind::NotFound && !error.message.contains("NoSuchBucket") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes an object; one that is not there is removed already.
    ///
    /// # Errors
    /// [`StoreError`]
    pub fn remove(&self, key: &str) -> Result<(), StoreError> {
        let removed = async {
            let path = path(key)?;
            match self.store.delete(&path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(StoreError::from_client(&error)),
            }
        };
        self.connection.wait(&Patience::ENDLESS, removed)
    }

    async fn get(&self, path_and_query: &str, etag: Option<&str>) -> Result<HttpResponse, StoreError> {
        let refused = |error: &dyn fmt::Display| StoreError::new(Kind::Refused, error.to_string());
        let mut request = Request::builder().method(Method::GET).uri(format!("{}{path_and_query}", self.url));
        if let Some(etag) = etag.filter(|etag| !etag.is_empty()) {
            request = request.header(IF_MATCH, etag);
        }
        let mut request = request.body(HttpRequestBody::empty()).map_err(|error| refused(&error))?;
        if self.connection.reach().credentials != Credentials::Anonymous {
            let credential = self.credentials.get_credential().await;
            let credential = credential.map_err(|error| StoreError::new(Kind::Denied, innermost(&error)))?;
            let signer = AwsAuthorizer::new(&credential, "s3", &self.connection.reach().region);
            signer.try_authorize(&mut request, None).map_err(|error| refused(&error))?;
        }
        let _permit = self.connection.permit().await;
        let answer = self.client.execute(request).await.map_err(|error| wire(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        // What cannot be read of an error is left out of the message.
        let body = collect(answer, MAX_ERROR).await.unwrap_or_default();
        Err(StoreError::from_status(status.as_u16(), &String::from_utf8_lossy(&body)))
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            let (connection, stream) = (Arc::clone(&self.connection), &mut self.stream);
            let next = connection.wait(&self.patience, async {
                let Some(chunk) = stream.next().await else { return Ok(None) };
                let chunk = chunk.map_err(|error| wire(&error))?;
                connection.pace(chunk.len()).await;
                Ok(Some(chunk))
            });
            match next.map_err(io::Error::other)? {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(0),
            }
        }
        let part = self.chunk.split_to(buffer.len().min(self.chunk.len()));
        buffer.get_mut(..part.len()).unwrap_or_default().copy_from_slice(&part);
        Ok(part.len())
    }
}

/// A key of ours as the client library writes it.
pub(super) fn path(key: &str) -> Result<Path, StoreError> {
    match Path::parse(key) {
        Ok(path) if path.as_ref() == key => Ok(path),
        _ => Err(StoreError::new(Kind::Refused, format!("key `{key}` cannot be written"))),
    }
}

async fn collect(answer: HttpResponse, limit: usize) -> Result<Bytes, StoreError> {
    let mut stream = answer.into_body().bytes_stream();
    let mut all = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| wire(&error))?;
        if all.len().saturating_add(chunk.len()) > limit {
            return Err(StoreError::new(Kind::Refused, format!("the answer has over {limit} bytes")));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.into())
}

/// What went wrong between here and the server. Certificates do not get better by trying again.
fn wire(error: &HttpError) -> StoreError {
    let why = innermost(error);
    let is_certificate = why.contains("certificate") || why.contains("URL scheme is not allowed");
    let kind = match error.kind() {
        _ if is_certificate => Kind::Refused,
        HttpErrorKind::Timeout => return StoreError::new(Kind::Unavailable, format!("no answer in time ({why})")),
        _ => Kind::Unavailable,
    };
    StoreError::new(kind, why)
}
