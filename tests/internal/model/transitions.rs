//! The steps, taken on a real database by the functions under test.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect;
use crate::db::internal_tests::checks::JobRow;
use crate::db::internal_tests::db::execute;
use crate::db::internal_tests::model::limits;
use crate::db::internal_tests::model::look::look;
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Job, Model};
use crate::db::internal_tests::model::step::{By, CLASSES, New, QUEUES, Step, When, Which};
use crate::db::internal_tests::model::subject::{Ids, number};
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claimed, Claims};
use crate::db::model::new_row::{Inserted, NewRow};
use crate::db::table::processes;
use crate::db::transition::{claim, dispatch, enqueue, prune};
use crate::job::policy::{Delivery, Policy};
use chrono::{NaiveDate, NaiveDateTime};
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;
use std::collections::BTreeSet;
use std::time::Duration;

/// A step that is being taken.
pub struct Taken<'a> {
    pub conn: Conn<'a>,
    pub ids: &'a mut Ids,
    /// Says what the picks mean.
    pub before: &'a Model,
    pub rows: &'a [JobRow],
}

/// An id that is never given out.
pub const NOBODY: i64 = i64::MAX;

impl Taken<'_> {
    pub fn step(&mut self, step: &Step) -> QueryResult<Answer> {
        match step {
            Step::Register => self.register(),
            Step::Heartbeat {
                process,
                right_name,
            } => self.beat(*process, *right_name),
            Step::Drain { process } => {
                let id = self.process(*process);
                processes::drain(&mut self.conn, id).map(|()| Answer::Nothing)
            }
            Step::Listen { process, listening } => {
                let id = self.process(*process);
                processes::listen(&mut self.conn, id, *listening).map(|()| Answer::Nothing)
            }
            Step::Deregister { process } => {
                let id = self.process(*process);
                prune::deregister(&mut self.conn, id).map(Answer::Is)
            }
            Step::Enqueue(new) => {
                let inserted = enqueue::insert_job(&mut self.conn, &new_row(new))?;
                Ok(self.jobs(&[inserted]))
            }
            Step::EnqueueAll { jobs, roll_back } => self.enqueue_all(jobs, *roll_back),
            Step::MakeDue { job, rank } => Ok(self.make_due(*job, *rank)),
            Step::Dispatch { batch } => dispatch::dispatch(&mut self.conn, *batch, &[])
                .map(|done| Answer::Count(done.count)),
            Step::Promote => self.promote(),
            Step::EnqueueBatch {
                members,
                follows,
                retries,
                inner,
            } => self.enqueue_batch(members, follows, *retries, inner.as_deref()),
            Step::EnqueueAfter {
                new,
                picks,
                on,
                retries,
            } => self.enqueue_after(new, picks, *on, *retries),
            Step::Park { by, claim, until } => self.park(*by, *claim, *until),
            Step::Join {
                by,
                claim,
                picks,
                parks,
            } => self.join(*by, *claim, picks, *parks),
            Step::Undo { by, claim, step } => self.undo(*by, *claim, *step),
            Step::Replace { job, new } => self.replace(*job, new),
            Step::Emit { event, payload } => self.emit(*event, *payload),
            Step::MakeLate { job } => Ok(self.make_late(*job)),
            Step::TimeOut => self.time_out(),
            Step::ClearEvents => self.clear_events(),
            Step::AddToBatch { batch, members } => self.add_to_batch(*batch, members),
            Step::ClearBatches => self.clear_batches(),
            Step::Claim {
                process,
                queues,
                classes,
                limit,
            } => self.claim(*process, queues.as_deref(), *classes, *limit),
            Step::Finish {
                by,
                claims,
                keep,
                next,
            } => self.finish(*by, claims, *keep, next.as_ref()),
            Step::End {
                by,
                claim,
                end,
                keep,
                last,
            } => self.end(*by, *claim, Some(*end), *keep, *last),
            Step::EndByError {
                by,
                claim,
                keep,
                last,
            } => self.end(*by, *claim, None, *keep, *last),
            Step::Decide { claim, end } => Ok(self.decide(*claim, *end)),
            Step::Move { jobs, what } => self.move_jobs(jobs, *what),
            Step::Clear { failed } => self.clear(*failed),
            Step::Release { by, claims, delay } => self.release(*by, claims, *delay),
            Step::Prune {
                process,
                sight,
                crash,
            } => self.prune(*process, *sight, *crash),
            Step::Pause { queue } => Ok(self.pause(*queue, true)),
            Step::Unpause { queue } => Ok(self.pause(*queue, false)),
            Step::PauseClass { class } => self.pause_class(*class),
            Step::ResumeClass { class } => self.resume_class(*class),
            Step::SetLimit { key, slots } => self.set_limit(*key, *slots),
            Step::ClearLimit { key } => self.clear_limit(*key),
            Step::Edit { job, arguments } => self.edit(*job, *arguments),
            Step::Tag { jobs, add } => self.tag(jobs, *add),
            Step::Reconcile { process, memory } => self.reconcile(*process, *memory),
            Step::Ended { claims } => self.ended(claims),
            Step::Look => look(&mut self.conn, self.ids).map(|seen| Answer::Seen(Box::new(seen))),
        }
    }

    pub fn process(&self, which: Which) -> i64 {
        let number = self.before.process(which);
        number.map_or(NOBODY, |number| self.ids.processes[number])
    }

    pub fn owner(&self, by: By, claims: &[Which]) -> i64 {
        let number = self.before.owner(by, claims);
        number.map_or(NOBODY, |number| self.ids.processes[number])
    }

    pub fn claims(&self, picks: &[Which]) -> Vec<i64> {
        let numbers = self.before.picked(picks).into_iter();
        numbers.map(|number| self.ids.claims[number]).collect()
    }

    pub fn jobs(&mut self, inserted: &[Inserted]) -> Answer {
        let numbered = inserted
            .iter()
            .map(|one| (number(&mut self.ids.jobs, one.id), one.is_new));
        Answer::Jobs(numbered.collect())
    }

    pub fn claim_numbers(&mut self, ids: Vec<i64>) -> BTreeSet<usize> {
        ids.into_iter()
            .map(|id| number(&mut self.ids.claims, id))
            .collect()
    }

    pub fn job_numbers(&mut self, ids: Vec<i64>) -> BTreeSet<usize> {
        let jobs = &mut self.ids.jobs;
        ids.into_iter().map(|id| number(jobs, id)).collect()
    }

    fn register(&mut self) -> QueryResult<Answer> {
        let new = processes::NewProcess {
            name: &name(self.ids.processes.len()),
            kind: "Worker",
            pid: 1,
            hostname: "host",
            supervisor_id: None,
            metadata: "{}",
            channel: None,
        };
        let id = processes::register(&mut self.conn, &new)?;
        Ok(Answer::Process(number(&mut self.ids.processes, id)))
    }

    fn beat(&mut self, process: Which, right_name: bool) -> QueryResult<Answer> {
        let id = self.process(process);
        let number = self.before.process(process).filter(|_| right_name);
        let name = number.map_or_else(|| "another".to_owned(), name);
        let beat = processes::heartbeat(&mut self.conn, id, &name)?;
        let cancelled = beat.map(|beat| beat.cancelled);
        Ok(Answer::Beat(
            cancelled.map(|claims| self.claim_numbers(claims)),
        ))
    }

    fn enqueue_all(&mut self, new: &[New], roll_back: bool) -> QueryResult<Answer> {
        let rows: Vec<NewRow> = new.iter().map(new_row).collect();
        if !roll_back {
            let inserted = enqueue::insert_all(&mut self.conn, &rows)?;
            return Ok(self.jobs(&inserted));
        }
        let result: QueryResult<()> = self.conn.transaction(|conn| {
            enqueue::insert_all(conn, &rows)?;
            Err(RollbackTransaction)
        });
        match result {
            Ok(()) | Err(RollbackTransaction) => Ok(Answer::Nothing),
            Err(error) => Err(error),
        }
    }

    fn make_due(&mut self, job: u8, rank: u8) -> Answer {
        if let Some(job) = self.before.scheduled(job) {
            let time = format!("2000-01-01 00:00:0{rank}.000000");
            let id = self.ids.jobs[job];
            set_due(&mut self.conn, &time, &format!("job_id = {id}"));
            // Its own time has passed too.
            let text =
                format!("UPDATE solid_queue_jobs SET scheduled_at = '{time}' WHERE id = {id}");
            execute(&mut self.conn, &text);
        }
        Answer::Nothing
    }

    fn claim(
        &mut self,
        process: Which,
        queues: Option<&[u8]>,
        classes: u8,
        limit: usize,
    ) -> QueryResult<Answer> {
        let want = ClaimRequest {
            process_id: self.process(process),
            queues: &claim_queues(queues),
            classes: &self.open_classes(classes)?,
            max_jobs: limit,
            begins: Begins::All,
            from: &[],
            wanted_after: 0,
        };
        let Claims::Held { jobs: held, .. } = claim::claim(&mut self.conn, &want)? else {
            return Ok(Answer::Unregistered);
        };
        Ok(Answer::Held(self.numbered(&held)))
    }

    pub fn numbered(&mut self, held: &[Claimed]) -> Vec<(usize, usize)> {
        let (ids, before) = (&mut self.ids, self.before);
        let numbered = held.iter().map(|row| {
            let job = number(&mut ids.jobs, row.job_id);
            // A run gets the newest arguments.
            let expected = before.jobs.get(job).map(Job::arguments);
            assert_eq!(Some(&row.arguments), expected.as_ref(), "job {job}");
            (number(&mut ids.claims, row.claim_id), job)
        });
        numbered.collect()
    }

    fn pause(&mut self, queue: u8, paused: bool) -> Answer {
        let queue = QUEUES[usize::from(queue)];
        let text = if paused {
            format!(
                "INSERT INTO solid_queue_pauses (queue_name, created_at) \
                 VALUES ('{queue}', '2000-01-01 00:00:00') ON CONFLICT (queue_name) DO NOTHING"
            )
        } else {
            format!("DELETE FROM solid_queue_pauses WHERE queue_name = '{queue}'")
        };
        execute(&mut self.conn, &text);
        Answer::Nothing
    }
}

