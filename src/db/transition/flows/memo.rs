//! Records the results of work outside of the database.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::Fence;
use crate::db::table::steps::{self, StepState};
use diesel::prelude::*;

/// Records a step under the fence, if it is new. Returns what was found.
pub(crate) fn record(
    conn: &mut Conn<'_>,
    fence: Fence,
    job: i64,
    name: &str,
    value: &str,
) -> QueryResult<StepState> {
    conn.transaction(|conn| {
        let found = steps::begin(conn, fence, name)?;
        if found == StepState::New {
            steps::record(conn, job, name, value)?;
        }
        Ok(found)
    })
}
