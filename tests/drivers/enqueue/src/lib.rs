//! The drivers of `enqueue-vectors`, for other programs.

pub mod drivers;
