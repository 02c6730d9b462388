//! A program that is traced as `docs/measuring.md` describes. It enqueues jobs within a request,
//! performs them, and prints the spans and the log lines that it exported.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod documented;

use documented::{log_to_tracing, start_tracing, subscriber, with_spans};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::fmt::Debug;
use std::time::Duration;
use tracing::Event;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use windlass::{Database, Function, JobError, Policy, Registry, Worker};

/// Prints a line for each span: its name, its own id, that of its parent, and its links.
#[derive(Debug)]
struct Print;

impl SpanExporter for Print {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        for span in spans {
            let links = span.links.links.iter();
            let links: Vec<String> = links
                .map(|link| link.span_context.span_id().to_string())
                .collect();
            println!(
                "span|{}|{}|{}|{}",
                span.name,
                span.span_context.span_id(),
                span.parent_span_id,
                links.join(" ")
            );
        }
        Ok(())
    }
}

/// Prints a line for each event: its fields, and the spans that it is in.
struct PrintEvents;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("|{field}={value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!("|{field}={value}");
    }
}

impl<S: tracing::Subscriber + for<'s> LookupSpan<'s>> Layer<S> for PrintEvents {
    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut fields = Fields(format!("event|{}", event.metadata().level()));
        event.record(&mut fields);
        let scope = cx.event_scope(event).into_iter().flatten();
        let spans: Vec<_> = scope.map(|span| span.name()).collect();
        println!("{}|in={}", fields.0, spans.join(" "));
    }
}

const ACT: Function<String> = Function::new("act").queue("work");

fn act(name: &str, attempt: u32) -> Result<(), JobError> {
    tracing::info!("{name} says hello");
    match name {
        "fails" => Err("no stamp".into()),
        "retries" if attempt == 1 => Err(JobError::from("not yet").retry_after(Duration::ZERO)),
        "discards" => Err(JobError::from("gone").discard()),
        "snoozes" => Err(JobError::snooze(Duration::from_secs(3_600))),
        "panics" => panic!("oh"),
        _ => Ok(()),
    }
}

fn main() {
    let url = std::env::args().nth(1).expect("the address of a database");
    let provider = start_tracing(Print);
    let subscriber = subscriber(&provider).with(PrintEvents);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log_to_tracing();
    let database = Database::open(&url).unwrap();
    tracing::info_span!("request").in_scope(|| {
        let mut conn = database.connect().unwrap();
        for name in [
            "finishes", "fails", "retries", "discards", "snoozes", "panics",
        ] {
            let policy = Policy::new().max_attempts(if name == "retries" { 2 } else { 1 });
            let job = ACT.job(&name.to_owned()).unwrap().policy(policy);
            job.enqueue(&mut conn).unwrap();
        }
    });
    let registry = Registry::new().function(ACT, |name: String, cx| act(&name, cx.attempt()));
    let worker = Worker::new(&database, with_spans(registry)).until_idle();
    let ended = worker.run();
    provider.shutdown().unwrap();
    ended.unwrap();
}
