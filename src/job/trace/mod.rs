//! Trace contexts of jobs, and their spans.

#[cfg(feature = "otel")]
mod conventions;
#[cfg(feature = "otel")]
pub(crate) mod spans;
#[cfg(not(feature = "otel"))]
#[path = "no_spans.rs"]
pub(crate) mod spans;
