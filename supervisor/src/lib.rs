//! The trusted side of refmill: it names the inputs, keeps the workers, and publishes what they made.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`args`], [`settings`] | what was typed, and what it means once checked |
//! | [`config`] | what the operator decided, in a file |
//! | [`commands`] | one file a command |
//! | [`intake`] | files, folders, globs and stdin become inputs, read into sealed memory |
//! | [`naming`] | which input writes under which name |
//! | [`recipe`] | recipes in TOML, built in or the user's |
//! | [`devices`] | GPUs by UUID, without CUDA |
//! | [`doctor`] | whether the machine can do what is needed |
//! | [`pool`] | the workers: spawned, confined, believed nothing, replaced |
//! | [`memory`] | the regions that both sides share |
//! | [`queue`] | jobs that outlive the program: leased, fenced, tried again, buried |
//! | [`telemetry`] | what `serve` tells about itself: logs, spans, figures |
//! | [`store`] | object stores and folders as the two ends of a batch |
//! | [`http`] | the server of `serve`: bounded, behind tokens, off unless configured |
//! | [`publish`] | artifacts first, then the report, each whole or not at all |
//! | [`verdict`], [`findings`], [`table`], [`contact_sheet`] | reports, and the table of findings, as people read them |
//! | [`progress`], [`shutdown`], [`notify`] | what the user sees, how the user ends it, and what a service manager is told |
//!
//! This crate never decodes an image and never calls CUDA: whatever an image can do to a decoder, it does to a
//! worker.

pub mod args;
pub mod commands;
pub mod config;
pub mod contact_sheet;
pub mod devices;
pub mod doctor;
pub mod findings;
pub mod http;
pub mod intake;
pub mod limits;
pub mod memory;
pub mod naming;
pub mod notify;
pub mod policy;
pub mod pool;
pub mod progress;
pub mod publish;
pub mod queue;
pub mod recipe;
pub mod settings;
pub mod shutdown;
pub mod store;
pub mod table;
pub mod telemetry;
pub mod verdict;
