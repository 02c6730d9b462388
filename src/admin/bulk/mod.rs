//! Changes of many jobs: in batches, each of which has its row in the audit.

pub(crate) mod change;

use crate::admin::bulk::change::Change;
use crate::admin::jobs::{Changed, Jobs};
use crate::db::conn::dialect::IdRange;
use crate::db::model::audit::AuditAction;
use crate::db::model::decision::JobState;
use crate::db::model::extras::{MAX_LABEL, TagChange, is_label};
use crate::db::query::filter::Filter;
use crate::db::query::jobs;
use crate::db::transition::operate::edit;
use crate::db::transition::operators::{AuditEffect, AuditTrail};
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use serde_json::{Map, Value};
use std::ops::ControlFlow;

// --- A selection of jobs as the pairs of a query string ---

/// The values that may appear more than once.
const LISTS: [&str; 3] = ["ids", "tags", "any_tag"];

/// The name of the states of the jobs.
const STATE: &str = "state";

const LIMIT: &str = "limit";

impl Jobs {
    /// Returns the selection as pairs of names and values, for a query string. They are not encoded.
    ///
    /// ```
    /// use windlass::Jobs;
    ///
    /// let failed = Jobs::failed().class("import").tagged(["eu", "vip"]);
    /// let pairs = failed.to_pairs();
    /// assert_eq!(pairs[0], ("state".into(), "failed".into()));
    /// assert_eq!(Jobs::from_pairs(pairs)?, failed);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut pairs = Vec::new();
        let mut add = |name: &str, value: &Value| pairs.push((name.to_owned(), text(value)));
        for state in &self.states {
            add(STATE, &serde_json::to_value(state).unwrap_or_default());
        }
        if let Ok(Value::Object(filter)) = serde_json::to_value(&self.filter) {
            for (name, value) in &filter {
                match value {
                    Value::Array(items) => items.iter().for_each(|item| add(name, item)),
                    value => add(name, value),
                }
            }
        }
        if let Some(limit) = self.limit {
            add(LIMIT, &limit.into());
        }
        pairs
    }

    /// Returns the selection of the pairs of a query string, as [`to_pairs`](Self::to_pairs) makes
    /// them. An empty value is none. Without a state, all jobs that have not ended are selected.
    ///
    /// # Errors
    /// If a name is unknown, or a value is invalid.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let (mut states, mut filter, mut limit) = (Vec::new(), Map::new(), None);
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            match &*name {
                STATE => states.push(Value::String(value)),
                LIMIT => limit = Some(number(&name, &value)?),
                "batch" | "whole_batch" => {
                    let batch = number(&name, &value)?;
                    filter.insert(name, batch);
                }
                name if LISTS.contains(&name) => {
                    let item = match name {
                        "ids" => number(name, &value)?,
                        _ => Value::String(value),
                    };
                    let list = filter
                        .entry(name)
                        .or_insert_with(|| Value::Array(Vec::new()));
                    list.as_array_mut()
                        .into_iter()
                        .for_each(|list| list.push(item.clone()));
                }
                _ => {
                    filter.insert(name, Value::String(value));
                }
            }
        }
        let wrong = |error: serde_json::Error| {
            Error::Settings(format!("this is not a selection of jobs: {error}"))
        };
        let mut jobs = Jobs::unfinished();
        if !states.is_empty() {
            jobs.states = serde_json::from_value(Value::Array(states)).map_err(wrong)?;
        }
        jobs.filter = serde_json::from_value(Value::Object(filter)).map_err(wrong)?;
        jobs.limit = limit.and_then(|limit| limit.as_u64());
        Ok(jobs)
    }
}

fn number(name: &str, value: &str) -> Result<Value> {
    let number: i64 = value.trim().parse().map_err(|_| {
        Error::Settings(format!(
            "`{}` is not a number, as `{name}` has to be",
            value
                .chars()
                .take(80)
                .flat_map(char::escape_default)
                .collect::<String>()
        ))
    })?;
    Ok(number.into())
}

// --- Selecting jobs by their tags, and changing these ---

fn list<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Vec<String> {
    tags.into_iter().map(Into::into).collect()
}

