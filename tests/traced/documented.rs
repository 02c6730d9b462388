//! The code of `docs/measuring.md`, word for word: each part stands there too.

// [start]
use opentelemetry::global;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};

/// Exports all spans of this program, for example by `opentelemetry_otlp`.
pub fn start_tracing(exporter: impl SpanExporter + 'static) -> SdkTracerProvider {
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .build();
    global::set_tracer_provider(provider.clone());
    provider
}
// [end]

// [layer]
use opentelemetry::trace::TracerProvider;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// Returns a subscriber that makes the spans of `tracing` spans of OpenTelemetry. Add layers to it
/// as usual.
pub fn subscriber(
    provider: &SdkTracerProvider,
) -> impl tracing::Subscriber + for<'s> LookupSpan<'s> {
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("my-app"));
    tracing_subscriber::registry().with(spans)
}
// [end]

// [around]
use windlass::Registry;

/// Performs each job within a span of `tracing`, whose fields are those of the log lines.
pub fn with_spans(registry: Registry) -> Registry {
    registry.around(|cx, next| {
        let span = tracing::info_span!(
            "job",
            job = cx.job_id().0,
            class = cx.class_name(),
            queue = cx.queue_name(),
            attempt = cx.attempt(),
            claim = cx.claim_id(),
        );
        span.in_scope(|| next.run())
    })
}
// [end]

// [bridge]
/// Passes log lines on to `tracing`, with the key-values of Windlass as fields.
pub struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let value = |key: &str| record.key_values().get(log::kv::Key::from(key));
        let text = |key: &str| value(key).map(|value| value.to_string());
        let number = |key: &str| value(key).and_then(|value| value.to_i64());
        macro_rules! event {
            ($level:ident) => {
                tracing::event!(
                    target: "windlass",
                    tracing::Level::$level,
                    job = number("job"),
                    class = text("class"),
                    queue = text("queue"),
                    attempt = number("attempt"),
                    claim = number("claim"),
                    outcome = text("outcome"),
                    kind = text("kind"),
                    ms = number("ms"),
                    log.target = record.target(),
                    "{}",
                    record.args()
                )
            };
        }
        match record.level() {
            log::Level::Error => event!(ERROR),
            log::Level::Warn => event!(WARN),
            log::Level::Info => event!(INFO),
            log::Level::Debug => event!(DEBUG),
            log::Level::Trace => event!(TRACE),
        }
    }

    fn flush(&self) {}
}

/// Lets `tracing` have all log lines of this program.
pub fn log_to_tracing() {
    log::set_logger(&ToTracing).expect("no other logger is set");
    log::set_max_level(log::LevelFilter::Info);
}
// [end]
