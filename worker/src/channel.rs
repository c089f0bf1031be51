//! The worker's ends of the process boundary: events out and descriptors in on one SEQPACKET socket, requests in
//! on an ipc-channel.
#![allow(unsafe_code, reason = "descriptors received from the supervisor have to be adopted")]

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{FromRawFd, RawFd};

use ipc_channel::ipc::{IpcOneShotServer, IpcReceiver};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};
use refmill::wire::{self, Event, Region, Request};

/// Why the boundary cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The supervisor is gone.
    #[error("supervisor closed the channel")]
    Closed,
    /// Something that is not in the protocol.
    #[error("supervisor broke the protocol: {0}")]
    Protocol(String),
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl Fn(Errno) -> ChannelError {
    move |errno| ChannelError::System { what, source: errno.into() }
}

/// Both ends.
#[derive(Debug)]
pub struct Channel {
    socket: RawFd,
    requests: IpcReceiver<Request>,
}

impl Channel {
    /// Says hello on the inherited socket and waits for the supervisor to hand over the request channel.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn open(socket: RawFd) -> Result<Self, ChannelError> {
        let (server, name) = IpcOneShotServer::<IpcReceiver<Request>>::new()
            .map_err(|source| ChannelError::System { what: "creating the request server", source })?;
        post(socket, &Event::Hello { server: name })?;
        let (_, requests) = server.accept().map_err(|error| ChannelError::Protocol(error.to_string()))?;
        Ok(Self { socket, requests })
    }

    /// Sends an event.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] where nobody listens, [`ChannelError::Protocol`] for an event over the limit.
    pub fn send(&self, event: &Event) -> Result<(), ChannelError> {
        post(self.socket, event)
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the supervisor went away.
    pub fn receive(&self) -> Result<Request, ChannelError> {
        self.requests.recv().map_err(|_| ChannelError::Closed)
    }

    /// Takes the descriptors that were sent before the last request.
    ///
    /// # Errors
    /// [`ChannelError::Protocol`] for a frame without its descriptor or with others.
    pub fn regions(&self) -> Result<Vec<(Region, File)>, ChannelError> {
        let mut regions = Vec::new();
        while let Some(region) = receive_region(self.socket)? {
            regions.push(region);
        }
        Ok(regions)
    }
}

/// Sends one event on the inherited socket; used also before the channel is whole.
///
/// # Errors
/// Those of [`Channel::send`].
pub fn post(socket: RawFd, event: &Event) -> Result<(), ChannelError> {
    let frame = wire::encode(event).map_err(|error| ChannelError::Protocol(error.to_string()))?;
    loop {
        return match send(socket, &frame, MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(Errno::EINTR) => continue,
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(ChannelError::Closed),
            Err(errno) => Err(system("sending an event")(errno)),
        };
    }
}

/// Sends one event where there is room for it; `false` where there is none.
///
/// # Errors
/// Those of [`Channel::send`].
pub fn post_if_room(socket: RawFd, event: &Event) -> Result<bool, ChannelError> {
    let frame = wire::encode(event).map_err(|error| ChannelError::Protocol(error.to_string()))?;
    match send(socket, &frame, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(ChannelError::Closed),
        Err(errno) => Err(system("sending a beat")(errno)),
    }
}

fn receive_region(socket: RawFd) -> Result<Option<(Region, File)>, ChannelError> {
    // A region's frame is its header and one byte; what is cut does not decode.
    let mut buffer = [0; 64];
    let mut control = cmsg_space!([RawFd; 1]);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match recvmsg::<()>(socket, &mut slices, Some(&mut control), flags) {
        Ok(message) => message,
        Err(Errno::EAGAIN) => return Ok(None),
        Err(errno) => return Err(system("receiving a descriptor")(errno)),
    };
    let length = message.bytes;
    let mut descriptors = Vec::new();
    for item in message.cmsgs().map_err(system("reading control data"))? {
        if let ControlMessageOwned::ScmRights(received) = item {
            // SAFETY: the kernel just installed these descriptors in this process for this message, and nothing else
            // knows their numbers, so each is owned exactly once.
            descriptors.extend(received.into_iter().map(|raw| unsafe { File::from_raw_fd(raw) }));
        }
    }
    if length == 0 && descriptors.is_empty() {
        return Err(ChannelError::Closed);
    }
    let frame = buffer.get(..length).unwrap_or_default();
    let region = wire::decode(frame).map_err(|error| ChannelError::Protocol(error.to_string()))?;
    match (descriptors.pop(), descriptors.is_empty()) {
        (Some(file), true) => Ok(Some((region, file))),
        _ => Err(ChannelError::Protocol(format!("{region:?} came without its one descriptor"))),
    }
}
