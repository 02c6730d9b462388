//! An explanation in words, for the terminal and for pages.

pub use crate::admin::explain::sentence::{Word, Words, text};

use crate::admin::explain::obstacles::Obstacle;
use crate::admin::explain::{Explanation, NotRetried, Reason};
use crate::admin::job_info::TaskStatus;
use crate::clock;
use crate::db::query::explain::MOST;
use crate::job::JobId;
use crate::job::policy::Delivery;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// Returns whole seconds, and for longer times only the two largest units: `3m 20s`.
pub fn age(seconds: f64) -> String {
    // A clock that was set back makes it negative.
    let whole = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    let text = clock::in_units(Duration::from_secs(whole.as_secs()));
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

impl Explanation {
    /// Returns what it says of the job's state, one sentence a line: first the state, then what else
    /// is known of it.
    #[doc(hidden)]
    pub fn in_words(&self) -> Vec<Words> {
        let mut all = self.state();
        if let Reason::Ready { obstacles, .. } | Reason::Scheduled { obstacles, .. } = &self.reason
        {
            all.extend(obstacles.iter().map(but));
        }
        all.extend(self.limits());
        all.extend(self.unused_attempts());
        if let Some(error) = &self.task.error {
            let what = match self.task.status {
                TaskStatus::Queued | TaskStatus::Running => "Its last attempt ended with ",
                _ => "It ended with ",
            };
            all.push(vec![text(what), Word::Name(error.clone())]);
        }
        all
    }

    fn state(&self) -> Vec<Words> {
        vec![match &self.reason {
            Reason::Ready { ahead: 0, .. } => {
                vec![Word::State("It is ready"), text(", and next on its queue.")]
            }
            Reason::Ready { ahead, .. } => vec![
                Word::State("It is ready"),
                text(match ahead {
                    1 => ", behind 1 job in its queue.".to_owned(),
                    &MOST => format!(", behind {MOST} or more jobs in its queue."),
                    ahead => format!(", behind {ahead} jobs in its queue."),
                }),
            ],
            Reason::Scheduled {
                at,
                overdue_seconds,
                ..
            } => self.scheduled(*at, *overdue_seconds),
            Reason::Blocked { by: Some(by), key } => vec![
                Word::State("It starts"),
                text(" when job "),
                Word::Job(*by),
                text(" has ended, which runs with the unique id "),
                Word::Name(key.clone()),
                text("."),
            ],
            Reason::Blocked { by: None, key } => vec![
                Word::State("It waits"),
                text(" for another job with the key "),
                Word::Name(key.clone()),
                text("."),
            ],
            reason @ (Reason::Batch { .. } | Reason::Jobs { .. } | Reason::Event { .. }) => {
                awaited(reason)
            }
            Reason::Limited { key, by, set_limit } => limited(key, *by, *set_limit),
            reason @ Reason::Rate { .. } => at_rate(reason),
            Reason::Share {
                queue,
                tenant,
                ahead,
            } => at_share(queue, tenant, *ahead),
            Reason::InLine { key, behind, until } => in_line(key, *behind, *until),
            Reason::Claimed { .. } => return self.claimed(),
            Reason::Ended => self.ended(),
            Reason::Adrift => adrift(),
        }]
    }

    /// Says until when it may start or be tried again, and what its delivery is if that is not at
    /// least once.
    fn limits(&self) -> Vec<Words> {
        let mut all = Vec::new();
        let delivery = match self.delivery {
            _ if self.reason == Reason::Ended => None,
            Some(Delivery::AtMostOnce) => Some("It runs at most once."),
            Some(Delivery::AfterKnownOutcome) => {
                Some("It runs again only after a run whose outcome is known.")
            }
            Some(Delivery::AtLeastOnce) | None => None,
        };
        all.extend(delivery.map(|sentence| vec![text(sentence)]));
        if let Some(at) = self.expires_at {
            let first = text("It is discarded if it has not started by ");
            all.push(vec![first, Word::Time(at), text(".")]);
        }
        if let Some(at) = self.retry_until {
            all.push(vec![
                text("No attempt follows after "),
                Word::Time(at),
                text("."),
            ]);
        }
        all
    }

    /// Says why it has failed although it may have more attempts.
    fn unused_attempts(&self) -> Option<Words> {
        let (most, why) = (self.max_attempts?, self.not_retried?);
        let why = match why {
            NotRetried::OutcomeUnknown => "the outcome of its last run is not known",
            NotRetried::Crashed => "its process has died too often while it ran",
            NotRetried::TooLate => "the last time for an attempt had passed",
            NotRetried::FinalError => "the job or its policy has made this error final",
        };
        Some(vec![text(format!(
            "It may have {most} attempts, but is not tried again by itself: {why}."
        ))])
    }

    fn scheduled(&self, at: DateTime<Utc>, overdue_seconds: f64) -> Words {
        let when = if overdue_seconds < 0.0 {
            format!(", in {}", age(-overdue_seconds))
        } else {
            format!(", and has been due for {}", age(overdue_seconds))
        };
        let which = match self.task.attempt {
            0 => String::new(),
            done => format!(", for its attempt {}", done + 1),
        };
        vec![
            Word::State("It is scheduled"),
            text(" for "),
            Word::Time(at),
            text(format!("{when}{which}.")),
        ]
    }

    fn ended(&self) -> Words {
        let mut words = vec![Word::State(match self.task.status {
            TaskStatus::Succeeded => "It finished",
            TaskStatus::Failed => "It failed",
            TaskStatus::Cancelled => "It was cancelled",
            TaskStatus::Discarded => "It was discarded",
            TaskStatus::Queued | TaskStatus::Running => "It ended",
        })];
        let Some(at) = self.task.finished_at else {
            words.push(text("."));
            return words;
        };
        let attempt = match self.task.attempt {
            0 => ", and never ran.".to_owned(),
            attempt => format!(", with attempt {attempt}."),
        };
        words.extend([text(" at "), Word::Time(at), text(attempt)]);
        words
    }

    fn claimed(&self) -> Vec<Words> {
        let Reason::Claimed {
            process_name,
            hostname,
            pid,
            thread,
            seconds,
            heartbeat_seconds,
            cancel_requested_at,
            progress,
            ..
        } = &self.reason
        else {
            return Vec::new();
        };
        let mut first = match process_name {
            None => vec![
                Word::State("A dead process holds it"),
                text(": no supervisor has recovered it yet"),
            ],
            Some(name) => {
                let host = hostname.as_deref().unwrap_or("an unknown host");
                let mut words = holder(name, host, *pid, thread.as_deref());
                words.push(text(format!(") has held it for {}", age(*seconds))));
                words
            }
        };
        if let Some(beat) = heartbeat_seconds {
            let beat = age(*beat);
            first.push(text(format!(", and had its last heartbeat {beat} ago")));
        }
        first.push(text("."));
        let mut all = vec![first];
        all.extend(progress.as_ref().map(|progress| {
            let percent = text(format!("It is at {:.0} %: ", progress.percent));
            vec![percent, Word::Name(progress.message.clone())]
        }));
        if let Some(at) = cancel_requested_at {
            all.push(vec![
                text("Its cancellation was requested at "),
                Word::Time(*at),
                text("."),
            ]);
        }
        all
    }
}

/// Returns which process holds a job, up to the closing bracket.
fn holder(name: &str, host: &str, pid: Option<i32>, thread: Option<&str>) -> Words {
    let mut words = vec![Word::State("It runs"), text(": ")];
    words.push(Word::Process(name.to_owned()));
    words.extend([text(" ("), Word::Name(host.to_owned())]);
    words.extend(pid.map(|pid| text(format!(", pid {pid}"))));
    if let Some(thread) = thread {
        words.extend([text(", thread "), Word::Name(thread.to_owned())]);
    }
    words
}

fn limited(key: &str, by: Option<JobId>, set_limit: Option<i32>) -> Words {
    let mut words = vec![
        Word::State("It waits"),
        text(" for a slot of the concurrency key "),
        Word::Key(key.to_owned()),
    ];
    if let Some(job) = by {
        words.extend([text(", which job "), Word::Job(job), text(" holds")]);
    }
    if let Some(slots) = set_limit {
        words.push(text(format!("; its limit was set to {slots}: ")));
        words.push(Word::Command("windlass limits list"));
    }
    words.push(text("."));
    words
}

fn adrift() -> Words {
    vec![
        Word::State("It has no execution"),
        text(": the row was deleted by hand. "),
        Word::Command("windlass jobs"),
        text(" cannot move it; enqueue it anew."),
    ]
}

/// Says that a job waits for a token of a rate.
fn at_rate(reason: &Reason) -> Words {
    let Reason::Rate {
        key,
        ahead,
        seconds,
        rate,
        cost,
        set_as,
        closed_seconds,
    } = reason
    else {
        return Vec::new();
    };
    let mut words = vec![
        Word::State("It waits for a token"),
        text(" of "),
        Word::Key(key.clone()),
    ];
    let when = seconds.map_or(String::new(), |seconds| {
        format!(", about {}", soon(seconds))
    });
    words.push(text(format!(": {}{when}", place(*ahead))));
    if let Some(closed) = closed_seconds {
        let closed = soon(*closed);
        let closed = format!("; closed for another {closed}, as the other side asked to wait");
        words.push(text(closed));
    }
    if let (Some(rate), Some(set_as)) = (rate, set_as) {
        words.extend([
            text(format!("; the rate was set to {rate}, as ")),
            Word::Name(set_as.clone()),
            text(": "),
            Word::Command("windlass limits list"),
        ]);
    }
    words.push(text("."));
    let burst = rate.and_then(|rate| rate.burst);
    if let Some(burst) = burst.filter(|burst| burst < cost) {
        let never =
            format!(" It costs {cost} tokens, and the rate has {burst} at most: it never starts.");
        words.push(text(never));
    }
    words
}

fn at_share(queue: &str, tenant: &str, ahead: u32) -> Words {
    vec![
        Word::State("It waits for its tenant's share"),
        text(" of "),
        Word::Name(queue.to_owned()),
        match ahead {
            0 => text(": it is the next of "),
            _ => text(format!(", behind {ahead} of ")),
        },
        Word::Name(tenant.to_owned()),
        text("."),
    ]
}

/// Returns the place of a job behind so many others.
fn place(ahead: u32) -> String {
    const FIRST: [&str; 10] = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
        "tenth",
    ];
    let name = usize::try_from(ahead)
        .ok()
        .and_then(|ahead| FIRST.get(ahead));
    match (name, ahead) {
        (Some(name), _) => format!("{name} in line"),
        (None, MOST..) => format!("{MOST} or more jobs of its line are before it"),
        (None, _) => format!("{ahead} jobs of its line are before it"),
    }
}

