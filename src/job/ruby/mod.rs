//! Jobs that Ruby performs: Active Job's envelope, and its types.

mod builder;
pub mod values;
