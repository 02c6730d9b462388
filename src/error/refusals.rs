//! Why tables cannot be used, and arguments not changed.

/// Why the tables of a database cannot be used by this version of Windlass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The database has no Windlass tables.
    #[error("{target} has no Windlass tables yet: run `windlass migrate --database URL`")]
    Missing {
        /// The database's address, without secrets.
        target: String,
    },
    /// The database cannot hold every text: only those of UTF8 can.
    #[error(
        "the database `{database}` has the encoding {encoding}, which cannot hold every text of a job: use one that was \
         created with UTF8, as by `createdb --template template0 --encoding UTF8 NAME`"
    )]
    Encoding {
        /// The database's name.
        database: String,
        /// Its encoding, such as `LATIN1`.
        encoding: String,
    },
    /// Some migrations have not been applied.
    #[error(
        "the tables of {target} are of version {found}, this program needs {needed}, which has not been applied: run `windlass migrate --database URL`"
    )]
    Old {
        /// The database's address, without secrets.
        target: String,
        /// The newest applied migration.
        found: String,
        /// The first missing migration that this program needs.
        needed: String,
    },
    /// All migrations were applied, but part of the tables was dropped or replaced afterwards.
    ///
    /// Loading a Rails schema file does this.
    #[error(
        "the tables of {target} are incomplete: {missing}: run `windlass migrate --database URL`"
    )]
    Incomplete {
        /// The database's address, without secrets.
        target: String,
        /// The first missing part, such as `the column solid_queue_jobs.policy is missing`.
        missing: String,
    },
}

/// Why the arguments of a job cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditRefusal {
    /// A process holds the job.
    #[error("it is running, with the arguments that it had when it started")]
    Running,
    /// The job has finished, or was cancelled or discarded.
    #[error("it has ended: enqueue another one")]
    Ended,
    /// Active Job enqueued the job, and stored more than its arguments.
    #[error("Active Job stored more than its arguments: discard it, and enqueue another one")]
    OfRuby,
    /// The job's class is [internal](crate::Job::INTERNAL).
    #[error(
        "its type is internal, so only its program's own code sets its arguments: cancel it, and let \
         the program enqueue another one"
    )]
    Internal,
    /// A secret was copied as it is shown.
    #[error("a field is `[hidden]`, which is how secrets are shown: write its value")]
    Hidden,
    /// The new arguments are invalid.
    #[error("{0}")]
    Invalid(String),
}