/// Returns a time as [`age`] does, and one below a second in milliseconds.
fn soon(seconds: f64) -> String {
    match seconds < 1.0 {
        true => format!("{} ms", (seconds.max(0.0) * 1_000.0).round()),
        false => age(seconds),
    }
}

fn in_line(key: &str, behind: Option<JobId>, until: Option<DateTime<Utc>>) -> Words {
    let mut words = vec![
        Word::State("It waits"),
        text(" for its turn in the ordered concurrency key "),
        Word::Key(key.to_owned()),
    ];
    if let Some(job) = behind {
        words.extend([text(" behind job "), Word::Job(job)]);
    }
    if let Some(at) = until {
        words.extend([text(", whose next run is due at "), Word::Time(at)]);
    }
    words.push(text("."));
    words
}

fn but(obstacle: &Obstacle) -> Words {
    let mut words = vec![text("But ")];
    words.extend(obstacle.in_words());
    words.push(text("."));
    words
}

impl Obstacle {
    /// Returns what it says after "but".
    #[doc(hidden)]
    pub fn in_words(&self) -> Words {
        let since = |what: &str, at: DateTime<Utc>| vec![text(what), Word::Time(at)];
        vec![text(match self {
            Obstacle::QueuePaused { since: at } => {
                return since("its queue has been paused since ", *at);
            }
            Obstacle::ClassPaused { since: at } => {
                return since("its class has been paused since ", *at);
            }
            Obstacle::NoWorkerForQueue => "no running worker serves its queue".to_owned(),
            Obstacle::NoWorkerForClass => {
                "none of the workers that serve its queue has its class registered".to_owned()
            }
            Obstacle::NoWorkerForVersion { version } => format!(
                "its arguments have version {version}, and the workers that have its class registered know \
                 only older ones: it waits for a newer program"
            ),
            Obstacle::WorkersSilent => {
                "the workers that could take it have had no heartbeat for 60 s".to_owned()
            }
            Obstacle::WorkersDraining => "the workers that could take it are stopping".to_owned(),
            Obstacle::WorkersQuiet => {
                "the workers that could take it are quiet: they claim nothing until SIGCONT"
                    .to_owned()
            }
            Obstacle::ThreadsBusy { threads } => {
                format!("all {threads} threads of the workers that could take it are busy")
            }
            Obstacle::NoDispatcher => "no running dispatcher would make it ready".to_owned(),
        })]
    }
}

