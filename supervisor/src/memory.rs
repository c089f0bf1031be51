//! The memory that both sides share: made, sized and sealed here, so that a worker can neither change an input
//! nor pull an output away under its reader. Nothing is mapped on this side; reads and writes are system calls.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Memory that a worker may keep in its output region from one job to the next, in bytes.
const KEPT_BYTES: u64 = 64 << 20;
/// How much is copied at a time, in bytes; stays in the core's cache while it is hashed.
const CHUNK: usize = 64 << 10;

/// The bytes of one input: sealed against any change, or, for a look at its headers, the file that has them.
#[derive(Debug)]
pub struct SealedInput {
    file: File,
    len: u64,
    blake3: String,
}

/// Why an input could not be taken into memory.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// More bytes than allowed; nothing was read past the first one too many.
    #[error("input has over {limit} bytes")]
    Long {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The source failed.
    #[error("cannot read")]
    Read(#[source] io::Error),
    /// The memory failed.
    #[error("cannot keep the input in memory")]
    Memory(#[source] io::Error),
}

impl SealedInput {
    /// Takes all of `source`, at most `limit` bytes, and hashes it on the way if `hashed` says so.
    ///
    /// # Errors
    /// [`FillError`]; the memory is given back.
    pub fn fill(source: impl Read, limit: u64, hashed: bool) -> Result<Self, FillError> {
        let mut file = region("refmill-input").map_err(FillError::Memory)?;
        let mut source = source.take(limit.saturating_add(1));
        let mut hasher = hashed.then(blake3::Hasher::new);
        // On the stack: a fresh megabyte for each of many small files costs more than all else here.
        let mut chunk = [0; CHUNK];
        let mut len: u64 = 0;
        loop {
            let read = match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FillError::Read(error)),
            };
            let bytes = chunk.get(..read).unwrap_or_default();
            len = len.saturating_add(bytes.len() as u64);
            if len > limit {
                return Err(FillError::Long { limit });
            }
            if let Some(hasher) = &mut hasher {
                hasher.update(bytes);
            }
            file.write_all(bytes).map_err(FillError::Memory)?;
        }
        seal(&file, SealFlag::F_SEAL_WRITE).map_err(FillError::Memory)?;
        let blake3 = hasher.map(|hasher| hasher.finalize().to_hex().to_string()).unwrap_or_default();
        Ok(Self { file, len, blake3 })
    }

    /// The file itself, opened for reading, whose first `len` bytes are the input. A worker reads what it needs of it,
    /// and nothing is copied here; what somebody writes there meanwhile, it may read.
    #[must_use]
    pub fn lent(file: File, len: u64) -> Self {
        Self { file, len, blake3: String::new() }
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// BLAKE3-256, hexadecimal; empty where it was not wanted.
    #[must_use]
    pub fn blake3(&self) -> &str {
        &self.blake3
    }
}

impl AsFd for SealedInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Where one worker writes its artifacts: of one size for ever, empty until written.
#[derive(Debug)]
pub struct OutputRegion {
    file: File,
    len: u64,
}

impl OutputRegion {
    /// A region of `len` bytes that costs nothing yet.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(len: u64) -> io::Result<Self> {
        let file = region("refmill-output")?;
        file.set_len(len)?;
        seal(&file, SealFlag::empty())?;
        Ok(Self { file, len })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the region has no room at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` bytes from `offset` on into `sink` and returns their BLAKE3-256, hexadecimal. What is hashed
    /// is what was copied, whatever the worker writes meanwhile.
    ///
    /// # Errors
    /// What reading or `sink` says; a range past the end is [`io::ErrorKind::UnexpectedEof`].
    pub fn copy_to(&self, offset: u64, bytes: u64, sink: &mut dyn Write) -> io::Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut chunk = [0; CHUNK];
        let mut done: u64 = 0;
        while done < bytes {
            let wanted = usize::try_from(bytes.saturating_sub(done)).unwrap_or(CHUNK).min(CHUNK);
            let part = chunk.get_mut(..wanted).unwrap_or_default();
            self.file.read_exact_at(part, offset.saturating_add(done))?;
            hasher.update(part);
            sink.write_all(part)?;
            done = done.saturating_add(part.len() as u64);
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Gives memory back between jobs where much is in use, whoever used it and wherever it lies.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reclaim(&self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let used = self.file.metadata()?.blocks().saturating_mul(512);
        if used <= KEPT_BYTES {
            return Ok(());
        }
        let len = i64::try_from(self.len).map_err(io::Error::other)?;
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        Ok(fallocate(&self.file, mode, 0, len)?)
    }
}

impl AsFd for OutputRegion {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn region(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?))
}

/// Seals the size, the seals themselves, and what `more` says.
fn seal(file: &File, more: SealFlag) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL | more;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_hashed_and_can_no_longer_be_written() {
        let input = SealedInput::fill(&b"abc"[..], 3, true).unwrap();
        assert_eq!((input.bytes(), input.blake3()), (3, blake3::hash(b"abc").to_hex().as_str()));
        assert!(input.file.write_at(b"x", 0).is_err());
        assert!(input.file.set_len(1).is_err());
    }

    #[test]
    fn input_that_need_not_be_hashed_has_no_hash() {
        let input = SealedInput::fill(&b"abc"[..], 3, false).unwrap();
        assert_eq!((input.bytes(), input.blake3()), (3, ""));
    }

    #[test]
    fn input_over_the_limit_is_refused_one_byte_past_it() {
        let mut source = io::repeat(7).take(1000);
        assert!(matches!(SealedInput::fill(&mut source, 10, true), Err(FillError::Long { limit: 10 })));
        assert_eq!(source.limit(), 1000 - 11);
    }

    #[test]
    fn output_keeps_its_size_and_can_be_written() {
        let region = OutputRegion::new(100).unwrap();
        assert!(region.file.set_len(10).is_err());
        region.file.write_all_at(b"xyz", 50).unwrap();
        let mut copy = Vec::new();
        let hash = region.copy_to(50, 3, &mut copy).unwrap();
        assert_eq!((copy.as_slice(), hash), (&b"xyz"[..], blake3::hash(b"xyz").to_hex().to_string()));
    }

    #[test]
    fn output_past_the_end_is_not_copied() {
        let region = OutputRegion::new(100).unwrap();
        let error = region.copy_to(98, 3, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn much_used_output_is_given_back() {
        use std::os::unix::fs::MetadataExt;
        let region = OutputRegion::new(80 << 20).unwrap();
        region.file.write_all_at(&vec![1; 65 << 20], 0).unwrap();
        region.reclaim().unwrap();
        assert_eq!(region.file.metadata().unwrap().blocks(), 0);
    }
}
