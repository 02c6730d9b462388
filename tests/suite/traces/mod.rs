//! Trace contexts of jobs, and their spans with the feature `otel`.

mod column;
mod documented;
mod exported;
mod golden;
mod links;
