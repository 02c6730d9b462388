//! Spans of enqueues and runs, made by the tracer provider of the program.
//!
//! Without a provider, the spans of OpenTelemetry are empty: they carry no context, and nothing is
//! stored with a job. There is one span for each call and each run, and none over the loops of a
//! process.

use crate::db::model::extras::Traceparent;
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{Ending, JobFailure};
use crate::error::Result;
use crate::job::Enqueued;
use crate::job::context::Run;
use crate::job::policy::PropagationStyle;
use crate::job::running::Live;
use crate::job::trace::conventions;
use opentelemetry::trace::{
    Link, Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, global};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// The most links of the span of an enqueue, as many as the limit of OpenTelemetry.
const MOST_LINKS: usize = 128;

/// The longest description of a failure, in bytes.
const LONGEST_DESCRIPTION: usize = 1_024;

/// Enqueues one job within a span, whose context is stored with it.
pub(crate) fn send_one(
    rows: &mut [NewRow],
    insert: impl FnOnce(&mut [NewRow]) -> Result<Enqueued>,
) -> Result<Enqueued> {
    let Some(span) = start_send(rows, false) else {
        return insert(rows);
    };
    let enqueued = within(&span, || insert(rows));
    end_send(&span, &enqueued, |span, enqueued| {
        span.span()
            .set_attribute(conventions::message_id(enqueued.id.0));
    });
    enqueued
}

/// Enqueues many jobs within one span, whose context is stored with each.
pub(crate) fn send_batch(
    rows: &mut [NewRow],
    insert: impl FnOnce(&mut [NewRow]) -> Result<Vec<Enqueued>>,
) -> Result<Vec<Enqueued>> {
    let Some(span) = start_send(rows, true) else {
        return insert(rows);
    };
    let enqueued = within(&span, || insert(rows));
    end_send(&span, &enqueued, |_, _| {});
    enqueued
}

/// Starts the span of an enqueue, and sets its context in the rows that have none. Returns `None` if
/// there is no provider and no active context.
fn start_send(rows: &mut [NewRow], is_batch: bool) -> Option<Context> {
    if rows.is_empty() {
        return None;
    }
    let given: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.traceparent.as_deref())
        .collect();
    let given = given.into_iter().filter_map(Traceparent::parse);
    let links = given.take(MOST_LINKS).map(link).collect();
    let builder = SpanBuilder {
        span_kind: Some(SpanKind::Producer),
        attributes: Some(conventions::of_send(rows, is_batch)),
        links: Some(links),
        ..SpanBuilder::from_name(conventions::send_name(rows))
    };
    let span = start(builder, &Context::current())?;
    let traceparent = traceparent(span.span().span_context()).to_string();
    for row in rows {
        if row.traceparent.is_none() {
            row.traceparent = Some(traceparent.clone());
        }
    }
    Some(span)
}

fn end_send<T>(span: &Context, enqueued: &Result<T>, succeed: impl FnOnce(&Context, &T)) {
    guarded(|| {
        match enqueued {
            Ok(enqueued) => succeed(span, enqueued),
            Err(error) => {
                let kind = conventions::enqueue_error(error);
                span.span().set_attribute(conventions::error_type(kind));
                span.span().set_status(Status::error(error.to_string()));
            }
        }
        span.span().end();
    });
}

/// Performs a job within a span. `ending` returns how it ended; `None` is a success.
pub(crate) fn process<T>(
    run: &Run,
    perform: impl FnOnce() -> T,
    ending: impl FnOnce(&T) -> Option<&Ending>,
) -> T {
    let Some(span) = start_process(run) else {
        return perform();
    };
    let _ = run.signals.live.span.set(span.clone());
    let outcome = within(&span, perform);
    end_process(&span, ending(&outcome), run.trace.exports_messages);
    outcome
}

/// Starts the span of a run, in no other context than that of the enqueue: what an earlier job left
/// behind on the thread does not count.
fn start_process(run: &Run) -> Option<Context> {
    let is_child =
        run.policy.propagation_style == Some(PropagationStyle::Child) && run.trace.follows_enqueue;
    let mut parent = Context::new();
    let mut links = None;
    if let Some(origin) = run.trace.origin {
        if is_child {
            parent = parent.with_remote_span_context(context(origin));
        } else {
            links = Some(vec![link(origin)]);
        }
    }
    let builder = SpanBuilder {
        span_kind: Some(SpanKind::Consumer),
        attributes: Some(conventions::of_process(run)),
        links,
        ..SpanBuilder::from_name(conventions::process_name(run))
    };
    start(builder, &parent)
}

/// Ends the span of a run. A span that has ended stays as it is.
fn end_process(span: &Context, ending: Option<&Ending>, shows_message: bool) {
    guarded(|| {
        let span = span.span();
        span.set_attribute(conventions::outcome(ending));
        if let Some(Ending::Fail(failure) | Ending::Retry(failure, _)) = ending {
            span.set_attribute(conventions::error_type(failure.kind.clone()));
            span.set_status(Status::error(description(failure, shows_message)));
        }
        span.end();
    });
}

fn description(failure: &JobFailure, shows_message: bool) -> String {
    if !shows_message {
        return failure.kind.clone();
    }
    let mut words = failure.in_words();
    if words.len() > LONGEST_DESCRIPTION {
        let ends = (0..=LONGEST_DESCRIPTION).rev();
        let end = ends.into_iter().find(|end| words.is_char_boundary(*end));
        words.truncate(end.unwrap_or(0));
    }
    words
}

/// Ends the span of a run that has overrun its timeout: the process may end before the job does.
pub(crate) fn overran(live: &Live, verdict: &Ending) {
    if let Some(span) = live.span.get() {
        // The message is that of Windlass.
        end_process(span, Some(verdict), true);
    }
}

/// Starts a span. Returns `None` if it has no context.
fn start(builder: SpanBuilder, parent: &Context) -> Option<Context> {
    let span = guarded(|| global::tracer(conventions::SCOPE).build_with_context(builder, parent))?;
    let is_valid = span.span_context().is_valid();
    is_valid.then(|| parent.with_span(span))
}

fn within<T>(span: &Context, body: impl FnOnce() -> T) -> T {
    let _active = span.clone().attach();
    body()
}

/// Calls code of the provider. A panic of it must not affect a job.
fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    static REPORTED: Once = Once::new();
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => Some(done),
        Err(payload) => {
            // Its own destructor may panic as well.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            REPORTED.call_once(|| {
                log::error!("the tracer provider of this program panicked: spans may be missing");
            });
            None
        }
    }
}

fn link(origin: Traceparent) -> Link {
    Link::with_context(context(origin))
}

fn context(origin: Traceparent) -> SpanContext {
    SpanContext::new(
        TraceId::from(origin.trace_id),
        SpanId::from(origin.span_id),
        TraceFlags::new(origin.flags),
        true,
        TraceState::NONE,
    )
}

fn traceparent(span: &SpanContext) -> Traceparent {
    Traceparent {
        trace_id: u128::from_be_bytes(span.trace_id().to_bytes()),
        span_id: u64::from_be_bytes(span.span_id().to_bytes()),
        flags: span.trace_flags().to_u8(),
    }
}
