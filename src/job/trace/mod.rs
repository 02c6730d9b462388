//! Trace contexts of jobs, and their spans.

#[cfg(feature = "otel")]
mod conventions;
pub(crate) mod given;
pub(crate) mod origin;
#[cfg(feature = "otel")]
pub(crate) mod spans;
#[cfg(not(feature = "otel"))]
#[path = "no_spans.rs"]
pub(crate) mod spans;
