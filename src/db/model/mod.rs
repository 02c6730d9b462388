//! The values that transitions take and return. Data only.

pub mod audit;
pub(crate) mod claim;
pub mod decision;
pub mod extras;
pub(crate) mod fingerprint;
pub(crate) mod gate_line;
pub(crate) mod history;
pub(crate) mod job_columns;
pub mod new_row;
pub mod outcome;
pub(crate) mod rate;
pub mod recurring;
pub(crate) mod share;
pub(crate) mod times;
