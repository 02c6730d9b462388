//! A real database under the same steps as the reference, and how the two are
//! compared.

use crate::clock;
use crate::db::conn::connection::AsConn;
use crate::db::conn::owned::DbConnection;
use crate::db::internal_tests::checks::{self, JobRow};
use crate::db::internal_tests::db::TestDb;
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Due, Job, Model, Place};
use crate::db::internal_tests::model::step::{CLASSES, QUEUES, Step};
use crate::db::internal_tests::model::transitions::{Taken, set_due};
use crate::job::policy::Delivery;
use diesel::QueryResult;
use std::time::Instant;

pub struct Subject {
    pub name: &'static str,
    connection: DbConnection,
    clearing: DbConnection,
    ids: Ids,
    /// The rows after the step before.
    rows: Vec<JobRow>,
    /// The time at which the step began.
    began: Instant,
}

/// The ids that the database has given to the jobs, processes and claims of the reference.
#[derive(Debug, Default)]
pub struct Ids {
    pub jobs: Vec<i64>,
    pub processes: Vec<i64>,
    pub claims: Vec<i64>,
    pub batches: Vec<i64>,
}

/// The number of an id; those that nobody has named yet get the next one.
pub fn number(ids: &mut Vec<i64>, id: i64) -> usize {
    ids.iter()
        .position(|known| *known == id)
        .unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        })
}

impl Subject {
    pub fn new(db: &TestDb) -> Self {
        Subject {
            name: if db.is_postgres() {
                "Postgres"
            } else {
                "SQLite"
            },
            connection: db.connect(),
            clearing: db.untriggered(),
            ids: Ids::default(),
            rows: Vec::new(),
            began: clock::instant(),
        }
    }

    pub fn clear(&mut self) {
        checks::clear(&mut self.clearing.as_conn());
        self.ids = Ids::default();
        self.rows.clear();
    }

    /// Takes the step; `before` says what its picks mean.
    pub fn apply(&mut self, step: &Step, before: &Model) -> QueryResult<Answer> {
        self.began = clock::instant();
        let mut taken = Taken {
            conn: self.connection.as_conn(),
            ids: &mut self.ids,
            before,
            rows: &self.rows,
        };
        taken.step(step)
    }

    /// Lets nothing become due while the test runs.
    pub fn put_off(&mut self) {
        let conn = &mut self.connection.as_conn();
        set_due(
            conn,
            "2999-01-01 00:00:00.000000",
            "scheduled_at > '2010-01-01'",
        );
    }

    /// Compares the database with the reference after a step; `before` is the
    /// reference before it. Gives what can be compared with another database.
    pub fn check(&mut self, before: &Model, after: &Model) -> Result<Vec<String>, String> {
        let conn = &mut self.connection.as_conn();
        let mut violations = checks::violations(conn).into_iter();
        if let Some(violation) = violations.find(|what| !after.may_violate(what)) {
            return Err(violation);
        }
        self.check_processes(after)?;
        after.check_flows(&mut self.connection.as_conn(), &self.ids)?;
        let mut rows = checks::jobs(&mut self.connection.as_conn());
        rows.iter_mut().for_each(forget_batch);
        let mut seen = Vec::new();
        for (number, job) in after.jobs.iter().enumerate() {
            let id = self.ids.jobs[number];
            let row = rows.iter().find(|row| row.id == id);
            self.ids.compare(number, job, row, after, self.began)?;
            // I3, I6: what no transition was entitled to change has not changed.
            let old = self.rows.iter().find(|old| old.id == id);
            if before.jobs.get(number) == Some(job) && old.map(undated) != row.map(undated) {
                return Err(format!("job {number} was changed: {old:?} became {row:?}"));
            }
            seen.push(row.map_or_else(String::new, |row| format!("{} {:?}", row.fixed, row.error)));
        }
        if rows.iter().any(|row| !self.ids.jobs.contains(&row.id)) {
            return Err("there is a job that nobody has enqueued".to_owned());
        }
        self.rows = rows;
        Ok(seen)
    }

