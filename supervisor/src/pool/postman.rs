//! Requests to one worker, on ipc-channel: the direction in which it may be trusted, since only its receiver
//! believes its sender. Sending can block where a worker does not read, so a thread does it; when the worker is
//! killed its end closes and the thread ends.

use std::io;
use std::path::{Component, Path};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ipc_channel::ipc::{self, IpcReceiver, IpcSender};
use refmill::wire::{MAX_SERVER_NAME, Request};

/// Sends requests, in order; the connection ends when it is dropped.
#[derive(Debug)]
pub struct Postman {
    requests: mpsc::Sender<Request>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum PostmanError {
    /// The name is not a socket in the worker's own folder.
    #[error("worker's server name of {bytes} bytes is not a path of at most {MAX_SERVER_NAME} in its own folder")]
    Name {
        /// Length of the name.
        bytes: usize,
    },
    /// The connection failed.
    #[error("cannot connect to the worker's server")]
    Connect(#[source] io::Error),
    /// The connection did not come about in time.
    #[error("the worker's server did not answer in time")]
    Timeout,
}

impl Postman {
    /// Connects to the server `name`, which must lie in `folder`, and hands the worker its receiver.
    ///
    /// # Errors
    /// [`PostmanError`]
    pub fn connect(name: &str, folder: &Path, time: Duration) -> Result<Self, PostmanError> {
        if !is_inside(name, folder) {
            return Err(PostmanError::Name { bytes: name.len() });
        }
        let (requests, queue) = mpsc::channel();
        let (connected, outcome) = mpsc::sync_channel(1);
        let name = name.to_owned();
        let carry = move || match open(name) {
            Ok(channel) => {
                // An error means that the caller gave up: the queue is closed then, and the loop below ends at once.
                drop(connected.send(Ok(())));
                while let Ok(request) = queue.recv() {
                    if channel.send(request).is_err() {
                        break;
                    }
                }
            }
            // As above: nobody is left to be told.
            Err(error) => drop(connected.send(Err(error))),
        };
        thread::Builder::new().name("postman".into()).spawn(carry).map_err(PostmanError::Connect)?;
        match outcome.recv_timeout(time) {
            Ok(Ok(())) => Ok(Self { requests }),
            Ok(Err(error)) => Err(PostmanError::Connect(error)),
            Err(_) => Err(PostmanError::Timeout),
        }
    }

    /// Sends a request. Whether it arrives shows in the worker's answer, or in its absence.
    pub fn send(&self, request: Request) {
        // An error means that the connection broke; the mailbox tells the same, with the reason.
        drop(self.requests.send(request));
    }
}

fn open(name: String) -> io::Result<IpcSender<Request>> {
    let server = IpcSender::<IpcReceiver<Request>>::connect(name)?;
    let (sender, receiver) = ipc::channel()?;
    server.send(receiver).map_err(io::Error::other)?;
    Ok(sender)
}

fn is_inside(name: &str, folder: &Path) -> bool {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    name.len() <= MAX_SERVER_NAME && !name.contains('\0') && plain && path.is_absolute() && path.starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc_channel::ipc::IpcOneShotServer;

    #[test]
    fn request_reaches_the_server() {
        let (server, name) = IpcOneShotServer::<IpcReceiver<Request>>::new().unwrap();
        let folder = Path::new(&name).parent().unwrap().to_owned();
        let postman = Postman::connect(&name, &folder, Duration::from_secs(20)).unwrap();
        postman.send(Request::Stop);
        let (_, receiver) = server.accept().unwrap();
        assert_eq!(receiver.recv().unwrap(), Request::Stop);
    }

    #[test]
    fn name_outside_the_workers_folder_is_refused() {
        assert!(!is_inside("/run/docker.sock", Path::new("/tmp/w")));
        assert!(!is_inside("/tmp/w/../x", Path::new("/tmp/w")));
        assert!(!is_inside("w/socket", Path::new("w")));
        assert!(!is_inside(&format!("/tmp/w/{}", "x".repeat(200)), Path::new("/tmp/w")));
        assert!(is_inside("/tmp/w/.tmpX/socket", Path::new("/tmp/w")));
    }

    #[test]
    fn server_that_is_not_there_is_told() {
        let error = Postman::connect("/tmp/refmill-none", Path::new("/tmp"), Duration::from_secs(20)).unwrap_err();
        assert!(matches!(error, PostmanError::Connect(_)), "{error}");
    }
}
