//! Steps at which jobs wait, by the reference and by a database: for an event, for a time, or for other jobs.

use crate::db::internal_tests::db::execute;
use crate::db::internal_tests::model::edges::Awaited;
use crate::db::internal_tests::model::reference::{Answer, waiting};
use crate::db::internal_tests::model::state::{Model, Place};
use crate::db::internal_tests::model::step::{By, End, Pick, Step, Until, Which};
use crate::db::internal_tests::model::subject::Ids;
use crate::db::internal_tests::model::transitions::{NOBODY, Taken};
use crate::db::model::claim::{Fence, FinishedRow};
use crate::db::model::outcome::{ClaimEnd, Ending, ParkUntil, ParkedStep};
use crate::db::table::flows::events;
use crate::db::table::steps::StepState;
use crate::db::transition::end;
use crate::db::transition::enqueue::connect;
use crate::db::transition::flows::wake;
use diesel::QueryResult;
use diesel::result::Error::NotFound;
use std::collections::BTreeSet;
use std::time::Duration;

/// The name of the step at which a claim ends.
fn step_name(claim: usize) -> String {
    format!("step {claim}")
}

fn event_name(event: u8) -> String {
    format!("event/{event}")
}

impl Model {
    pub fn park(&mut self, by: By, pick: Which, until: Until) -> Answer {
        let Some(claim) = self.end(by, &[pick]).first().copied() else {
            return Answer::EndedAs(None);
        };
        if self.claims[claim].cancelled {
            return self.end_cancelled(claim);
        }
        let number = self.claims[claim].job;
        let job = &mut self.jobs[number];
        job.last_claim = Some(claim);
        match until {
            Until::Event(event) => {
                let is_late = false;
                job.place = Place::Awaits { event, is_late };
                self.asked.waits.insert(number);
            }
            Until::Pause(seconds) => {
                job.place = waiting(seconds);
                job.keeps_place = false;
                job.steps.insert(step_name(claim), "pause".to_owned());
            }
        }
        Answer::Is(true)
    }

    fn end_cancelled(&mut self, claim: usize) -> Answer {
        self.follow(claim, End::Cancel, true, true);
        Answer::EndedAs(Some(End::Cancel))
    }

    /// Returns a claim, if there is one, and what it is to wait for: not its own job or batch.
    fn joined(&self, pick: Which, picks: &[Pick]) -> Option<(usize, Vec<Awaited>)> {
        let claim = self.claim(pick)?;
        let job = self.claims[claim].job;
        let own = self.jobs[job].in_batch.map(|of| Awaited::Batch(of.batch));
        let mut parents = self.awaited(picks);
        parents.retain(|parent| *parent != Awaited::Job(job) && Some(*parent) != own);
        (!parents.is_empty()).then_some((claim, parents))
    }

    pub fn join(&mut self, by: By, pick: Which, picks: &[Pick], parks: bool) -> Answer {
        let Some((_, parents)) = self.joined(pick, picks) else {
            return Answer::Nothing;
        };
        let Some(claim) = self.end(by, &[pick]).first().copied() else {
            return Answer::EndedAs(None);
        };
        let number = self.claims[claim].job;
        if !self.connect(number, &parents) {
            return Answer::Is(false);
        }
        if !parks {
            return Answer::Nothing;
        }
        if self.claims[claim].cancelled {
            return self.end_cancelled(claim);
        }
        let job = &mut self.jobs[number];
        job.last_claim = Some(claim);
        job.place = Place::Waits;
        job.steps.insert(step_name(claim), "{}".to_owned());
        self.asked.children.insert(number);
        Answer::Is(true)
    }

    pub fn emit(&mut self, event: u8, payload: u8) -> Answer {
        let first = *self.events.entry(event).or_insert(payload);
        if first == payload {
            self.asked.events.insert(event);
        }
        Answer::Is(first == payload)
    }

    fn awaits(&self, event: u8) -> impl Iterator<Item = usize> {
        let jobs = self.jobs.iter().enumerate();
        let awaits = move |place| matches!(place, Place::Awaits { event: of, .. } if of == event);
        jobs.filter(move |(_, job)| awaits(job.place))
            .map(|(number, _)| number)
    }

