//! The text of the migrations, compiled in.

use crate::db::conn::dialect::Dialect;

/// A migration as text: `(dialect, directory, up.sql, down.sql)`.
pub(crate) type EmbeddedMigration = (Dialect, &'static str, &'static str, &'static str);

/// The migrations of these directories, for each database: `include_str!` takes literals only.
macro_rules! embedded {
    ($($name:literal,)+) => {
        &[
            $((
                Dialect::Postgres,
                $name,
                include_str!(concat!("../../../migrations/postgres/", $name, "/up.sql")),
                include_str!(concat!("../../../migrations/postgres/", $name, "/down.sql")),
            ),)+
            $((
                Dialect::Sqlite,
                $name,
                include_str!(concat!("../../../migrations/sqlite/", $name, "/up.sql")),
                include_str!(concat!("../../../migrations/sqlite/", $name, "/down.sql")),
            ),)+
        ]
    };
}

/// All migrations, in order. The statements of this version need every one, and both databases have
/// the same.
pub(crate) const FILES: &[EmbeddedMigration] = embedded![
    "2026-11-21-000001_solid_queue",
    "2026-11-21-000002_windlass",
    "2026-11-21-000003_policies",
    "2026-11-21-000005_names",
    "2026-11-21-000006_speed",
    "2026-11-21-000007_recurring",
    "2026-11-21-000008_pauses",
    "2026-11-21-000009_concurrency",
    "2026-11-21-000010_cheaper_ends",
    "2026-11-21-000013_classes",
    "2026-11-22-000001_channels",
    "2026-11-23-000001_prefetched",
    "2026-11-24-000001_quotas",
    "2026-11-24-000002_outsiders",
    "2026-11-24-000003_recurring_windows",
    "2026-11-24-000004_expiry",
    "2026-11-24-000005_ordered",
    "2026-11-24-000006_run_time",
    "2026-11-24-000007_job_logs",
    "2026-11-24-000008_history",
    "2026-11-24-000009_audit",
    "2026-11-24-000010_fingerprints",
    "2026-11-24-000011_web",
    "2026-11-24-000012_traces",
    "2026-11-24-000013_operation_requests",
    "2026-11-24-000014_enqueue_by_sql",
    "2026-11-25-000001_batches",
    "2026-11-25-000002_flows",
    "2026-11-25-000004_waits",
];
