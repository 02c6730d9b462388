//! The rows before the actors start, and a description of the rows afterwards.

use crate::db::transition::end;

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::checks;
use crate::db::internal_tests::db::execute;
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claims, Fence, FinishedRow};
use crate::db::model::new_row::{NewLimit, NewRow};
use crate::db::model::outcome::{Ending, JobFailure};
use crate::db::table::processes;
use crate::db::transition::{claim, enqueue, promote};
use diesel::QueryResult;
use std::time::Duration;

/// The ids of what was set up, in that order.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub processes: Vec<i64>,
    pub jobs: Vec<i64>,
    pub claims: Vec<i64>,
}

impl World {
    /// A process p1, p2, ..
    pub fn process(&mut self, conn: &mut Conn<'_>) {
        let number = self.processes.len() + 1;
        let new = processes::NewProcess {
            name: &format!("worker-{number}"),
            kind: "Worker",
            pid: 1,
            hostname: "host",
            supervisor_id: None,
            metadata: "{}",
            channel: None,
        };
        self.processes
            .push(processes::register(conn, &new).unwrap());
    }

    /// A job j1, j2, .., in whatever way `row` says.
    pub fn job(&mut self, conn: &mut Conn<'_>, row: &NewRow) {
        self.jobs.push(enqueue::insert_job(conn, row).unwrap().id);
    }

    /// A job that is due and not dispatched.
    pub fn due(&mut self, conn: &mut Conn<'_>) {
        self.job(conn, &later());
        let id = self.jobs[self.jobs.len() - 1];
        execute(
            conn,
            &format!(
                "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2000-01-01 00:00:00.000000' WHERE job_id = {id}"
            ),
        );
    }

    /// A job, claimed by the process of that number.
    pub fn claimed(&mut self, conn: &mut Conn<'_>, process: usize, row: &NewRow) {
        self.job(conn, row);
        promote::promote(conn, 10).unwrap();
        let claims = take(conn, self.processes[process - 1], 1).unwrap().unwrap();
        self.claims
            .extend(claims.into_iter().map(|(claim, _)| claim));
    }

    /// A job that has failed, by the process of that number.
    pub fn failed(&mut self, conn: &mut Conn<'_>, process: usize, row: &NewRow) {
        self.claimed(conn, process, row);
        let fence = Fence {
            process_id: self.processes[process - 1],
            claim_id: self.claims.pop().unwrap(),
        };
        let ending = Ending::Fail(JobFailure::new("test", "as told"));
        end::end(conn, fence, &ending, Duration::ZERO, FinishedRow::Keep).unwrap();
    }

    /// The state of everything, as `j1 ready, j2 claimed by p1; p1 p2`.
    pub fn describe(&self, conn: &mut Conn<'_>) -> String {
        let called =
            |ids: &[i64], letter: char, id: i64| match ids.iter().position(|known| *known == id) {
                Some(index) => format!("{letter}{}", index + 1),
                None => "new".to_owned(),
            };
        let mut all = Vec::new();
        for row in checks::jobs(conn) {
            let mut text = format!("{} {}", called(&self.jobs, 'j', row.id), row.place);
            if let Some(process) = row.process_id {
                text.push_str(&format!(" by {}", called(&self.processes, 'p', process)));
            }
            if row.crash_count > 0 {
                text.push_str(&format!(" ({} crash)", row.crash_count));
            }
            all.push(text);
        }
        let rows = checks::processes(conn);
        let alive: Vec<String> = rows
            .iter()
            .map(|row| called(&self.processes, 'p', row.id))
            .collect();
        format!("{}; {}", all.join(", "), alive.join(" "))
    }
}

/// A job that is ready at once.
pub fn row() -> NewRow {
    NewRow::new("a".to_owned(), "{}".to_owned(), "default".to_owned(), 0)
}

/// A job that is due in an hour.
pub fn later() -> NewRow {
    NewRow {
        delay: Some(3_600_000_000),
        ..row()
    }
}

pub fn with_key(key: &str) -> NewRow {
    NewRow {
        idempotency_key: Some(key.to_owned()),
        ..row()
    }
}

/// A job that is ready alone of its key.
pub fn limited() -> NewRow {
    NewRow {
        limit: Some(NewLimit {
            key: "a/k".to_owned(),
            slots: 1,
            discards: false,
            ordered: false,
        }),
        ..row()
    }
}

/// The same, in the order of enqueue.
pub fn ordered() -> NewRow {
    let mut row = limited();
    row.limit.iter_mut().for_each(|limit| limit.ordered = true);
    row
}

pub fn once() -> NewRow {
    NewRow {
        at_most_once: true,
        ..row()
    }
}

/// Claims as `(claim, job)`; nothing when the process is not registered.
pub fn take(
    conn: &mut Conn<'_>,
    process: i64,
    limit: usize,
) -> QueryResult<Option<Vec<(i64, i64)>>> {
    let want = ClaimRequest {
        process_id: process,
        queues: &ClaimQueues::All,
        classes: &["a".to_owned()],
        max_jobs: limit,
        begins: Begins::All,
        from: &[],
        wanted_after: 0,
    };
    Ok(match claim::claim(conn, &want)? {
        Claims::Unregistered => None,
        Claims::Held { jobs, .. } => {
            Some(jobs.iter().map(|row| (row.claim_id, row.job_id)).collect())
        }
    })
}
