//! How an object is written: whole, or in parts where it is large; and never over one that refmill did not make.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, MultipartUpload, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions, PutPayload,
};
use tokio::task::JoinHandle;

use super::bucket::{Bucket, path};
use super::connection::Patience;
use super::error::{Kind, StoreError};

/// What is longer goes in parts of this length, in bytes; the least that S3 takes is 5 MiB.
const PART: u64 = 8 << 20;
/// S3 takes 10,000 parts.
const MOST_PARTS: u64 = 9_000;
/// How many parts of one object are under way at a time.
const UNDER_WAY: usize = 4;
/// Whether a server heeds `If-None-Match` when it is written to: not known yet.
pub(super) const UNKNOWN: u8 = 0;
/// It does.
const HEEDED: u8 = 1;
/// It does not.
const UNHEEDED: u8 = 2;
/// The user metadata by which refmill knows what it made.
const OWNER: &str = "refmill-batch";

/// What is written, and where.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The key.
    pub key: &'a str,
    /// The MIME type.
    pub kind: &'static str,
    /// The mark that it belongs to.
    pub owner: &'a str,
    /// Whether to replace what refmill did not make.
    pub force: bool,
}

/// Takes an object's bytes. Nothing of it can be seen at its key before [`Upload::finish`]; dropped before that, it
/// leaves nothing that counts.
pub struct Upload<'a> {
    bucket: &'a Bucket,
    target: Target<'a>,
    path: Path,
    part: usize,
    buffer: Vec<u8>,
    parts: Option<Parts>,
}

struct Parts {
    upload: Box<dyn MultipartUpload>,
    under_way: VecDeque<JoinHandle<Result<(), StoreError>>>,
}

impl fmt::Debug for Upload<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Upload").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Bucket {
    /// Begins to write an object of about `bytes` bytes.
    ///
    /// # Errors
    /// [`Kind::Refused`] for a key that cannot be written.
    pub fn upload<'a>(&'a self, target: Target<'a>, bytes: u64) -> Result<Upload<'a>, StoreError> {
        let part = usize::try_from(PART.max(bytes / MOST_PARTS)).unwrap_or(usize::MAX);
        Ok(Upload { bucket: self, target, path: path(target.key)?, part, buffer: Vec::new(), parts: None })
    }

    /// Whether an object is one that a batch made; none where there is no object.
    ///
    /// # Errors
    /// [`StoreError`]
    pub fn is_ours(&self, key: &str) -> Result<Option<bool>, StoreError> {
        let path = path(key)?;
        self.connection.wait(&Patience::ENDLESS, self.owned(&path))
    }

    async fn owned(&self, path: &Path) -> Result<Option<bool>, StoreError> {
        let _permit = self.connection.permit().await;
        match self.store.get_opts(path, GetOptions { head: true, ..GetOptions::default() }).await {
            Ok(found) => Ok(Some(found.attributes.get(&Attribute::Metadata(OWNER.into())).is_some())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StoreError::from_client(&error)),
        }
    }
}

