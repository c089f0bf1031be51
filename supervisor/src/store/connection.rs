//! The way to one S3 server: settings, credentials, and a small runtime of its own. Nothing outside this module waits
//! in any other way than by blocking its thread.

use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, Certificate, ClientOptions, RetryConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::{Kind, StoreError};
use crate::shutdown::Stop;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// The first pause before a request is tried again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often who waits looks whether it still wants to.
const LOOK: Duration = Duration::from_millis(50);

/// Who refmill is to the server.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// An access key.
    Keys {
        /// Its id.
        id: String,
        /// Its secret.
        secret: String,
        /// The session token of a temporary one.
        token: Option<String>,
    },
    /// A role, by the variables with which AWS names one: a web identity token, or a container's own address.
    Role(Vec<(String, String)>),
    /// What the machine's metadata service says.
    Instance,
    /// Nobody: requests are not signed.
    Anonymous,
}

// A secret stands in no message.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Keys { .. } => "Keys",
            Self::Role(_) => "Role",
            Self::Instance => "Instance",
            Self::Anonymous => "Anonymous",
        })
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct Reach {
    /// `http(s)://host:port`; AWS's own of the region without one.
    pub endpoint: Option<String>,
    /// Whether the bucket is part of the host's name rather than of the path.
    pub virtual_hosted: bool,
    /// The region that requests are signed for.
    pub region: String,
    /// Who asks.
    pub credentials: Credentials,
    /// Certificates in PEM that are trusted instead of the system's.
    pub ca: Option<Vec<u8>>,
    /// Whether requests may go unencrypted.
    pub allow_http: bool,
    /// How many requests run at a time.
    pub concurrency: usize,
    /// How much goes over the wire a second, both ways together.
    pub bytes_per_second: Option<u64>,
    /// How long the server may be silent.
    pub timeout: Duration,
    /// For how long a request is tried again.
    pub retry: Duration,
}

/// A server that can be asked.
#[derive(Debug)]
pub struct Connection {
    runtime: Runtime,
    reach: Reach,
    permits: Semaphore,
    // When the wire is free again, where its use is bounded.
    free_at: Mutex<Instant>,
}

/// Whether the one who waits wants to go on waiting.
#[derive(Debug, Clone)]
pub struct Patience(Option<Stop>);

impl Patience {
    /// Until the answer is there, or the settings' own bounds say no.
    pub const ENDLESS: Self = Self(None);

    /// Until `stop` is requested.
    #[must_use]
    pub fn until(stop: &Stop) -> Self {
        Self(Some(stop.clone()))
    }

    async fn ends(&self) {
        match &self.0 {
            Some(stop) => {
                while !stop.is_requested() {
                    tokio::time::sleep(LOOK).await;
                }
            }
            None => std::future::pending().await,
        }
    }
}

impl Connection {
    /// Makes ready to ask; does not ask yet.
    ///
    /// # Errors
    /// [`Kind::Refused`], saying which setting cannot be used.
    pub fn new(reach: Reach) -> Result<Arc<Self>, StoreError> {
        let failed = |error: std::io::Error| StoreError::new(Kind::Refused, format!("cannot start a runtime: {error}"));
        // Somebody else in this process may have chosen already, and then that choice holds.
        rustls::crypto::ring::default_provider().install_default().ok();
        let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("store").enable_all().build();
        let (permits, free_at) = (Semaphore::new(reach.concurrency.max(1)), Mutex::new(Instant::now()));
        Ok(Arc::new(Self { runtime: runtime.map_err(failed)?, reach, permits, free_at }))
    }

    /// Blocks the thread until the answer is there or patience ends.
    pub(super) fn wait<T>(
        &self,
        patience: &Patience,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = patience.ends() => Err(StoreError::interrupted()),
                answer = answer => answer,
            }
        })
    }

    /// Does something beside the thread that asks.
    pub(super) fn beside<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// A place among the requests that run.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.permits.acquire().await.ok()
    }

    /// Waits until this many bytes may go over the wire.
    pub(super) async fn pace(&self, bytes: usize) {
        let Some(rate) = self.reach.bytes_per_second else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let begin = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = (*free_at).max(Instant::now());
            *free_at = begin + takes;
            begin
        };
        tokio::time::sleep_until(begin.into()).await;
    }

    /// Where a bucket's keys begin.
    pub(super) fn bucket_url(&self, bucket: &str) -> String {
        let Reach { endpoint, virtual_hosted, region, .. } = &self.reach;
        let endpoint = endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = endpoint.trim_end_matches('/');
        match endpoint.split_once("://") {
            Some((scheme, host)) if *virtual_hosted => format!("{scheme}://{bucket}.{host}"),
            _ => format!("{endpoint}/{bucket}"),
        }
    }

    pub(super) fn client_options(&self) -> Result<ClientOptions, StoreError> {
        let refused = |error: object_store::Error| {
            StoreError::new(Kind::Refused, format!("the CA file cannot be used: {}", super::error::innermost(&error)))
        };
        let options = ClientOptions::new()
            .with_allow_http(self.reach.allow_http)
            .with_timeout_disabled()
            .with_connect_timeout(CONNECT.min(self.reach.timeout))
            .with_read_timeout(self.reach.timeout)
            .with_pool_max_idle_per_host(self.reach.concurrency);
        let Some(pem) = &self.reach.ca else { return Ok(options) };
        let certificates = Certificate::from_pem_bundle(pem).map_err(refused)?;
        if certificates.is_empty() {
            return Err(StoreError::new(Kind::Refused, "the CA file has no certificate in PEM"));
        }
        let options = options.with_no_system_certificates(true);
        Ok(certificates.into_iter().fold(options, ClientOptions::with_root_certificate))
    }

    /// The client library's own view of a bucket.
    pub(super) fn builder(&self, bucket: &str) -> Result<AmazonS3Builder, StoreError> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&self.reach.region)
            .with_endpoint(self.bucket_url(bucket))
            // The address has the bucket in it already, whichever way.
            .with_virtual_hosted_style_request(true)
            .with_client_options(self.client_options()?)
            .with_retry(RetryConfig {
                backoff: BackoffConfig { init_backoff: FIRST_PAUSE, max_backoff: LONGEST_PAUSE, base: 2.0 },
                max_retries: usize::MAX,
                retry_timeout: self.reach.retry,
            });
        match &self.reach.credentials {
            Credentials::Keys { id, secret, token } => {
                builder = builder.with_access_key_id(id).with_secret_access_key(secret);
                if let Some(token) = token {
                    builder = builder.with_token(token);
                }
            }
            Credentials::Role(variables) => {
                for (name, value) in variables {
                    if let Ok(key) = AmazonS3ConfigKey::from_str(&name.to_ascii_lowercase()) {
                        builder = builder.with_config(key, value);
                    }
                }
            }
            Credentials::Instance => {}
            Credentials::Anonymous => builder = builder.with_skip_signature(true),
        }
        Ok(builder)
    }

    /// Tries again what a server could not answer, after pauses that grow, for as long as the settings say.
    pub(super) async fn retried<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let deadline = Instant::now() + self.reach.retry;
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt().await {
                Err(error) if error.kind == Kind::Unavailable && Instant::now() + pause < deadline => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                answer => return answer,
            }
        }
    }
}
