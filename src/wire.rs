//! How requests and events cross the process boundary.
//!
//! Towards the worker, [`Request`]s travel on an ipc-channel and descriptors as [`Region`] frames on a
//! SEQPACKET socket. Back come [`Event`]s on the same socket, one frame a packet:
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 0..4 | `RFML` |
//! | 4..6 | [`WIRE_VERSION`], little endian |
//! | 6..8 | zero |
//! | 8..12 | length of what follows, little endian |
//! | 12.. | the event, postcard |
//!
//! The reader takes a worker's word for nothing: a frame that is short, long, of another version or with bytes
//! left over is a [`WireError`], and the worker that sent it is killed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::beat::{Beat, Counters};
use crate::examine::Examination;
use crate::job::Job;
use crate::posture::Posture;
use crate::report::{Device, Report};

/// Version of the protocol; both sides must have the same.
pub const WIRE_VERSION: u16 = 4;
/// Longest frame from a worker, header included, in bytes.
pub const MAX_FRAME_BYTES: usize = 64 << 10;
/// Longest name of the worker's ipc-channel server, in bytes; a Unix socket path.
pub const MAX_SERVER_NAME: usize = 107;

const MAGIC: [u8; 4] = *b"RFML";
const HEADER: usize = 12;

/// What the supervisor asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Process one image; its regions were sent before.
    Run(Box<Job>),
    /// End, with nothing in hand.
    Stop,
    /// Try out, confined as you are, what jobs need.
    Examine,
}

/// What a descriptor that the supervisor sends is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Region {
    /// The bytes of one job's image, sealed against any change.
    Input,
    /// Where artifacts are written, sealed against growing and shrinking; kept until replaced.
    Output,
}

/// What a worker tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The process runs; its ipc-channel server waits under this name.
    Hello {
        /// Path of the server's socket.
        server: String,
    },
    /// The device is up, confinement is closed, jobs may come.
    Ready {
        /// The device and why it was chosen.
        device: Device,
        /// What confines it.
        posture: Posture,
    },
    /// A job ended.
    Done {
        /// The job.
        id: u64,
        /// Its report; artifacts lie in the output region.
        report: Box<Report>,
        /// What the worker counted, this job included.
        counters: Counters,
    },
    /// The worker lives.
    Beat(Beat),
    /// The worker cannot go on and ends with this reason.
    Fatal {
        /// The reason, for the log.
        message: String,
    },
    /// What was tried out, and how it went.
    Examined(Box<Examination>),
}

/// Why a frame is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than a header.
    #[error("frame has {got} bytes, the header alone has {HEADER}")]
    Short {
        /// Bytes received.
        got: usize,
    },
    /// More bytes than allowed.
    #[error("frame has {got} bytes, the limit is {MAX_FRAME_BYTES}")]
    Long {
        /// Bytes received or to be sent.
        got: usize,
    },
    /// Not our protocol.
    #[error("frame does not begin with the magic bytes")]
    Magic,
    /// Another version of it.
    #[error("frame is of protocol version {got}, this side speaks {WIRE_VERSION}")]
    Version {
        /// The version received.
        got: u16,
    },
    /// The header's length is not the packet's.
    #[error("frame claims {claimed} bytes after its header, the packet holds {got}")]
    Length {
        /// What the header says.
        claimed: u32,
        /// What there is.
        got: usize,
    },
    /// The payload is not the message.
    #[error("frame's payload does not decode")]
    Payload,
}

/// Puts a message into one frame.
///
/// # Errors
/// [`WireError::Long`] for a message over [`MAX_FRAME_BYTES`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    let payload = postcard::to_stdvec(message).map_err(|_| WireError::Payload)?;
    let len = payload.len();
    let total = len.saturating_add(HEADER);
    let Ok(claimed) = u32::try_from(len) else { return Err(WireError::Long { got: total }) };
    if total > MAX_FRAME_BYTES {
        return Err(WireError::Long { got: total });
    }
    let mut frame = Vec::with_capacity(total);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&WIRE_VERSION.to_le_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&claimed.to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

/// Reads one frame. Allocates no more than the frame's own length allows.
///
/// # Errors
/// A [`WireError`] for anything that [`encode`] would not have written.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, WireError> {
    let got = frame.len();
    if got > MAX_FRAME_BYTES {
        return Err(WireError::Long { got });
    }
    let Some((header, payload)) = frame.split_at_checked(HEADER) else { return Err(WireError::Short { got }) };
    let &[m0, m1, m2, m3, v0, v1, z0, z1, l0, l1, l2, l3] = header else { return Err(WireError::Short { got }) };
    if [m0, m1, m2, m3] != MAGIC || [z0, z1] != [0, 0] {
        return Err(WireError::Magic);
    }
    let version = u16::from_le_bytes([v0, v1]);
    if version != WIRE_VERSION {
        return Err(WireError::Version { got: version });
    }
    let claimed = u32::from_le_bytes([l0, l1, l2, l3]);
    if usize::try_from(claimed) != Ok(payload.len()) {
        return Err(WireError::Length { claimed, got: payload.len() });
    }
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(WireError::Payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Source;

    fn hello() -> Vec<u8> {
        encode(&Event::Hello { server: "/tmp/x".into() }).unwrap()
    }

    #[test]
    fn event_survives_the_wire() {
        let report = Box::new(Report::new(Source::default()));
        let event = Event::Done { id: 7, report, counters: Counters::default() };
        assert_eq!(decode(&encode(&event).unwrap()), Ok(event));
    }

    #[test]
    fn short_frame_is_refused() {
        assert_eq!(decode::<Event>(&hello()[..11]), Err(WireError::Short { got: 11 }));
    }

    #[test]
    fn frame_with_a_false_length_is_refused() {
        let mut frame = hello();
        frame[8] = 0xff;
        assert!(matches!(decode::<Event>(&frame), Err(WireError::Length { claimed: 255, .. })));
    }

    #[test]
    fn frame_of_another_version_is_refused() {
        let mut frame = hello();
        frame[4] = 9;
        assert_eq!(decode::<Event>(&frame), Err(WireError::Version { got: 9 }));
    }

    #[test]
    fn payload_with_bytes_left_over_is_refused() {
        let mut frame = hello();
        frame.push(0);
        frame[8] += 1;
        assert_eq!(decode::<Event>(&frame), Err(WireError::Payload));
    }

    #[test]
    fn payload_that_claims_a_huge_string_is_refused() {
        let mut frame = hello();
        frame.truncate(HEADER);
        frame.extend_from_slice(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        frame[8] = 6;
        assert_eq!(decode::<Event>(&frame), Err(WireError::Payload));
    }

    #[test]
    fn message_over_the_limit_is_not_encoded() {
        let event = Event::Fatal { message: "x".repeat(MAX_FRAME_BYTES) };
        assert!(matches!(encode(&event), Err(WireError::Long { .. })));
    }
}
