//! What the lanes did and waited for, counted where it happens: every wait of the host goes through here.

use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{CudaEvent, CudaStream};

use crate::gpu::error::GpuError;

/// Counters of all lanes.
#[derive(Debug, Default)]
pub struct Watch {
    batches: AtomicU64,
    event_waits: AtomicU64,
    stream_waits: AtomicU64,
    uploads: AtomicU64,
    upload_bytes: AtomicU64,
    decode_micros: AtomicU64,
    compute_micros: AtomicU64,
}

/// Their values at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches that were finished.
    pub batches: u64,
    /// Times that the host waited for one event.
    pub event_waits: u64,
    /// Times that the host waited for a whole stream: after a failure alone.
    pub stream_waits: u64,
    /// Copies of pixels that the CPU decoded.
    pub uploads: u64,
    /// Their bytes.
    pub upload_bytes: u64,
    /// Time between the first and the last event of decoding, over all batches, in microseconds.
    pub decode_micros: u64,
    /// The same of computing; it includes waiting for another lane's kernels.
    pub compute_micros: u64,
}

impl Watch {
    /// Waits for an event.
    pub fn event_wait(&self, event: &CudaEvent) -> Result<(), GpuError> {
        self.event_waits.fetch_add(1, Ordering::Relaxed);
        event.synchronize().map_err(|error| GpuError::cuda("waiting for a batch", error))
    }

    /// Waits for a stream.
    pub fn stream_wait(&self, stream: &CudaStream) -> Result<(), GpuError> {
        self.stream_waits.fetch_add(1, Ordering::Relaxed);
        stream.synchronize().map_err(|error| GpuError::cuda("waiting for a stream", error))
    }

    /// Notes a copy of pixels.
    pub fn uploaded(&self, bytes: usize) {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.upload_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes a finished batch by its events.
    pub fn batch(&self, decode: (&CudaEvent, &CudaEvent), compute: (&CudaEvent, &CudaEvent)) -> Result<(), GpuError> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.decode_micros.fetch_add(between(decode)?, Ordering::Relaxed);
        self.compute_micros.fetch_add(between(compute)?, Ordering::Relaxed);
        Ok(())
    }

    /// The values now.
    pub fn counts(&self) -> Counts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            batches: value(&self.batches),
            event_waits: value(&self.event_waits),
            stream_waits: value(&self.stream_waits),
            uploads: value(&self.uploads),
            upload_bytes: value(&self.upload_bytes),
            decode_micros: value(&self.decode_micros),
            compute_micros: value(&self.compute_micros),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time is not negative; it saturates")]
fn between((from, to): (&CudaEvent, &CudaEvent)) -> Result<u64, GpuError> {
    let milliseconds = from.elapsed_ms(to).map_err(|error| GpuError::cuda("reading the time", error))?;
    Ok((f64::from(milliseconds) * 1e3) as u64)
}
