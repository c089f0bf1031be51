//! The only reader of what a worker says. One packet is one frame; it is received into a buffer of fixed size, with
//! no room for descriptors, and never waited for past its deadline. Whatever is not a whole, well-formed event is a
//! protocol error, after which the worker is killed: nothing a worker sends can be waited out or talked over.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair};
use refmill::wire::{self, Event, MAX_FRAME_BYTES, Region, WireError};

use crate::shutdown::Stop;

/// The supervisor's end of a worker's socket.
#[derive(Debug)]
pub struct Mailbox {
    socket: OwnedFd,
    frame: Vec<u8>,
}

/// Why no event came, or why what came is none.
#[derive(Debug, thiserror::Error)]
pub enum MailboxError {
    /// Nothing came before the deadline.
    #[error("no answer before the deadline")]
    Timeout,
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
    /// The other end is closed, or an empty packet came, which looks the same.
    #[error("the worker closed its socket")]
    Gone,
    /// A packet that is longer than any frame; the rest of it is discarded.
    #[error("packet has more than {MAX_FRAME_BYTES} bytes, the limit for a frame")]
    Oversized,
    /// A packet with descriptors; the kernel closed them, none was received.
    #[error("packet carries descriptors, a worker sends none")]
    Descriptors,
    /// The packet is not a frame, or the frame not an event.
    #[error(transparent)]
    Frame(#[from] WireError),
    /// The socket failed.
    #[error("worker's socket failed")]
    Socket(#[source] Errno),
}

impl Mailbox {
    /// Both ends of a new socket: this one, and the one for the worker. Both are closed by exec.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // One byte more than a frame may have, so that a longer packet is seen even where a flag is lost.
        Ok((Self { socket: ours, frame: vec![0; MAX_FRAME_BYTES + 1] }, theirs))
    }

    /// The next event, if it comes before `deadline` and before `stop`.
    ///
    /// # Errors
    /// [`MailboxError`]; after any but `Timeout` and `Interrupted` the worker must not be listened to any more.
    pub fn receive(&mut self, deadline: Instant, stop: &Stop) -> Result<Event, MailboxError> {
        loop {
            self.wait(PollFlags::POLLIN, deadline, stop)?;
            match self.take_packet() {
                Ok(len) => return Ok(wire::decode(self.frame.get(..len).unwrap_or_default())?),
                Err(MailboxError::Socket(Errno::EAGAIN | Errno::EINTR)) if Instant::now() < deadline => {}
                Err(MailboxError::Socket(Errno::EAGAIN | Errno::EINTR)) => return Err(MailboxError::Timeout),
                Err(error) => return Err(error),
            }
        }
    }

    fn take_packet(&mut self) -> Result<usize, MailboxError> {
        // Without a buffer for control data the kernel cannot install a descriptor in this process: it closes what
        // came and sets MSG_CTRUNC. A buffer would have to be emptied and every descriptor closed by hand.
        let mut parts = [IoSliceMut::new(&mut self.frame)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let packet = recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, None, flags);
        let (len, flags) = match packet {
            Ok(packet) => (packet.bytes, packet.flags),
            Err(Errno::ECONNRESET) => return Err(MailboxError::Gone),
            Err(errno) => return Err(MailboxError::Socket(errno)),
        };
        if flags.contains(MsgFlags::MSG_CTRUNC) {
            return Err(MailboxError::Descriptors);
        }
        if flags.contains(MsgFlags::MSG_TRUNC) || len > MAX_FRAME_BYTES {
            return Err(MailboxError::Oversized);
        }
        if len == 0 { Err(MailboxError::Gone) } else { Ok(len) }
    }

    /// Hands the worker a region of memory.
    ///
    /// # Errors
    /// [`MailboxError`]: `Timeout` where the worker does not take what was sent before.
    pub fn send_region(
        &self,
        region: Region,
        memory: BorrowedFd<'_>,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(), MailboxError> {
        let frame = wire::encode(&region)?;
        let descriptors = [memory.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            self.wait(PollFlags::POLLOUT, deadline, stop)?;
            match sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&frame)], &rights, flags, None) {
                Ok(_) => return Ok(()),
                Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < deadline => {}
                Err(Errno::EAGAIN | Errno::EINTR) => return Err(MailboxError::Timeout),
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(MailboxError::Gone),
                Err(errno) => return Err(MailboxError::Socket(errno)),
            }
        }
    }

    /// Waits for the socket; a stop wins over a socket that is ready.
    fn wait(&self, events: PollFlags, deadline: Instant, stop: &Stop) -> Result<(), MailboxError> {
        loop {
            let mut polled = [PollFd::new(stop.as_fd(), PollFlags::POLLIN), PollFd::new(self.socket.as_fd(), events)];
            let ready = match poll(&mut polled, timeout(deadline)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(MailboxError::Socket(errno)),
            };
            if stop.is_requested() {
                return Err(MailboxError::Interrupted);
            }
            if ready > 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(MailboxError::Timeout);
            }
        }
    }
}

/// What is left until `deadline`, rounded up so that poll does not return just before it.
fn timeout(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now()).saturating_add(Duration::from_micros(999));
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}
