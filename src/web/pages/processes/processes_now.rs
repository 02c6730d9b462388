//! The processes and their jobs, as one look at the tables.

use crate::admin::now::Fleet;
use crate::db::Conn;
use crate::db::query::load::fleet::{self, HeldJob};
use crate::error::{Doing as _, Result};
use crate::web::kept::Kept;
use crate::web::read::last_hour::{UsualRuns, usual_runs};

/// The most running jobs that are read.
const RUNS: i64 = 1_000;

/// The processes and their jobs.
#[derive(Debug, Clone)]
pub(crate) struct ProcessesNow {
    pub(crate) fleet: Fleet,
    /// The jobs that processes hold, the oldest first.
    pub(crate) held: Vec<HeldJob>,
    /// The usual run times of some classes, where the history holds a week.
    pub(crate) usual: UsualRuns,
}

impl ProcessesNow {
    /// Reads them.
    pub(crate) fn read(conn: &mut Conn<'_>, usual: &Kept<UsualRuns>) -> Result<Self> {
        let fleet = Fleet::read(conn)?;
        let held = fleet::oldest(conn, RUNS).doing("look at the running jobs")?;
        let usual = usual_runs(conn, usual, held.iter().map(|job| job.class_name.as_str()))?;
        Ok(ProcessesNow { fleet, held, usual })
    }
}
