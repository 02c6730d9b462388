//! The entries of a timeline.

use chrono::{NaiveDateTime, TimeDelta};
use windlass::internal::admin::explain::words::{self, Word, Words, text};
use windlass::internal::db::model::outcome;
use windlass::internal::db::query::job_view::JobView;
use windlass::jobs::{Attempt, AttemptOutcome, JobDetails, Obstacle, Progress, Reason, TaskStatus};

fn name(text: impl Into<String>) -> Word {
    Word::Name(text.into())
}

/// The entries so far, and where the last one ended.
struct Entries<'d> {
    details: &'d JobDetails,
    job: &'d JobView,
    now: NaiveDateTime,
    all: Vec<TimelineEntry>,
    /// The time that they reach.
    reached: Option<NaiveDateTime>,
    /// The description of what the job has waited for since then.
    awaited: Words,
}

pub(crate) fn entries(
    details: &JobDetails,
    job: &JobView,
    now: NaiveDateTime,
) -> Vec<TimelineEntry> {
    let mut entries = Entries {
        details,
        job,
        now,
        all: Vec::new(),
        reached: None,
        awaited: Vec::new(),
    };
    entries.enqueued();
    for attempt in &details.attempts {
        entries.attempt(attempt);
    }
    entries.present();
    entries.next();
    entries.all
}

