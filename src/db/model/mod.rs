//! The values that transitions take and return. Data only.

pub(crate) mod audit;
pub(crate) mod claim;
pub(crate) mod decision;
pub(crate) mod extras;
pub(crate) mod fingerprint;
pub(crate) mod history;
pub(crate) mod job_columns;
pub(crate) mod new_row;
pub(crate) mod outcome;
pub(crate) mod recurring;