impl Upload<'_> {
    /// Puts the object in its place.
    ///
    /// # Errors
    /// [`StoreError`]; [`Kind::Exists`] where something is there that refmill did not make.
    pub fn finish(mut self) -> Result<(), StoreError> {
        let last = std::mem::take(&mut self.buffer);
        let connection = &self.bucket.connection;
        match self.parts.take() {
            None => connection.wait(&Patience::ENDLESS, self.whole(last.into())),
            Some(mut parts) => connection.wait(&Patience::ENDLESS, async {
                let done = async {
                    self.send(&mut parts, last, 0).await?;
                    parts.upload.complete().await.map_err(|error| StoreError::from_client(&error))
                };
                let done = done.await.map(drop);
                if done.is_err() {
                    // What it leaves there takes room and no more; the first error is the one to tell.
                    parts.upload.abort().await.ok();
                }
                done
            }),
        }
    }

    /// Creates the object; where there is one already, replaces it if it is ours. Some servers refuse conditions and
    /// some do not look at them: there, who made what is there is asked first.
    async fn whole(&self, bytes: Bytes) -> Result<(), StoreError> {
        let heeds = &self.bucket.heeds;
        let known = heeds.load(Ordering::Relaxed);
        if known != HEEDED {
            self.permission().await?;
        }
        if known == UNHEEDED {
            return self.put(bytes, PutMode::Overwrite).await;
        }
        let created = self.bucket.connection.retried(|| self.put(bytes.clone(), PutMode::Create)).await;
        match created {
            Err(error) if matches!(error.kind, Kind::Exists | Kind::Unsupported) => {
                if known == HEEDED {
                    self.permission().await?;
                }
                if error.kind == Kind::Unsupported {
                    heeds.store(UNHEEDED, Ordering::Relaxed);
                }
                self.put(bytes, PutMode::Overwrite).await
            }
            Ok(()) if known == UNKNOWN => {
                // Now it is there: the same once more, with the same bytes, shows whether the condition counts.
                match self.put(bytes, PutMode::Create).await {
                    Err(error) if error.kind == Kind::Exists => heeds.store(HEEDED, Ordering::Relaxed),
                    Ok(()) => heeds.store(UNHEEDED, Ordering::Relaxed),
                    Err(_) => {}
                }
                Ok(())
            }
            answer => answer,
        }
    }

    async fn put(&self, bytes: Bytes, mode: PutMode) -> Result<(), StoreError> {
        let _permit = self.bucket.connection.permit().await;
        self.bucket.connection.pace(bytes.len()).await;
        let options = PutOptions { mode, attributes: self.attributes(), ..PutOptions::default() };
        let put = self.bucket.store.put_opts(&self.path, PutPayload::from(bytes), options).await;
        put.map(drop).map_err(|error| StoreError::from_client(&error))
    }

    async fn permission(&self) -> Result<(), StoreError> {
        if !self.target.force && self.bucket.owned(&self.path).await? == Some(false) {
            let message = "an object is there that refmill did not make; --force replaces it";
            return Err(StoreError::new(Kind::Exists, message));
        }
        Ok(())
    }

    fn attributes(&self) -> Attributes {
        let owner = AttributeValue::from(self.target.owner.to_owned());
        Attributes::from_iter([
            (Attribute::ContentType, AttributeValue::from(self.target.kind)),
            (Attribute::Metadata(OWNER.into()), owner),
        ])
    }

    /// Sends one part, and waits until no more than `left` are under way.
    async fn send(&self, parts: &mut Parts, bytes: Vec<u8>, left: usize) -> Result<(), StoreError> {
        if !bytes.is_empty() {
            self.bucket.connection.pace(bytes.len()).await;
            let (sent, connection) = (parts.upload.put_part(bytes.into()), Arc::clone(&self.bucket.connection));
            parts.under_way.push_back(self.bucket.connection.beside(async move {
                let _permit = connection.permit().await;
                sent.await.map_err(|error| StoreError::from_client(&error))
            }));
        }
        while parts.under_way.len() > left {
            let Some(first) = parts.under_way.pop_front() else { break };
            first.await.map_err(|error| StoreError::new(Kind::Refused, error.to_string()))??;
        }
        Ok(())
    }

    fn flush_part(&mut self) -> Result<(), StoreError> {
        let bytes = std::mem::take(&mut self.buffer);
        let bucket = self.bucket;
        let mut parts = self.parts.take();
        let sent = bucket.connection.wait(&Patience::ENDLESS, async {
            let parts = match &mut parts {
                Some(parts) => parts,
                none => {
                    self.permission().await?;
                    let options =
                        PutMultipartOptions { attributes: self.attributes(), ..PutMultipartOptions::default() };
                    let upload = bucket.store.put_multipart_opts(&self.path, options).await;
                    let upload = upload.map_err(|error| StoreError::from_client(&error))?;
                    none.insert(Parts { upload, under_way: VecDeque::new() })
                }
            };
            self.send(parts, bytes, UNDER_WAY).await
        });
        self.parts = parts;
        sent
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full buffer goes only when more comes: what fits into one part is written whole.
        if self.buffer.len() >= self.part {
            self.flush_part().map_err(io::Error::other)?;
        }
        let room = self.part.saturating_sub(self.buffer.len());
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.buffer.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if let Some(mut parts) = self.parts.take() {
            parts.under_way.iter().for_each(JoinHandle::abort);
            // As in `finish`.
            drop(self.bucket.connection.wait(&Patience::ENDLESS, async {
                parts.upload.abort().await.map_err(|error| StoreError::from_client(&error))
            }));
        }
    }
}