impl Entries<'_> {
    fn event(&mut self, mark: Mark, at: Option<NaiveDateTime>, what: String, how: Words) {
        self.all.push(TimelineEntry {
            kind: EntryKind::Event(mark),
            at,
            what,
            seconds: None,
            how,
            details: None,
        });
        self.reached = at.or(self.reached);
    }

    /// Adds the wait up to a time.
    fn wait(&mut self, until: Option<NaiveDateTime>) {
        let Some((from, to)) = self.reached.zip(until).filter(|(from, to)| from < to) else {
            return;
        };
        self.all.push(TimelineEntry {
            kind: EntryKind::Wait,
            at: Some(from),
            what: "waited".to_owned(),
            seconds: Some(seconds(to - from)),
            how: std::mem::take(&mut self.awaited),
            details: None,
        });
        self.reached = until;
    }

    fn enqueued(&mut self) {
        let job = self.job;
        let explanation = &self.details.explanation;
        let queue = explanation.queue_name.clone().unwrap_or_default();
        let priority = explanation.priority.unwrap_or_default();
        let mut how = vec![
            text("on "),
            name(queue),
            text(format!(", priority {priority}")),
        ];
        if let Some(key) = &job.task_key {
            how.extend([text(", by the recurring task "), name(key.clone())]);
        }
        if job.is_of_ruby() {
            how.push(text(", by Active Job"));
        }
        self.event(Mark::Ready, job.created_at, "enqueued".to_owned(), how);
        let due = job.scheduled_at.filter(|due| Some(*due) > job.created_at);
        self.awaited = match due.filter(|_| self.details.attempts.is_empty()) {
            Some(due) => vec![text("for its time, "), Word::Time(due.and_utc())],
            None => vec![text("for a thread")],
        };
    }

    fn attempt(&mut self, attempt: &Attempt) {
        let ended = attempt.ended_at.naive_utc();
        let started = attempt.started_at.map(|at| at.naive_utc());
        self.wait(started.or(Some(ended)));
        let (mark, did) = match attempt.outcome {
            AttemptOutcome::Retried | AttemptOutcome::Failed => (Mark::Failed, "failed"),
            AttemptOutcome::Crashed | AttemptOutcome::Interrupted => {
                (Mark::Failed, "was cut short")
            }
            AttemptOutcome::Released => (Mark::Ready, "was cut short"),
            AttemptOutcome::Cancelled => (Mark::Discarded, "was cancelled"),
            AttemptOutcome::Discarded => (Mark::Discarded, "was discarded"),
        };
        // A job that was cancelled while it waited has not run.
        let what = match (started, attempt.outcome) {
            (None, AttemptOutcome::Cancelled | AttemptOutcome::Discarded) => did.to_owned(),
            _ => format!("attempt {} {did}", attempt.attempt),
        };
        let mut lines = attempt.message.splitn(2, '\n');
        let first = lines.next().unwrap_or_default();
        let mut how = vec![name(attempt.kind.clone()), text(": "), name(first)];
        if let Some(process) = &attempt.process_name {
            let host = attempt.hostname.as_deref().unwrap_or("an unknown host");
            how.extend([text(", by "), Word::Process(process.clone())]);
            how.extend([text(" on "), name(host)]);
            how.extend(attempt.pid.map(|pid| text(format!(", pid {pid}"))));
        }
        let place = attempt.place.iter().map(|place| format!("at {place}"));
        let more: Vec<String> = place.chain(lines.next().map(str::to_owned)).collect();
        self.all.push(TimelineEntry {
            kind: EntryKind::Event(mark),
            at: started.or(Some(ended)),
            what,
            seconds: started.map(|started| seconds(ended - started).max(0.0)),
            how,
            details: (!more.is_empty()).then(|| more.join("\n")),
        });
        self.reached = Some(ended);
        self.awaited = match attempt.outcome {
            AttemptOutcome::Retried => vec![text("for its retry")],
            AttemptOutcome::Crashed => vec![text("for a supervisor and another process")],
            AttemptOutcome::Interrupted | AttemptOutcome::Released => {
                vec![text("for its next run")]
            }
            AttemptOutcome::Failed => vec![text("until it was retried, and for a thread")],
            _ => Vec::new(),
        };
    }

    /// Adds the end of the job, or its present activity.
    fn present(&mut self) {
        match &self.details.explanation.reason {
            Reason::Ended => self.ended(),
            Reason::Claimed { progress, .. } => self.runs(progress.as_ref()),
            Reason::Ready { ahead, obstacles } => self.ready(*ahead, obstacles),
            Reason::Scheduled { at, .. } => {
                let how = vec![text("for "), Word::Time(*at)];
                self.now(Mark::Scheduled, self.reached, "scheduled", how);
            }
            Reason::Blocked { by, key } => {
                let how = match by {
                    Some(by) => vec![
                        text("by job "),
                        Word::Job(*by),
                        text(", which has its unique id"),
                    ],
                    None => vec![text("by a job with the key "), name(key.clone())],
                };
                self.blocked(how);
            }
            reason @ (Reason::Batch { .. } | Reason::Jobs { .. } | Reason::Event { .. }) => {
                self.blocked(words::blocker(reason));
            }
            Reason::Limited { key, .. } => {
                let how = vec![text("by the concurrency key "), Word::Key(key.clone())];
                self.blocked(how);
            }
            Reason::Rate { key, .. } => {
                self.blocked(vec![text("by the rate "), Word::Key(key.clone())]);
            }
            Reason::Share { tenant, .. } => {
                self.blocked(vec![text("by the share of "), name(tenant.clone())]);
            }
            Reason::InLine { key, behind, .. } => {
                let mut how = vec![text("in the line of "), Word::Key(key.clone())];
                if let Some(job) = behind {
                    how.extend([text(", behind job "), Word::Job(*job)]);
                }
                self.blocked(how);
            }
            Reason::Adrift => {}
        }
    }

    fn runs(&mut self, progress: Option<&Progress>) {
        let since = self.job.started_at.or(self.job.claimed_at);
        self.wait(since);
        let attempt = self.details.explanation.task.attempt;
        let how = progress.map_or(Vec::new(), |progress| {
            let percent = format!("at {:.0} %: ", progress.percent);
            vec![text(percent), name(progress.message.clone())]
        });
        self.now(
            Mark::Running,
            since,
            &format!("attempt {attempt} runs"),
            how,
        );
    }

    fn ready(&mut self, ahead: u32, obstacles: &[Obstacle]) {
        let mut how = match ahead {
            0 => vec![text("next on its queue")],
            ahead => vec![text(format!("behind {ahead} jobs in its queue"))],
        };
        for obstacle in obstacles {
            how.push(text(", but "));
            how.extend(obstacle.in_words());
        }
        self.wait(self.job.ready_at);
        self.now(Mark::Ready, self.job.ready_at, "ready", how);
    }

    fn blocked(&mut self, how: Words) {
        self.wait(self.job.blocked_at);
        self.now(Mark::Blocked, self.job.blocked_at, "blocked", how);
    }

    fn now(&mut self, mark: Mark, since: Option<NaiveDateTime>, what: &str, how: Words) {
        self.all.push(TimelineEntry {
            kind: EntryKind::Now(mark),
            at: since,
            what: what.to_owned(),
            seconds: since.map(|since| seconds(self.now - since).max(0.0)),
            how,
            details: None,
        });
    }

    fn ended(&mut self) {
        let task = &self.details.explanation.task;
        let at = task.finished_at.map(|at| at.naive_utc());
        match task.status {
            TaskStatus::Succeeded => {
                // Only the log of a run has the time of its start.
                let logs = self.details.logs.iter().rev();
                let started = logs
                    .take(1)
                    .filter(|log| log.attempt == task.attempt)
                    .find_map(|log| log.started_at.map(|at| at.naive_utc()))
                    .filter(|started| Some(*started) >= self.reached && Some(*started) <= at);
                if started.is_none() {
                    self.awaited.push(text(", and ran"));
                }
                self.wait(started.or(at));
                let what = format!("attempt {} finished", task.attempt);
                self.event(Mark::Finished, started.or(at), what, Vec::new());
                if let (Some(entry), Some(started), Some(at)) = (self.all.last_mut(), started, at) {
                    entry.seconds = Some(seconds(at - started));
                }
            }
            TaskStatus::Failed if !self.is_recorded(AttemptOutcome::Failed) => {
                let (kind, message) =
                    outcome::parts(self.job.failure.as_deref().unwrap_or_default());
                let mut how = vec![name(message.lines().next().unwrap_or_default())];
                if !kind.is_empty() {
                    how.splice(0..0, [name(kind), text(": ")]);
                }
                self.wait(self.job.failed_at);
                self.event(Mark::Failed, self.job.failed_at, "failed".to_owned(), how);
                let backtrace = outcome::backtrace(self.job.failure.as_deref().unwrap_or_default());
                if let Some(entry) = self.all.last_mut() {
                    let rest = message.split_once('\n').map(|(_, rest)| rest.to_owned());
                    let more: Vec<String> = rest.into_iter().chain(backtrace).collect();
                    entry.details = (!more.is_empty()).then(|| more.join("\n"));
                }
            }
            _ => {}
        }
    }

    /// Returns whether the last attempt has this outcome.
    fn is_recorded(&self, outcome: AttemptOutcome) -> bool {
        let last = self.details.attempts.last();
        last.is_some_and(|attempt| attempt.outcome == outcome)
    }

    fn next(&mut self) {
        let task = &self.details.explanation.task;
        let of = match self.job.max_attempts {
            Some(most) => format!(" of {most}"),
            None => String::new(),
        };
        let next = |ahead: u32| format!("attempt {}{of}", task.attempt.saturating_add(ahead));
        let (what, how) = match &self.details.explanation.reason {
            Reason::Ready { .. } => (next(1), vec![text("as soon as a thread is free for it")]),
            Reason::Scheduled { at, .. } => {
                let due = [text("when it is due, at "), Word::Time(*at)];
                let free = text(", and a thread is free");
                (next(1), due.into_iter().chain([free]).collect())
            }
            Reason::Limited { .. } => (next(1), vec![text("as soon as it has a slot")]),
            Reason::Rate { .. } => (
                next(1),
                vec![text("as soon as its rate has a token for it")],
            ),
            Reason::Share { .. } => (next(1), vec![text("at its tenant's turn")]),
            Reason::InLine { .. } => (next(1), vec![text("when those before it have ended")]),
            Reason::Blocked { by: Some(by), .. } => (
                next(1),
                vec![text("when job "), Word::Job(*by), text(" has ended")],
            ),
            Reason::Batch { .. } => (next(1), vec![text("when the batch is over")]),
            Reason::Jobs { .. } | Reason::Event { .. } => (next(1), vec![text("after the wait")]),
            Reason::Blocked { by: None, .. } => (next(1), vec![text("when that has ended")]),
            Reason::Claimed { .. } => self.after_run(&of),
            Reason::Ended if task.status == TaskStatus::Failed => (
                "nothing".to_owned(),
                vec![text("it is kept until it is retried or discarded")],
            ),
            Reason::Ended | Reason::Adrift => return,
        };
        self.all.push(TimelineEntry {
            kind: EntryKind::Next,
            at: None,
            what,
            seconds: None,
            how,
            details: None,
        });
    }

    fn after_run(&self, of: &str) -> (String, Words) {
        let attempt = self.details.explanation.task.attempt;
        let used = i32::try_from(attempt).unwrap_or(i32::MAX);
        match self.job.max_attempts {
            Some(most) if used < most => (
                format!("attempt {}{of}", attempt.saturating_add(1)),
                vec![text("if this one fails")],
            ),
            Some(_) => (
                "its end".to_owned(),
                vec![text(
                    "if this attempt fails, the job has failed: none is left",
                )],
            ),
            None => (
                "its end".to_owned(),
                vec![text(
                    "or another attempt, if this one fails and its program allows more",
                )],
            ),
        }
    }
}