// --- The words of `explain` for a job that waits for jobs, a batch or an event ---

/// Says what the job waits for.
pub(super) fn awaited(reason: &Reason) -> Words {
    match reason {
        Reason::Batch {
            name,
            open,
            total,
            oldest,
            ..
        } => batch(name, *open, *total, *oldest),
        Reason::Jobs {
            open,
            total,
            oldest,
            failed,
        } => jobs(*open, *total, *oldest, *failed),
        Reason::Event { name, step, until } => event(name, step, *until),
        _ => Words::new(),
    }
}

/// Says by what the job is blocked, for its timeline.
pub fn blocker(reason: &Reason) -> Words {
    let named =
        |what: &str, name: &str| vec![text(format!("by {what} ")), Word::Name(name.to_owned())];
    match reason {
        Reason::Batch { name, .. } => named("batch", name),
        Reason::Event { name, .. } => named("event", name),
        Reason::Jobs { oldest, failed, .. } => match failed.or(*oldest) {
            Some(job) => vec![text("by job "), Word::Job(job)],
            None => vec![text("by other jobs")],
        },
        _ => Words::new(),
    }
}

fn batch(name: &str, open: u64, total: u64, oldest: Option<JobId>) -> Words {
    let mut words = vec![Word::State("It waits")];
    match oldest {
        Some(job) => {
            let jobs = if open > 10_000 {
                "more than 10,000".to_owned()
            } else {
                open.to_string()
            };
            words.push(text(format!(" for {jobs} of {total} jobs of batch ")));
            words.extend([Word::Name(name.to_owned()), text("; the oldest is ")]);
            words.push(Word::Job(job));
        }
        None => {
            words.push(text(" for a retry of the failed jobs of batch "));
            words.push(Word::Name(name.to_owned()));
        }
    }
    words.push(text("."));
    words
}