    /// Lets those of the jobs go on whose event is there, or whose time is over. Gives how many.
    fn wake_jobs(&mut self, jobs: &BTreeSet<usize>) -> usize {
        let mut count = 0;
        for &number in jobs {
            let job = &mut self.jobs[number];
            let Place::Awaits { event, is_late } = job.place else {
                continue;
            };
            let value = match self.events.get(&event) {
                Some(payload) => format!("[{payload}]"),
                None if is_late => "null".to_owned(),
                None => continue,
            };
            let claim = job.last_claim.unwrap();
            job.steps.insert(step_name(claim), value);
            job.place = Place::Ready;
            self.enter(number);
            count += 1;
        }
        count
    }

    /// Handles the requests about waits and events.
    pub fn wake(&mut self, waits: &BTreeSet<usize>, emitted: &BTreeSet<u8>) {
        let mut jobs = waits.clone();
        for event in emitted
            .iter()
            .filter(|event| self.events.contains_key(event))
        {
            jobs.extend(self.awaits(*event));
        }
        self.wake_jobs(&jobs);
    }

    fn parked(&self, number: u8) -> Option<usize> {
        let awaits = |job: &usize| matches!(self.jobs[*job].place, Place::Awaits { .. });
        let all: Vec<usize> = (0..self.jobs.len()).filter(awaits).collect();
        (!all.is_empty()).then(|| all[usize::from(number) % all.len()])
    }

    pub fn make_late(&mut self, number: u8) -> Answer {
        if let Some(job) = self.parked(number)
            && let Place::Awaits { is_late, .. } = &mut self.jobs[job].place
        {
            *is_late = true;
        }
        Answer::Nothing
    }

    pub fn time_out(&mut self) -> Answer {
        let is_late =
            |job: &usize| matches!(self.jobs[*job].place, Place::Awaits { is_late: true, .. });
        let late = (0..self.jobs.len()).filter(is_late).collect();
        Answer::Count(self.wake_jobs(&late))
    }

    pub fn clear_events(&mut self) -> Answer {
        let events: Vec<u8> = self.events.keys().copied().collect();
        let unused = events
            .into_iter()
            .filter(|event| self.awaits(*event).next().is_none());
        let unused: Vec<u8> = unused.collect();
        self.events.retain(|event, _| !unused.contains(event));
        Answer::Count(unused.len())
    }

    /// Returns the expected lines of waits, events and recorded steps in a database.
    pub fn wait_lines(&self, ids: &Ids) -> Vec<String> {
        let mut lines = Vec::new();
        for (event, payload) in &self.events {
            lines.push(format!("{} {payload}", event_name(*event)));
        }
        for (number, job) in self.jobs.iter().enumerate() {
            let id = ids.jobs[number];
            if let Place::Awaits { event, .. } = job.place {
                let (step, event) = (step_name(job.last_claim.unwrap()), event_name(event));
                lines.push(format!("wait of {id} at {step} for {event}"));
            }
            for (step, value) in &job.steps {
                lines.push(format!("{step} of {id} {value}"));
            }
        }
        lines
    }
}

/// The same lines, by a database. The value of a pause is a time.
pub const WAIT_LINES: &str = "SELECT name || ' ' || payload AS t FROM windlass_events \
     UNION ALL SELECT 'wait of ' || job_id || ' at ' || step || ' for ' || event_name FROM windlass_waits \
     UNION ALL SELECT name || ' of ' || job_id || ' ' || CASE WHEN value LIKE '\"%' THEN 'pause' ELSE value END \
     FROM windlass_steps";

