//! Trace contexts of jobs, and their spans with the feature `otel`.

mod column;
mod documented;
pub mod exported;
mod golden;
mod links;