fn jobs(open: u64, total: u64, oldest: Option<JobId>, failed: Option<JobId>) -> Words {
    let mut words = vec![Word::State("It waits")];
    match (oldest, failed) {
        (_, Some(failed)) => {
            words.extend([text(" for a retry of job "), Word::Job(failed)]);
            words.push(text(", which has not succeeded"));
        }
        (Some(oldest), None) if total == 1 => {
            words.extend([text(" for job "), Word::Job(oldest), text(" to end")]);
        }
        (Some(oldest), None) => {
            words.push(text(format!(" for {open} of {total} jobs; the oldest is ")));
            words.push(Word::Job(oldest));
        }
        (None, None) => words.push(text(" for other jobs")),
    }
    words.push(text("."));
    words
}

fn event(event: &str, step: &str, until: Option<DateTime<Utc>>) -> Words {
    let mut words = vec![Word::State("It waits"), text(" for event ")];
    words.extend([Word::Name(event.to_owned()), text(" at its step ")]);
    words.push(Word::Name(step.to_owned()));
    if let Some(at) = until {
        words.extend([text(" until "), Word::Time(at)]);
    }
    words.push(text("."));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(change: impl FnOnce(&mut Reason)) -> String {
        let mut reason = Reason::Rate {
            key: "api/acme".to_owned(),
            ahead: 2,
            seconds: Some(0.3),
            rate: None,
            cost: 1,
            set_as: None,
            closed_seconds: None,
        };
        change(&mut reason);
        let words = at_rate(&reason).into_iter();
        let words = words.map(|word| match word {
            Word::State(text) | Word::Command(text) => text.to_owned(),
            Word::Text(text) | Word::Key(text) | Word::Name(text) => text,
            other => format!("{other:?}"),
        });
        words.collect()
    }

    #[test]
    fn a_job_at_a_rate_is_explained() {
        assert_eq!(
            says(|_| ()),
            "It waits for a token of api/acme: third in line, about 300 ms."
        );
        let closed = says(|reason| {
            if let Reason::Rate {
                ahead,
                seconds,
                closed_seconds,
                ..
            } = reason
            {
                (*ahead, *seconds, *closed_seconds) = (10, None, Some(12.4));
            }
        });
        assert_eq!(
            closed,
            "It waits for a token of api/acme: 10 jobs of its line are before it; closed for another 12s, as the other side asked \
             to wait."
        );
    }
}
