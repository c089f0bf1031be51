//! Connections: how many there may be, how long they may take, and where they come from. Own code around hyper, since
//! axum's own loop bounds neither their number nor the time that a request's head may take.

use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::problem::{Problem, Reason};

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// How long a connection may live; then it is ended after the answer that is under way.
const LIFE: Duration = Duration::from_secs(3_600);
/// How long the end of the server waits for answers that are under way.
const GRACE: Duration = Duration::from_secs(5);
/// After how long a listener that has failed, such as for want of descriptors, is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Threads that may wait for the queue or the disk at a time.
const BLOCKING: usize = 16;

/// Where the server listens, and what bounds it.
#[derive(Debug, Clone)]
pub struct Setup {
    /// An address.
    pub listen: Option<SocketAddr>,
    /// A Unix socket, which only this user may connect to.
    pub socket: Option<PathBuf>,
    /// Most connections at a time, to each of both; further ones wait.
    pub connections: usize,
    /// How long a request may take, its body and the answer's beginning included.
    pub patience: Duration,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {place}: {source}")]
pub struct ListenError {
    /// The address or the path.
    pub place: String,
    /// Why.
    pub source: io::Error,
}

/// A server that answers until it is dropped.
#[derive(Debug)]
pub struct Server {
    runtime: Option<Runtime>,
    ending: watch::Sender<bool>,
    idle: Vec<(Arc<Semaphore>, u32)>,
    socket: Option<PathBuf>,
    /// Where it listens, as people write it.
    pub places: Vec<String>,
}

impl Server {
    /// Listens, and answers as `router` says.
    ///
    /// # Errors
    /// [`ListenError`]
    pub fn start(setup: &Setup, router: Router) -> Result<Self, ListenError> {
        let failed = |place: &dyn ToString| {
            let place = place.to_string();
            move |source| ListenError { place, source }
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BLOCKING)
            .thread_name("http")
            .enable_all()
            .build()
            .map_err(failed(&"any place"))?;
        let (ending, _) = watch::channel(false);
        let router = router.layer(from_fn_with_state(setup.patience, bounded));
        let mut server = Self { runtime: None, ending, idle: Vec::new(), socket: None, places: Vec::new() };
        let most = u32::try_from(setup.connections.max(1)).unwrap_or(u32::MAX);
        let inside = runtime.enter();
        if let Some(address) = setup.listen {
            let listener = tcp(address).map_err(failed(&address))?;
            server.places.push(format!("http://{}", listener.local_addr().unwrap_or(address)));
            server.answer(listener, &router, setup, most);
        }
        if let Some(path) = &setup.socket {
            let listener = unix(path).map_err(failed(&path.display()))?;
            server.socket = Some(path.clone());
            server.places.push(format!("unix:{}", path.display()));
            server.answer(listener, &router, setup, most);
        }
        drop(inside);
        server.runtime = Some(runtime);
        Ok(server)
    }

    fn answer(&mut self, listener: impl Listener, router: &Router, setup: &Setup, most: u32) {
        let permits = Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(1)));
        self.idle.push((Arc::clone(&permits), most));
        tokio::spawn(accept(listener, router.clone(), permits, setup.patience, self.ending.subscribe()));
    }
}

impl Drop for Server {
    /// Takes no further connection, and waits a little for answers that are under way.
    fn drop(&mut self) {
        self.ending.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return };
        runtime.block_on(async {
            for (permits, most) in &self.idle {
                // Whoever has not had its answer by then does without.
                timeout(GRACE, permits.acquire_many(*most)).await.ok();
            }
        });
        // What still asks the queue may finish there.
        runtime.shutdown_timeout(GRACE);
        if let Some(socket) = &self.socket {
            // Somebody else may have removed it.
            fs::remove_file(socket).ok();
        }
    }
}

/// Where connections come from.
trait Listener: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Where it cannot be set, answers are a little later.
        stream.set_nodelay(true).ok();
        Ok(stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

async fn accept(
    listener: impl Listener,
    router: Router,
    permits: Arc<Semaphore>,
    patience: Duration,
    mut ending: watch::Receiver<bool>,
) {
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let stream = tokio::select! {
            stream = listener.next() => stream,
            _ = ending.wait_for(|ending| *ending) => return,
        };
        let Ok(stream) = stream else {
            sleep(PAUSE).await;
            continue;
        };
        let (router, ending) = (router.clone(), ending.clone());
        tokio::spawn(async move {
            connection(stream, router, patience, ending).await;
            drop(permit);
        });
    }
}

async fn connection<S>(stream: S, router: Router, patience: Duration, mut ending: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(MAX_HEAD);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    tokio::select! {
        // What went wrong with a connection is its client's to know.
        _ = served.as_mut() => return,
        _ = ending.wait_for(|ending| *ending) => {}
        () = sleep(LIFE) => {}
    }
    served.as_mut().graceful_shutdown();
    timeout(GRACE.max(patience), served).await.ok();
}

/// Ends what takes too long.
async fn bounded(State(patience): State<Duration>, request: Request, next: Next) -> Response {
    let answered: Result<Response, _> = timeout(patience, next.run(request)).await;
    answered.unwrap_or_else(|_| {
        let detail = format!("there was no answer within {} s", patience.as_secs());
        Problem::of(Reason::Timeout, detail).into_response()
    })
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = StdTcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// A socket that only this user may connect to: it is closed to others before it listens.
fn unix(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => match StdUnixStream::connect(path) {
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there already")),
            // Left by one that was killed.
            Err(_) => fs::remove_file(path)?,
        },
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there")),
        Err(_) => {}
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    bind(made.as_raw_fd(), &UnixAddr::new(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listen(&made, Backlog::MAXCONN)?;
    UnixListener::from_std(StdUnixListener::from(made))
}