    fn check_processes(&mut self, after: &Model) -> Result<(), String> {
        let rows = checks::processes(&mut self.connection.as_conn());
        for (number, process) in after.processes.iter().enumerate() {
            let row = rows.iter().find(|row| row.id == self.ids.processes[number]);
            let found = row.map(|row| (row.heartbeat_seq, row.draining));
            let expected = (process.heartbeat_seq, process.draining);
            if found != process.registered.then_some(expected) {
                return Err(format!(
                    "process {number} should be {process:?}, and is {row:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Ids {
    fn compare(
        &self,
        number: usize,
        job: &Job,
        row: Option<&JobRow>,
        model: &Model,
        began: Instant,
    ) -> Result<(), String> {
        let Some(row) = row else {
            return match job.place {
                Place::Gone => Ok(()),
                _ => Err(format!("I4: job {number} is lost: {job:?}")),
            };
        };
        let claim = |number: usize| self.claims.get(number).copied();
        let holder = match job.place {
            Place::Claimed(held) => {
                let process = self.processes.get(model.claims[held].process);
                (claim(held), process.copied())
            }
            _ => (None, None),
        };
        let is_cancelled = match job.place {
            Place::Claimed(claim) => model.claims[claim].cancelled,
            _ => false,
        };
        let agrees = is_at(row, job.place, began)
            && holder == (row.claim_id, row.process_id)
            && (row.attempts, row.crash_count) == (job.attempts, job.crash_count)
            && row.attempts_kept == job.attempts_kept
            && row.cancelled == is_cancelled
            && row.fixed == fixed(job)
            && row.last_claim_id == job.last_claim.and_then(claim);
        if agrees {
            Ok(())
        } else {
            Err(format!("job {number} should be {job:?}, and is {row:?}"))
        }
    }
}

/// `began` is the time at which the step began: on a busy machine, it takes seconds until it is compared.
fn is_at(row: &JobRow, place: Place, began: Instant) -> bool {
    let name = match place {
        Place::Ready => "ready",
        Place::Blocked { .. } | Place::Waits | Place::Awaits { .. } => "blocked",
        Place::Claimed(_) => "claimed",
        Place::Scheduled(_) => "scheduled",
        Place::Failed(_) => "failed",
        Place::Finished => "finished",
        Place::Gone => return false,
    };
    let details = match place {
        Place::Scheduled(Due::In(seconds)) => {
            let off = row.delay.map(|delay| (delay - f64::from(seconds)).abs());
            let most = 5.0 + began.elapsed().as_secs_f64();
            !row.due && off.is_some_and(|off| off < most)
        }
        Place::Scheduled(due) => row.due == (due != Due::Far),
        Place::Failed(kind) => {
            let kind = format!("\"{kind}\"");
            row.error
                .as_ref()
                .is_some_and(|error| error.contains(&kind))
        }
        _ => true,
    };
    row.place == name && details
}

/// Returns the values with which a job was enqueued, and the priority that it has been given.
fn fixed(job: &Job) -> String {
    let new = &job.new;
    format!(
        "{} {} {} {} {} {} {} {}",
        QUEUES[usize::from(new.queue)],
        CLASSES[usize::from(new.class)],
        new.priority,
        job.arguments(),
        if new.delivery == Delivery::AtLeastOnce {
            ""
        } else {
            "once"
        },
        new.max_crashes
            .map_or_else(String::new, |max| max.to_string()),
        new.key.map_or_else(String::new, |key| format!("key {key}")),
        new.name
            .map_or_else(String::new, |name| format!("name {name}")),
    )
}

/// The arguments of a job that stands for a batch name it, which each database calls otherwise.
fn forget_batch(row: &mut JobRow) {
    if let Some((before, rest)) = row.fixed.split_once("{\"batch\":")
        && let Some((_, after)) = rest.split_once('}')
    {
        row.fixed = format!("{before}{{}}{after}");
    }
}

/// A row without what the test itself moves.
fn undated(row: &JobRow) -> JobRow {
    JobRow {
        delay: None,
        ..row.clone()
    }
}