impl Taken<'_> {
    pub fn fence(&self, by: By, pick: Which) -> Fence {
        Fence {
            claim_id: self.claims(&[pick]).first().copied().unwrap_or(NOBODY),
            process_id: self.owner(by, &[pick]),
        }
    }

    fn park_until(&mut self, fence: Fence, pick: Which, until: ParkUntil) -> QueryResult<Answer> {
        let claim = self.before.claim(pick).unwrap_or_default();
        let step = step_name(claim);
        let ending = Ending::Park(ParkedStep { step, until });
        let claim = ClaimEnd {
            claim_id: fence.claim_id,
            ending: &ending,
            ran: Duration::ZERO,
            last_retry: None,
        };
        let process = fence.process_id;
        let mut done = end::end_all(&mut self.conn, process, &[claim], FinishedRow::Keep)?;
        Ok(match done.pop().map(|done| done.ending) {
            Some(Ending::Park(_)) => Answer::Is(true),
            Some(Ending::Cancel(_)) => Answer::EndedAs(Some(End::Cancel)),
            Some(other) => panic!("a claim that waits has ended as {other:?}"),
            None => Answer::EndedAs(None),
        })
    }

    pub fn park(&mut self, by: By, pick: Which, until: Until) -> QueryResult<Answer> {
        const WEEK: Duration = Duration::from_secs(7 * 86_400);
        let until = match until {
            Until::Pause(seconds) => ParkUntil::Pause(Duration::from_secs(seconds.into())),
            Until::Event(event) => ParkUntil::Event {
                name: event_name(event),
                timeout: WEEK,
            },
        };
        self.park_until(self.fence(by, pick), pick, until)
    }

    pub fn join(
        &mut self,
        by: By,
        pick: Which,
        picks: &[Pick],
        parks: bool,
    ) -> QueryResult<Answer> {
        let Some((claim, parents)) = self.before.joined(pick, picks) else {
            return Ok(Answer::Nothing);
        };
        let (fence, parents) = (self.fence(by, pick), self.parents(&parents));
        let job = self.ids.jobs[self.before.claims[claim].job];
        let step = step_name(claim);
        match connect::join(&mut self.conn, fence, job, &step, &parents) {
            Ok(StepState::Lost) => Ok(Answer::EndedAs(None)),
            Ok(StepState::Completed(value)) => panic!("{step} was done before: {value}"),
            Ok(StepState::New) if parks => {
                self.park_until(fence, pick, ParkUntil::Joined("{}".to_owned()))
            }
            Ok(StepState::New) => Ok(Answer::Nothing),
            Err(NotFound) => Ok(Answer::Is(false)),
            Err(error) => Err(error),
        }
    }

    pub fn emit(&mut self, event: u8, payload: u8) -> QueryResult<Answer> {
        let emitted = wake::emit(&mut self.conn, &event_name(event), &payload.to_string());
        emitted.map(Answer::Is)
    }

    pub fn make_late(&mut self, number: u8) -> Answer {
        if let Some(job) = self.before.parked(number) {
            let text = format!(
                "UPDATE windlass_waits SET timeout_at = '2000-01-01 00:00:00.000000' WHERE job_id = {}",
                self.ids.jobs[job]
            );
            execute(&mut self.conn, &text);
        }
        Answer::Nothing
    }

    pub fn time_out(&mut self) -> QueryResult<Answer> {
        let done = wake::time_out(&mut self.conn, 1_000)?;
        Ok(Answer::Count(done.woken))
    }

    pub fn clear_events(&mut self) -> QueryResult<Answer> {
        events::clear(&mut self.conn, Duration::ZERO, 1_000).map(Answer::Count)
    }
}

/// Returns the names of the changes to jobs that wait at a step. The test checks that all of them happen.
pub fn kinds(step: &Step, before: &Model, after: &Model) -> Vec<String> {
    let mut kinds = Vec::new();
    for (old, new) in before.jobs.iter().zip(&after.jobs) {
        let what = match (step, old.place, new.place) {
            (Step::Park { .. }, _, Place::Awaits { event, .. }) if old.place != new.place => {
                match before.events.contains_key(&event) {
                    true => "Park after the event",
                    false => "Park before the event",
                }
            }
            (Step::Park { .. }, Place::Claimed(_), Place::Scheduled(_)) => "Park in a pause",
            (Step::Promote | Step::TimeOut, Place::Awaits { event, is_late }, place)
                if place != old.place =>
            {
                match (before.events.contains_key(&event), is_late, place) {
                    (true, false, Place::Blocked { .. }) => "Wake to a limit",
                    (true, false, _) => "Wake by an event",
                    (true, true, _) => "Wake by a late event",
                    (false, ..) => "Wake without an event",
                }
            }
            (Step::Move { .. }, Place::Awaits { .. }, Place::Finished) => "Move cancels a wait",
            (Step::Move { .. }, Place::Awaits { .. }, Place::Gone) => "Move discards a wait",
            _ => continue,
        };
        kinds.push(what.to_owned());
    }
    kinds
}
