//! Buffers of tensors that were written out, kept for the next image: fresh memory costs a page fault every 4 KiB,
//! which for the tensors of one image took a fifth of the whole derivation (measured: 4 of 20 ms).

use super::Derivation;

/// The buffers of the last image that was given back; never more than that image had.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    kept: Vec<Vec<u8>>,
}

impl Spares {
    /// A buffer of `bytes` bytes of whatever value, from those kept where one is large enough.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let fitting = self.kept.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= bytes);
        match fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(at, _)| at) {
            Some(at) => {
                let mut buffer = self.kept.swap_remove(at);
                buffer.resize(bytes, 0);
                buffer
            }
            None => vec![0; bytes],
        }
    }

    /// Keeps the buffers of `derivation`, and frees those kept before.
    pub fn give(&mut self, derivation: Derivation) {
        self.kept = derivation.tensors.into_iter().map(|tensor| tensor.bytes).collect();
    }

    /// Bytes kept.
    pub fn held(&self) -> usize {
        self.kept.iter().map(Vec::capacity).sum()
    }
}
