//! The tables of the configuration, in which its keys stand.

use std::sync::LazyLock;

/// A table of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Whether there can be several.
    pub several: bool,
    /// What it is about.
    pub about: &'static str,
}

/// The tables, in the order in which people read them.
pub static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| [OWN, super::http::SECTIONS].concat());

const OWN: &[Section] = &[
    Section { name: "queue", several: false, about: "The queue, and how it is served." },
    Section {
        name: "queue.nats",
        several: false,
        about: "Who refmill is to the server of a queue in a stream. Without a key the variables of the `nats` tool \
                count: NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_CREDS and NATS_CA.",
    },
    Section { name: "output", several: false, about: "Where artifacts go; read by `submit` and `run`." },
    Section {
        name: "slot",
        several: true,
        about: "A device and its workers. Without any, `auto`: a GPU where one is listed, else the CPU.",
    },
    Section {
        name: "tenant",
        several: true,
        about: "Who shares the queue. Without any, the one tenant `default`, without caps.",
    },
    Section {
        name: "policy",
        several: false,
        about: "What is done about findings. `run`, `repair` and `inspect` go by it, and `serve` for every job whose \
                submission says nothing about a finding.",
    },
    Section { name: "policy.findings", several: false, about: "Actions by code; `refmill explain` lists the codes." },
    Section { name: "colour", several: false, about: "How colours are converted to sRGB; read by all but `serve`." },
    Section {
        name: "limits",
        several: false,
        about: "The bounds of one image where the command line gives none. A submission takes them along; `serve` \
                itself reads output_bytes, which no job can have more of.",
    },
    Section {
        name: "store",
        several: false,
        about: "How an S3 server is reached, where the command line says nothing; read by `batch`. Keys of access never \
                stand here: they come from the variables and the files of the AWS tools.",
    },
    Section { name: "sandbox", several: false, about: "How the workers of `serve` are confined." },
    Section {
        name: "watermark",
        several: false,
        about: "When the workers of `serve` are recycled, and when they are killed, by their memory.",
    },
    Section { name: "deadlines", several: false, about: "How long the workers of `serve` may take for what." },
    Section {
        name: "deadlines.stages_ms",
        several: false,
        about: "Longest times of stages, by their names in reports.",
    },
    Section { name: "retry", several: false, about: "When a job is tried again, and when no more." },
    Section { name: "retention", several: false, about: "How long jobs are kept that are over." },
    Section { name: "log", several: false, about: "What `serve` says on standard error." },
];