impl Jobs {
    /// Restricts the selection to jobs with all of these [tags](crate::NewJob::tag).
    ///
    /// Tags are compared exactly. There is no index: all jobs of the selected states are read.
    pub fn tagged<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.filter.tags = Some(list(tags));
        self
    }

    /// Restricts the selection to jobs with at least one of these [tags](crate::NewJob::tag), so to
    /// none without tags.
    pub fn tagged_any<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.filter.any_tag = Some(list(tags));
        self
    }

    /// Adds a [tag](crate::NewJob::tag) to the jobs, in batches of 500, each in one transaction.
    ///
    /// Running jobs are tagged too, but do not see it before their next attempt. A job that has the
    /// tag, or 32 others, is passed over.
    ///
    /// # Errors
    /// - If the database does not answer or has no tables; completed batches stay changed.
    /// - If the tag is not 1 to 100 bytes long or contains NUL, before any job is changed.
    pub fn tag<C: AsConn + ?Sized>(&self, conn: &mut C, tag: &str) -> Result<Changed> {
        self.retag(conn, TagChange::Add(tag), &mut |_| {})
    }

    /// Removes a tag from the jobs, in batches of 500, each in one transaction. A job without the tag
    /// is passed over.
    ///
    /// # Errors
    /// As for [`tag`](Self::tag).
    pub fn untag<C: AsConn + ?Sized>(&self, conn: &mut C, tag: &str) -> Result<Changed> {
        self.retag(conn, TagChange::Remove(tag), &mut |_| {})
    }

    pub(crate) fn retag<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        change: TagChange<'_>,
        progress: &mut dyn FnMut(&Changed),
    ) -> Result<Changed> {
        let (TagChange::Add(text) | TagChange::Remove(text)) = change;
        if !is_label(text) {
            return Err(Error::Settings(format!(
                "a tag must have 1 to {MAX_LABEL} bytes and no NUL"
            )));
        }
        let mut conn = own(conn);
        let action = match change {
            TagChange::Add(_) => AuditAction::TagJobs,
            TagChange::Remove(_) => AuditAction::UntagJobs,
        };
        let mut trail = self
            .trail(action)
            .parameters(serde_json::json!({ "tag": text }).to_string());
        let apply = |conn: &mut Conn<'_>, _: JobState, jobs: &[i64]| {
            self.name_batch(&mut trail, jobs);
            let tagged = trail.record(
                conn,
                |conn| edit::tag(conn, jobs, change),
                |tagged| AuditEffect::of_jobs(tagged.len() as u64),
            );
            let changed = tagged.during("change the tags of jobs")?.len() as u64;
            Ok(Changed {
                changed,
                passed_over: jobs.len() as u64 - changed,
                ..Changed::default()
            })
        };
        let progress = |done: &Changed| {
            progress(done);
            ControlFlow::Continue(())
        };
        self.each_batch(&mut conn, progress, apply)
    }
}

// --- Walks over selected jobs batch by batch ---

/// The number of jobs in one transaction.
pub(crate) const BATCH: usize = 500;

/// The states through which jobs move until they run, in this order.
const MOVES: [JobState; 4] = [
    JobState::Scheduled,
    JobState::Blocked,
    JobState::Ready,
    JobState::Claimed,
];

impl Jobs {
    /// Returns the selection in the order in which its jobs are followed from state to state, if a
    /// change can do that. `None` if not.
    ///
    /// A cancel of all jobs that wait or run can: no job comes to these states from another one, unless
    /// it is new or an operator retries it. Other changes leave out states from which jobs come that
    /// were not selected.
    pub(crate) fn followed(&self, change: &Change) -> Option<Self> {
        let has_all = MOVES.iter().all(|state| self.states.contains(state));
        if *change != Change::Cancel || !has_all || self.filter.whole_batch.is_some() {
            return None;
        }
        let mut jobs = self.clone();
        jobs.states.retain(|state| !MOVES.contains(state));
        jobs.states.splice(0..0, MOVES);
        Some(jobs)
    }

    /// Splits the selection into parts with few ids each, which are sent with every step. If only a
    /// few jobs are wanted, there is one part.
    fn parts(&self) -> impl Iterator<Item = Filter> {
        let parts = match &self.filter.ids {
            Some(ids) if self.limit.is_none() && ids.len() > BATCH => {
                let ids: std::collections::BTreeSet<i64> = ids.iter().copied().collect();
                let ids: Vec<i64> = ids.into_iter().collect();
                let part = |ids: &[i64]| Filter {
                    ids: Some(ids.to_vec()),
                    ..self.filter.clone()
                };
                ids.chunks(BATCH).map(part).collect()
            }
            _ => vec![self.filter.clone()],
        };
        parts.into_iter()
    }

    /// Returns how many jobs are changed at most.
    #[cfg(feature = "cli")]
    pub(crate) fn most(&self) -> Option<u64> {
        self.limit
    }

    /// Restricts the selection to failed jobs.
    pub(crate) fn failed_only(&self) -> Self {
        let mut jobs = self.clone();
        jobs.states.retain(|state| *state == JobState::Failed);
        jobs
    }

