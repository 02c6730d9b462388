//! What operators do: the rows of the audit, operations on many jobs, and the fingerprints of failures.

pub(crate) mod audit;
pub(crate) mod fingerprint;
pub(crate) mod operation;
