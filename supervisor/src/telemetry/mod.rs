//! What `serve` tells about itself while it works. Nothing here decides anything, and nothing of it can fail a job.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`log`] | lines on standard error, for people or as JSON |
//! | [`span`] | one job from its claim to its report, over both processes |

pub mod log;
pub mod span;
