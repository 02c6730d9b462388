//! The ready jobs that `doctor` compares with the workers: the first of each queue.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::{Dialect, Lossy};
use crate::db::conn::statement::Statement;
use crate::db::model::extras::Extras;
use crate::db::table::jobs::is_of_ruby;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Nullable, Text};

/// The most queues that are read.
const QUEUES: u32 = 500;

/// How many of the next jobs of each queue are read. Workers leave out the classes that they do not have, so that these
/// soon come first.
const FIRST_OF_QUEUE: u32 = 10;

/// A ready job that comes before the others of its queue.
#[derive(Debug, QueryableByName)]
pub(crate) struct OldReadyJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    /// Whether its class is a Ruby class.
    #[diesel(sql_type = Bool)]
    pub(crate) of_ruby: bool,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
    /// Seconds since it became ready.
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
}

impl OldReadyJob {
    /// Returns the version of its arguments.
    pub(crate) fn arguments_version(&self) -> u32 {
        Extras::of_policy(self.policy.as_deref()).arguments_version()
    }
}

/// Returns those of the first 10 jobs of each of up to 500 queues that have been ready for `seconds`, except on paused
/// queues and of paused classes.
pub(crate) fn old_ready(conn: &mut Conn<'_>, seconds: f64) -> QueryResult<Vec<OldReadyJob>> {
    let ready = "solid_queue_ready_executions";
    let first = format!(
        "FROM {ready} r WHERE r.queue_name = walk.queue_name ORDER BY r.priority, r.job_id LIMIT {FIRST_OF_QUEUE}"
    );
    let heads = match conn.dialect() {
        Dialect::Postgres => {
            format!("walk CROSS JOIN LATERAL (SELECT r.job_id, r.created_at {first}) AS head")
        }
        // SQLite keeps the order of a CROSS JOIN.
        Dialect::Sqlite => format!(
            "walk CROSS JOIN {ready} head ON head.id IN (SELECT id FROM (SELECT r.id {first}))"
        ),
    };
    let text = format!(
        "WITH RECURSIVE walk(queue_name, place) AS (SELECT min(queue_name), 1 FROM {ready} UNION ALL \
           SELECT (SELECT min(r.queue_name) FROM {ready} r WHERE r.queue_name > walk.queue_name), place + 1 \
           FROM walk WHERE walk.queue_name IS NOT NULL AND place < {QUEUES}) \
         SELECT j.id AS job_id, walk.queue_name, j.class_name, {} AS of_ruby, j.policy, {} AS seconds \
         FROM {heads} JOIN solid_queue_jobs j ON j.id = head.job_id \
         WHERE walk.queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses) \
         AND j.class_name NOT IN (SELECT class_name FROM windlass_class_pauses) \
         AND head.created_at <= {{later $1}} ORDER BY walk.queue_name, head.created_at, j.id",
        is_of_ruby("j"),
        age(conn, "head.created_at"),
    );
    let micros = (seconds * -1_000_000.0) as i64;
    Statement::new(text).unkept().bind(micros).load(conn)
}
