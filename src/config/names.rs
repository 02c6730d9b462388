//! Names shared by the configuration and its readers.

/// The table of what is promised about queues.
pub(crate) const QUEUES: &str = "queues";

/// The table of recurring tasks.
pub(crate) const TABLE: &str = "recurring";

/// The variable with the path of the file, for a program and the workers that it starts.
pub(crate) const FILE_VARIABLE: &str = "WINDLASS_CONFIG";

/// The variable with the number of the `[[workers]]` entry that a process runs, starting at 1.
pub(crate) const WORKER_VARIABLE: &str = "WINDLASS_WORKER";

/// The variable with the name of the deployment, for schedulers that are given none.
pub(crate) const REVISION_VARIABLE: &str = crate::process::base::parent::REVISION;
