//! The queue in one JetStream stream: any number of supervisors on any number of machines share it.
//!
//! The stream is the truth, and holds the latest message of each subject. A message is one job as it is now:
//!
//! | subject | holds |
//! | --- | --- |
//! | `STREAM.job.live.ID` | a job that is queued or leased |
//! | `STREAM.job.over.ID` | a job that is done, dead or cancelled; for a day without a body, once it is forgotten |
//! | `STREAM.tenants` | the terms of all tenants, and how far their turns have come |
//!
//! Each supervisor has a replica of it, a [`super::SqliteQueue`] in a file without a name. A change is made to the
//! replica first, then offered to the stream with the sequence that the replica knows to be the last one
//! (`Nats-Expected-Last-Sequence`). Where somebody was faster the server refuses, and then the change is taken back, the
//! replica brought up to date and the change made again. So every method of [`super::Queue`] is one step of one history
//! that all supervisors agree on, and the fencing tokens, caps and turns of the queue in a file hold unchanged.
//!
//! What follows from that:
//!
//! - An answer that is lost, with the connection or the server, is looked for in the stream: its message carries the
//!   number of the attempt. Where it is not there, the change is made again.
//! - A change of several jobs is several messages. Each is a step that is right by itself: one lease that ended, one
//!   job forgotten.
//! - The ends of leases go by the server's clock. A supervisor measures how far its own is off.
//! - The consumer `lag` is never read from. It counts the messages below `STREAM.job.live`, so its pending ones are the
//!   jobs that are queued or leased, which is what an autoscaler wants to know.
//!
//! [`address`] says which stream is meant, [`link`] speaks to the server.

pub mod address;
pub mod link;

pub use address::{Access, Address, AddressError};
pub use link::LinkError;

/// The machine's name, as far as it has one.
#[must_use]
pub fn hostname() -> String {
    let name = nix::sys::utsname::uname().ok().and_then(|names| names.nodename().to_str().map(ToOwned::to_owned));
    name.unwrap_or_else(|| "a machine".into())
}
