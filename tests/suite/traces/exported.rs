//! The tracer provider of the tests, and what it exports.
//!
//! It belongs to the whole process, in which all other tests run too: their spans have names without
//! the mark, and are what they would be without a provider.

use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, TraceContextExt, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue, global};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, Sampler, SamplingDecision, SamplingResult, SdkTracer, SdkTracerProvider,
    ShouldSample, Span, SpanData,
};
use std::collections::HashMap;
use std::sync::LazyLock;

/// In the name, or in an attribute, of each span of these tests.
const MARK: &str = "traced";

/// In the name of each span that is not sampled.
pub const UNSAMPLED: &str = "unsampled";

static EXPORTER: LazyLock<InMemorySpanExporter> = LazyLock::new(|| {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .with_sampler(ByName)
        .build();
    global::set_tracer_provider(MarkedProvider(provider));
    exporter
});

#[derive(Debug, Clone)]
struct ByName;

impl ShouldSample for ByName {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        if name.contains(UNSAMPLED) {
            return SamplingResult {
                decision: SamplingDecision::Drop,
                attributes: Vec::new(),
                trace_state: TraceState::NONE,
            };
        }
        let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
        sampler.should_sample(parent, trace, name, kind, attributes, links)
    }
}

struct MarkedProvider(SdkTracerProvider);

impl TracerProvider for MarkedProvider {
    type Tracer = MarkedTracer;

    fn tracer_with_scope(&self, scope: InstrumentationScope) -> MarkedTracer {
        MarkedTracer(self.0.tracer_with_scope(scope))
    }
}

struct MarkedTracer(SdkTracer);

impl Tracer for MarkedTracer {
    type Span = Span;

    fn build_with_context(&self, builder: SpanBuilder, parent: &Context) -> Span {
        let attributes = builder.attributes.iter().flatten();
        let mut texts = attributes.map(|attribute| attribute.value.to_string());
        assert!(!builder.name.contains("panicking"), "the provider panics");
        match builder.name.contains(MARK) || texts.any(|text| text.contains(MARK)) {
            true => self.0.build_with_context(builder, parent),
            false => {
                let parent = Context::new().with_telemetry_suppressed();
                self.0.build_with_context(builder, &parent)
            }
        }
    }
}

/// Returns the name of a queue that no other test has, after setting up the provider.
pub fn queue(name: &str) -> String {
    LazyLock::force(&EXPORTER);
    format!("{MARK}-{name}-{:08x}", fastrand::u32(..))
}

/// Does this within a span, as the handler of a request has one. Returns its context too.
pub fn in_a_span<T>(name: &str, body: impl FnOnce() -> T) -> (SpanContext, T) {
    LazyLock::force(&EXPORTER);
    let span = global::tracer("test").start(name.to_owned());
    let context = span.span_context().clone();
    let _active = Context::current_with_span(span).attach();
    let done = body();
    Context::current().span().end();
    (context, done)
}

/// Returns the exported spans of a queue, in the order of their ends.
pub fn of_queue(queue: &str) -> Vec<SpanData> {
    let spans = EXPORTER.get_finished_spans().unwrap().into_iter();
    spans.filter(|span| span.name.ends_with(queue)).collect()
}

/// Returns the exported span of this name.
pub fn the(name: &str) -> SpanData {
    let spans = EXPORTER.get_finished_spans().unwrap().into_iter();
    let mut found: Vec<SpanData> = spans.filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

/// Returns the value of an attribute as text.
pub fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == key)?;
    Some(found.value.to_string())
}

/// Returns the header of a context.
pub fn header(span: &SpanContext) -> String {
    format!(
        "00-{}-{}-{:02x}",
        span.trace_id(),
        span.span_id(),
        span.trace_flags().to_u8()
    )
}

/// Returns spans as text, in which ids have numbers: the first trace is `trace 1`.
pub fn in_words(spans: &[SpanData], queue: &str) -> String {
    let (mut traces, mut ids, mut jobs) = (HashMap::new(), HashMap::new(), HashMap::new());
    for span in spans {
        let next = traces.len() + 1;
        traces.entry(span.span_context.trace_id()).or_insert(next);
        ids.insert(span.span_context.span_id(), ids.len() + 1);
    }
    let mut text = String::new();
    for span in spans {
        let name = |id: SpanId| match (id, ids.get(&id)) {
            (SpanId::INVALID, _) => "none".to_owned(),
            (_, Some(number)) => format!("span {number}"),
            _ => "elsewhere".to_owned(),
        };
        let trace = traces[&span.span_context.trace_id()];
        text += &format!(
            "{} ({:?}, scope {}): {} of trace {trace}, parent {}\n  status {:?}\n",
            span.name,
            span.span_kind,
            span.instrumentation_scope.name(),
            name(span.span_context.span_id()),
            name(span.parent_span_id),
            span.status,
        );
        for link in &span.links.links {
            let to = link.span_context.span_id();
            text += &format!("  link to {}\n", name(to));
        }
        for attribute in &span.attributes {
            let mut value = attribute.value.to_string();
            if attribute.key.as_str() == "messaging.message.id" {
                let next = jobs.len() + 1;
                value = format!("job {}", jobs.entry(value).or_insert(next));
            }
            text += &format!("  {} = {value}\n", attribute.key);
        }
    }
    text.replace(queue, "QUEUE")
}
