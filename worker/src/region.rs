//! The memory that the supervisor made and sealed: a job's input, and where its artifacts go.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use refmill::failure::{Code, Failure};

/// Reads a job's input into `buffer`, whose memory is reused.
///
/// # Errors
/// [`Code::Internal`] where the region is shorter than the job says.
pub fn read_input(region: &File, len: u64, buffer: &mut Vec<u8>) -> Result<(), Failure> {
    let len = usize::try_from(len).map_err(|_| Failure::over_limit("input size in bytes", len, usize::MAX as u64))?;
    // What is kept of an earlier input is written over whole, or the input is refused.
    buffer.resize(len, 0);
    region
        .read_exact_at(buffer, 0)
        .map_err(|error| Failure::new(Code::Internal, format!("input region does not hold {len} bytes: {error}")))
}

/// Writes artifacts one after the other, never past the region's limit.
#[derive(Debug)]
pub struct Output<'a> {
    region: &'a File,
    at: u64,
    limit: u64,
    refused: Option<u64>,
}

impl<'a> Output<'a> {
    /// Begins at the start of the region.
    #[must_use]
    pub fn new(region: &'a File, limit: u64) -> Self {
        Self { region, at: 0, limit, refused: None }
    }

    /// The failure behind a write that did not fit, which encoders pass on as one of their own.
    #[must_use]
    pub fn overflow(&self) -> Option<Failure> {
        self.refused.map(|size| Failure::over_limit("size of the artifacts in bytes, at least,", size, self.limit))
    }

    /// How many bytes were written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.at
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.at);
        if (bytes.len() as u64) > room {
            self.refused = Some(self.at.saturating_add(bytes.len() as u64));
            let message = format!("job's artifacts exceed the limit of {} bytes", self.limit);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        let count = self.region.write_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_past_the_limit_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let mut output = Output::new(&file, 4);
        output.write_all(b"abcd").unwrap();
        assert_eq!(output.write(b"e").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(output.written(), 4);
        assert_eq!(output.overflow().unwrap().code, Code::OverLimit);
    }

    #[test]
    fn input_shorter_than_the_job_says_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(read_input(&file, 5, &mut Vec::new()).unwrap_err().code, Code::Internal);
    }
}
