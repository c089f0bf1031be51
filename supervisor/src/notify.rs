//! What a service manager is told, in the protocol of sd_notify(3): datagrams to the socket that it names. Own code,
//! since it is one call of the standard library; the crates for it read the environment themselves, which here only
//! [`crate::settings`] does. Without a manager nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A service manager, or nobody.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Tells nobody.
    #[must_use]
    pub fn silent() -> Self {
        Self { socket: None, watchdog: None }
    }

    /// Tells whoever listens at `address`: a path, or an abstract name after an `@`. `watchdog` is how long the manager
    /// waits for a sign of life.
    ///
    /// # Errors
    /// An address that is none, or a socket that cannot be made.
    pub fn new(address: Option<&OsStr>, watchdog: Option<Duration>) -> io::Result<Self> {
        let Some(address) = address.filter(|address| !address.is_empty()) else { return Ok(Self::silent()) };
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read shall not stop what it manages.
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some((socket, address)), watchdog })
    }

    /// How often a sign of life is due: often enough that two may be lost.
    #[must_use]
    pub fn beat(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|period| period / 3)
    }

    /// The server works.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// The server ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The configuration is read again; [`Notifier::ready`] ends that.
    pub fn reloading(&self) {
        self.send("RELOADING=1");
    }

    /// The server makes progress.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// What the server does, in a line.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that is gone or does not listen is told nothing; it would be the one to hear of that.
            drop(socket.send_to_addr(state.as_bytes(), address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_nonblocking(true).unwrap();
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn manager_at_a_path_hears_each_state_as_a_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str()), Some(Duration::from_secs(30))).unwrap();
        notifier.ready();
        notifier.status("a\nb");
        assert_eq!((heard(&manager), heard(&manager)), ("READY=1".into(), "STATUS=a b".into()));
        assert_eq!(notifier.beat(), Some(Duration::from_secs(10)));
    }

    #[test]
    fn manager_at_an_abstract_name_hears_as_well() {
        let name = format!("refmill-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Notifier::new(Some(OsStr::new(&format!("@{name}"))), None).unwrap().alive();
        assert_eq!(heard(&manager), "WATCHDOG=1");
    }

    #[test]
    fn without_a_manager_nothing_is_due() {
        let notifier = Notifier::new(None, Some(Duration::from_secs(3))).unwrap();
        notifier.ready();
        assert_eq!(notifier.beat(), None);
    }

    #[test]
    fn manager_that_does_not_read_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str()), None).unwrap();
        (0..10_000).for_each(|_| notifier.alive());
    }
}
