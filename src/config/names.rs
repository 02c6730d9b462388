//! Names that the configuration and its readers share.

/// The table that holds them.
pub(crate) const TABLE: &str = "recurring";

/// Names the file, for a program and for the workers that it starts.
pub(crate) const FILE_VARIABLE: &str = "WINDLASS_CONFIG";

/// Says which of the `[[workers]]` a process is, counted from 1.
pub(crate) const WORKER_VARIABLE: &str = "WINDLASS_WORKER";
