//! What goes on beside the workers: leases are kept alive, old jobs forgotten, the configuration read again when
//! SIGHUP asks for it, a drain that takes too long ended, and the service manager told that all this still happens.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::args::ServeArgs;
use crate::config::{Config, changes};
use crate::http::Health;
use crate::notify::Notifier;
use crate::queue::lease::heartbeat_ms;
use crate::queue::source::{Live, QueueSource};
use crate::queue::sqlite::PRUNED;
use crate::queue::{Queue, QueueError, SqliteQueue};
use crate::settings::ServeSettings;
use crate::shutdown::{Bell, Stop};

/// How often old jobs are forgotten.
const PRUNE: Duration = Duration::from_secs(3_600);

/// What the keeper listens to, and what it requests.
#[derive(Clone, Copy)]
pub(super) struct Stops<'a> {
    /// The user's wish to end.
    pub asked: &'a Stop,
    /// The order to kill.
    pub kill: &'a Stop,
    /// The pool's end.
    pub over: &'a Stop,
    /// The wish that the configuration be read again.
    pub hangup: &'a Bell,
}

pub(super) struct Keeper<'a> {
    pub source: &'a QueueSource<'a>,
    pub queue: &'a SqliteQueue,
    pub settings: &'a ServeSettings,
    pub args: &'a ServeArgs,
    pub notifier: &'a Notifier,
    pub health: &'a Health,
    pub stops: Stops<'a>,
}

impl Keeper<'_> {
    pub fn keep(&self, say: &dyn Fn(&str)) {
        let Stops { asked, kill, over, hangup } = self.stops;
        let mut config = self.settings.config.clone();
        let lease = Duration::from_millis(heartbeat_ms(config.queue.lease_s.saturating_mul(1_000)).into());
        let beat = self.notifier.beat().map_or(lease, |due| due.min(lease));
        let (mut pruned, mut stuck): (Option<Instant>, Option<String>) = (None, None);
        let mut deadline: Option<Instant> = None;
        while !over.is_requested() {
            let alive = self.look(&mut pruned, &config);
            self.report(alive, &mut stuck, say);
            if hangup.has_rung() {
                config = self.reload(config, say);
            }
            if deadline.is_none() && asked.is_requested() {
                deadline = Some(Instant::now() + Duration::from_secs(config.queue.grace_s.into()));
                say("asked to end: jobs in hand are finished, no other is begun");
                self.notifier.stopping();
                self.health.ends();
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                kill.request();
            }
            // Once asked, that pipe stays readable; once killed, only the pool's end is left to wait for.
            let wait = left.filter(|left| !left.is_zero()).map_or(beat, |left| left.min(beat));
            let first = if deadline.is_none() { asked.as_fd() } else { over.as_fd() };
            pause([first, over.as_fd(), hangup.as_fd()], wait);
        }
    }

    /// Extends leases and forgets old jobs. An error is why there is no progress.
    fn look(&self, pruned: &mut Option<Instant>, config: &Config) -> Result<(), String> {
        let told = |error: QueueError| error.to_string();
        self.source.heartbeat().map_err(told)?;
        if pruned.is_none_or(|last| last.elapsed() >= PRUNE) {
            // Where that was all it may do at a time, the next beat goes on.
            let more = self.queue.prune(config.retention.into()).map_err(told)? >= PRUNED;
            *pruned = Some(Instant::now()).filter(|_| !more);
        }
        if self.notifier.beat().is_some() {
            self.queue.probe().map_err(told)?;
        }
        self.source.progress()
    }

    /// Sends a sign of life where there is progress, and says why where there is none: once, until that changes.
    fn report(&self, alive: Result<(), String>, stuck: &mut Option<String>, say: &dyn Fn(&str)) {
        self.health.stuck(alive.is_err());
        match alive {
            Ok(()) => {
                *stuck = None;
                if self.notifier.beat().is_some() {
                    self.notifier.alive();
                }
            }
            Err(why) => {
                if stuck.as_ref() != Some(&why) {
                    say(&format!("no progress: {why}"));
                    self.notifier.status(&format!("no progress: {why}"));
                }
                *stuck = Some(why);
            }
        }
    }

    /// Reads the configuration again and takes of it what can be taken, line by line. What cannot be read changes
    /// nothing. Returns what holds then.
    fn reload(&self, config: Config, say: &dyn Fn(&str)) -> Config {
        if self.args.config.is_none() {
            say("reload: no configuration file was named at the start, there is nothing to read");
            return config;
        }
        self.notifier.reloading();
        let taken = ServeSettings::config(self.args).map_err(|error| error.to_string()).and_then(|new| {
            let held = config.clone().with_live(&new);
            let tenants = held.tenants(self.settings.has_gpu());
            self.queue.set_tenants(&tenants).map_err(|error| error.to_string())?;
            Ok((new, held))
        });
        let config = match taken {
            Err(why) => {
                say(&format!("reload: everything stays as it was: {why}"));
                config
            }
            Ok((new, held)) => {
                self.queue.set_policy(held.retry);
                self.source.set_live(Live { retry: held.retry, findings: held.policy.policy() });
                let changes = changes(&config, &new);
                changes.iter().for_each(|change| say(&format!("reload: {change}")));
                if changes.is_empty() {
                    say("reload: nothing has changed");
                }
                held
            }
        };
        self.notifier.ready();
        config
    }
}

fn pause(wake: [BorrowedFd<'_>; 3], wait: Duration) {
    // Rounded up: a wait of no millisecond would be no wait.
    let timeout = PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    // Interrupted or not, the caller looks again.
    poll(&mut wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)), timeout).ok();
}