    /// Returns the trail of a change of these jobs in the audit.
    pub(crate) fn trail(&self, action: AuditAction) -> AuditTrail<'_> {
        let trail = AuditTrail::new(&self.actor, action);
        match self.filter.ids.as_deref() {
            Some(&[one]) => trail.target(one.to_string()),
            _ => trail.filter(serde_json::to_string(self).unwrap_or_default()),
        }
    }

    /// Names the jobs of a batch in its row, if the jobs were selected by their ids.
    pub(crate) fn name_batch(&self, trail: &mut AuditTrail<'_>, jobs: &[i64]) {
        if self.filter.ids.as_ref().is_some_and(|ids| ids.len() > 1) {
            let batch = self
                .clone()
                .ids(jobs.iter().map(|id| crate::job::JobId(*id)));
            trail.filter_of_each(serde_json::to_string(&batch).unwrap_or_default());
        }
    }

    /// Changes the jobs in batches, until `progress` breaks.
    pub(crate) fn each_batch(
        &self,
        conn: &mut Conn<'_>,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
        change: impl FnMut(&mut Conn<'_>, JobState, &[i64]) -> Result<Changed>,
    ) -> Result<Changed> {
        if let Some(whole) = self.whole_batch(conn)? {
            return self.each_member(conn, whole, progress, change);
        }
        // The end of each walk is fixed before any job is moved.
        let mut walks = Vec::new();
        for state in &self.states {
            let last = jobs::last(conn, *state).during("read the jobs")?;
            walks.extend(self.parts().map(|part| (*state, Some(last), part)));
        }
        self.walk(conn, walks, progress, change)
    }

    /// Does the same, but also finds jobs that have moved to the next state meanwhile.
    pub(crate) fn follow_in_batches(
        &self,
        conn: &mut Conn<'_>,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
        change: impl FnMut(&mut Conn<'_>, JobState, &[i64]) -> Result<Changed>,
    ) -> Result<Changed> {
        let newest = jobs::last(conn, JobState::Finished).during("read the jobs")?;
        let mut walks = Vec::new();
        for state in &self.states {
            walks.extend(self.parts().map(|mut part| {
                part.newest = Some(newest);
                (*state, None, part)
            }));
        }
        self.walk(conn, walks, progress, change)
    }

    /// Walks over parts of states, each up to its last execution, or up to the last at the start of its
    /// walk.
    fn walk(
        &self,
        conn: &mut Conn<'_>,
        walks: Vec<(JobState, Option<i64>, Filter)>,
        mut progress: impl FnMut(&Changed) -> ControlFlow<()>,
        mut change: impl FnMut(&mut Conn<'_>, JobState, &[i64]) -> Result<Changed>,
    ) -> Result<Changed> {
        let mut done = Changed::default();
        let mut left = self.limit.unwrap_or(u64::MAX);
        for (state, last, part) in walks {
            let mut after = Some(0);
            let last = match last {
                Some(last) => last,
                None => jobs::last(conn, state).during("read the jobs")?,
            };
            while let Some(start) = after.filter(|_| left > 0) {
                let limit = BATCH.min(usize::try_from(left).unwrap_or(BATCH));
                let range = IdRange {
                    after: start,
                    up_to: last,
                };
                let met = jobs::next(conn, state, &part, range, limit).during("read the jobs")?;
                after = met.reached;
                if met.jobs.is_empty() {
                    continue;
                }
                left -= met.jobs.len() as u64;
                done.add(change(conn, state, &met.jobs)?);
                if progress(&done).is_break() {
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::decision::JobState;
    use crate::job::JobId;

    #[test]
    fn a_selection_comes_back_from_its_pairs() {
        let time = Some("2026-11-24T10:00:00.5Z".parse().unwrap());
        for jobs in [
            Jobs::waiting(),
            Jobs::failed().ids([JobId(7), JobId(9)]).limit(3),
            Jobs::in_state(JobState::Finished)
                .class("a&b=c")
                .queue("ä")
                .finished_between(time, None)
                .created_between(None, time),
            Jobs::failed()
                .kind("io")
                .fingerprint("00ff")
                .error_contains("50% of \"it\"")
                .unique_id("users/1")
                .arguments_contain("{")
                .failed_between(time, time)
                .tagged(["a", "b"])
                .tagged_any(["c"]),
        ] {
            assert_eq!(Jobs::from_pairs(jobs.to_pairs()).unwrap(), jobs);
            let json = serde_json::to_string(&jobs).unwrap();
            assert_eq!(serde_json::from_str::<Jobs>(&json).unwrap(), jobs);
        }
    }

    #[test]
    fn what_is_unknown_or_wrong_is_refused() {
        let of = |name: &str, value: &str| Jobs::from_pairs([(name.into(), value.into())]);
        for (name, value) in [
            ("color", "blue"),
            ("state", "gone"),
            ("ids", "x"),
            ("limit", "many"),
            ("created_from", "yesterday"),
        ] {
            assert!(of(name, value).is_err(), "{name}={value}");
        }
        assert_eq!(of("class", "").unwrap(), Jobs::unfinished());
    }
}