// --- A timeline as a bar ---

/// The width of the bar, in units.
const WIDTH: f64 = 1000.0;

/// The kind of time that a part of the bar shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarKind {
    Ran,
    Failed,
    Waited,
    Blocked,
}

/// A part of the bar, in thousandths of its width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BarPart {
    pub(crate) kind: BarKind,
    pub(crate) from: f64,
    pub(crate) width: f64,
}

/// Returns when an entry ended, if it took a time.
fn entry_end(entry: &TimelineEntry) -> Option<NaiveDateTime> {
    let micros = (entry.seconds? * 1e6).clamp(0.0, 9e15) as i64;
    entry
        .at?
        .checked_add_signed(TimeDelta::microseconds(micros))
}

/// Returns the end of the last entry.
pub(crate) fn end(entries: &[TimelineEntry]) -> Option<NaiveDateTime> {
    let ends = entries.iter().filter(|entry| entry.kind != EntryKind::Next);
    ends.filter_map(|entry| entry_end(entry).or(entry.at)).max()
}

/// Returns the parts of the bar, from the first event to the last, or to now if the job has not
/// ended.
pub(crate) fn parts(entries: &[TimelineEntry], now: NaiveDateTime) -> Vec<BarPart> {
    let start = entries.iter().filter_map(|entry| entry.at).min();
    let is_open = entries
        .iter()
        .any(|entry| matches!(entry.kind, EntryKind::Now(_)));
    let end = if is_open { Some(now) } else { end(entries) };
    let Some((start, end)) = start.zip(end).filter(|(start, end)| start < end) else {
        return Vec::new();
    };
    let whole = seconds(end - start);
    let place = |at: NaiveDateTime| (seconds(at - start) / whole * WIDTH).clamp(0.0, WIDTH);
    let mut parts = Vec::new();
    for entry in entries {
        let Some((from, to)) = entry.at.zip(entry_end(entry)) else {
            continue;
        };
        let (from, to) = (place(from), place(to));
        let kind = match entry.kind {
            EntryKind::Next => continue,
            EntryKind::Wait => BarKind::Waited,
            EntryKind::Now(Mark::Blocked) => BarKind::Blocked,
            EntryKind::Now(Mark::Running) => BarKind::Ran,
            EntryKind::Now(_) => BarKind::Waited,
            EntryKind::Event(_) => BarKind::Ran,
        };
        parts.push(BarPart {
            kind,
            from,
            width: to - from,
        });
        if entry.kind == EntryKind::Event(Mark::Failed) {
            parts.push(BarPart {
                kind: BarKind::Failed,
                from: (to - 1.5).max(0.0),
                width: 3.0,
            });
        }
    }
    parts
}

pub(crate) fn seconds(delta: TimeDelta) -> f64 {
    delta.as_seconds_f64()
}

// --- A line of a timeline ---

/// A state, for the mark beside an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Ready,
    Scheduled,
    Running,
    Blocked,
    Failed,
    Finished,
    Discarded,
}

/// The subject of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Something that happened.
    Event(Mark),
    /// The time until the next event.
    Wait,
    /// The present activity of the job.
    Now(Mark),
    /// The next event.
    Next,
}

/// A line of the timeline.
#[derive(Debug, Clone)]
pub(crate) struct TimelineEntry {
    pub(crate) kind: EntryKind,
    pub(crate) at: Option<NaiveDateTime>,
    pub(crate) what: String,
    /// The time that it took, or has taken until now.
    pub(crate) seconds: Option<f64>,
    pub(crate) how: Words,
    /// Several lines more: a backtrace, for example.
    pub(crate) details: Option<String>,
}