pub fn claim_queues(queues: Option<&[u8]>) -> ClaimQueues {
    let name = |queue: &u8| QUEUES[usize::from(*queue)].to_owned();
    queues.map_or(ClaimQueues::All, |queues| {
        ClaimQueues::Named(queues.iter().map(name).collect())
    })
}

pub fn class_names(classes: u8) -> Vec<String> {
    let all = CLASSES.iter().enumerate();
    let chosen = all.filter(|(class, _)| classes & (1 << class) != 0);
    chosen.map(|(_, name)| (*name).to_owned()).collect()
}

fn name(number: usize) -> String {
    format!("worker-{number}")
}

pub fn new_row(new: &New) -> NewRow {
    let (at, delay) = match new.when {
        When::Now => (None, None),
        When::Past => (day(2001), None),
        When::Future => (day(2999), None),
        When::After(seconds) => (
            None,
            Some(dialect::micros(Duration::from_secs(seconds.into()))),
        ),
    };
    NewRow {
        at,
        delay,
        idempotency_key: new.key.map(|key| format!("key {key}")),
        unique_id: new.name.map(|name| format!("name {name}")),
        max_crashes: new.max_crashes,
        at_most_once: new.delivery != Delivery::AtLeastOnce,
        policy: Policy::new().delivery(new.delivery).to_column(),
        limit: new.limit.map(limits::new_limit),
        ..NewRow::new(
            CLASSES[usize::from(new.class)].to_owned(),
            "{}".to_owned(),
            QUEUES[usize::from(new.queue)].to_owned(),
            new.priority,
        )
    }
}

/// The beginning of a year.
pub fn day(year: i32) -> Option<NaiveDateTime> {
    NaiveDate::from_ymd_opt(year, 1, 1)?.and_hms_opt(0, 0, 0)
}

pub fn set_due(conn: &mut Conn<'_>, time: &str, which: &str) {
    let set = format!(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '{time}' WHERE {which}"
    );
    execute(conn, &set);
}
