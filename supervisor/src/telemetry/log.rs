//! Lines on standard error: for people the bare sentence, for programs one JSON object a line. Writes to standard error
//! and nowhere else.

use std::fmt;
use std::io;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use super::span::JOBS;
use crate::config::{LogConfig, LogFormat, LogLevel};
use crate::settings::Voice;
use crate::verdict::shown;

/// What our own events begin their target with. What libraries log is left out: what concerns us comes as an error.
const OURS: &str = "refmill";

/// From now on, what this process logs goes to standard error. Said twice, the first one counts: there is one log.
/// Quiet is no less than a warning. Where reports go to standard output, people are not told each job a second time.
pub fn install(config: LogConfig, voice: Voice) {
    let level = if voice.quiet { config.level.min(LogLevel::Warn) } else { config.level };
    let jobs = !voice.json || config.format == LogFormat::Json;
    // It fails only where a log is installed already.
    drop(tracing::subscriber::set_global_default(subscriber(LogConfig { level, ..config }, jobs, io::stderr)));
}

/// Whether [`install`] was called.
#[must_use]
pub fn is_installed() -> bool {
    tracing::dispatcher::has_been_set()
}

fn subscriber<W>(config: LogConfig, jobs: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let least = least(config.level);
    let targets =
        Targets::new().with_target(OURS, least).with_target(JOBS, if jobs { least } else { LevelFilter::OFF });
    let registry = tracing_subscriber::registry().with(targets);
    match config.format {
        LogFormat::Text => {
            Box::new(registry.with(layer().event_format(Sentence).with_writer(writer).log_internal_errors(false)))
        }
        LogFormat::Json => {
            let format = tracing_subscriber::fmt::format().json().flatten_event(true).with_span_list(false);
            let layer = layer().event_format(format).fmt_fields(JsonFields::new());
            Box::new(registry.with(layer.with_writer(writer).log_internal_errors(false)))
        }
    }
}

fn least(level: LogLevel) -> LevelFilter {
    LevelFilter::from_level(match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    })
}

/// The message of an event, and nothing else of it; on one line, without what a terminal would obey.
struct Sentence;

impl<S, N> FormatEvent<S, N> for Sentence
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut message = Message(writer.by_ref(), Ok(()));
        event.record(&mut message);
        message.1?;
        writeln!(writer)
    }
}

struct Message<'w>(Writer<'w>, fmt::Result);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.1 = self.1.and_then(|()| self.0.write_str(&shown(&format!("{value:?}"))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for Paper {
        type Writer = Self;

        fn make_writer(&'w self) -> Self {
            self.clone()
        }
    }

    fn written(config: LogConfig, what: impl FnOnce()) -> String {
        let paper = Paper::default();
        tracing::subscriber::with_default(subscriber(config, true, paper.clone()), what);
        let bytes = paper.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn people_read_the_bare_sentence() {
        let text = written(LogConfig::default(), || {
            let span = tracing::info_span!("job", job = 3);
            span.in_scope(|| tracing::info!(outcome = "ok", "a\x1b[2J\n.jpg: {}", "ok"));
        });
        assert_eq!(text, "a?[2J?.jpg: ok\n");
    }

    #[test]
    fn programs_read_an_object_with_its_fields_and_its_span() {
        let config = LogConfig { format: LogFormat::Json, ..LogConfig::default() };
        let text = written(config, || {
            let span = tracing::info_span!("job", job = 3, tenant = "studio");
            span.in_scope(|| tracing::warn!(outcome = "reject", gone = None::<u64>, "a\n\"b\".jpg: corrupt"));
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["outcome"]), (&"WARN".into(), &"reject".into()));
        assert_eq!(line["message"], "a\n\"b\".jpg: corrupt");
        assert_eq!((&line["span"]["job"], &line["span"]["tenant"]), (&3.into(), &"studio".into()));
        assert_eq!((line.get("gone"), text.lines().count()), (None, 1));
    }

    #[test]
    fn less_than_the_least_and_what_libraries_say_is_left_out() {
        let text = written(LogConfig { level: LogLevel::Warn, ..LogConfig::default() }, || {
            tracing::info!("quiet");
            tracing::warn!(target: "hyper", "foreign");
            tracing::warn!("told");
        });
        assert_eq!(text, "told\n");
    }
}
