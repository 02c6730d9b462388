//! Trace contexts of jobs, and their spans with the feature `otel`.

mod column;
mod exported;
mod golden;
mod links;
