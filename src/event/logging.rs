//! One log line for each event.

use crate::error::one_line;
use crate::event::Event;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The choice to log the error messages of jobs or only their kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ErrorMessages {
    #[default]
    Logged,
    Hidden,
}

/// Logs one line for each event, with key-values.
///
/// A job's arguments are never logged, except where the message of its error contains them and `messages` are logged.
pub(crate) fn log_event(event: &Event<'_>, messages: ErrorMessages) {
    let _ = log_run(event)
        || log_outcome(event, messages)
        || log_new_attempt(event, messages)
        || log_recurring(event)
        || log_executions(event)
        || log_process(event)
        || log_child(event);
}

/// Logs events of jobs that have not ended. Returns `false` if the event is of another kind.
fn log_run(event: &Event<'_>) -> bool {
    match *event {
        // One line for each job is enough; these are for closer examination.
        Event::Claimed {
            job,
            class,
            queue,
            attempt,
            claim,
        } => {
            log::debug!(job = job.0, class, queue, attempt, claim; "claimed job {job} ({class}) of {queue}");
        }
        Event::Started {
            job,
            class,
            queue,
            attempt,
            claim,
        } => {
            log::debug!(job = job.0, class, queue, attempt, claim; "started job {job} ({class})");
        }
        Event::TimedOut {
            job,
            class,
            queue,
            attempt,
            claim,
            ran,
            ends_process,
        } => {
            let (ms, what) = (
                millis(ran),
                if ends_process {
                    "this process ends"
                } else {
                    "it keeps its thread and its claim"
                },
            );
            log::error!(job = job.0, class, queue, attempt, claim, ms, ends_process;
                "timed out: job {job} ({class}) still runs after {ms} ms; {what}");
        }
        _ => return false,
    }
    true
}

/// Logs how a run ended. Returns `false` if the event is of another kind.
fn log_outcome(event: &Event<'_>, messages: ErrorMessages) -> bool {
    match *event {
        Event::Finished {
            job,
            class,
            queue,
            attempt,
            claim,
            ran,
        } => {
            let ms = millis(ran);
            log::info!(job = job.0, class, queue, attempt, claim, outcome = "finished", ms;
                "finished job {job} ({class}) in {ms} ms");
        }
        Event::Failed {
            job,
            class,
            queue,
            attempt,
            claim,
            ran,
            kind,
            message,
        } => {
            let why = reason(kind, message, messages);
            log::error!(job = job.0, class, queue, attempt, claim, outcome = "failed", kind, ms = millis(ran);
                "failed job {job} ({class}): {why}");
        }
        Event::Fenced {
            job,
            class,
            queue,
            attempt,
            claim,
        } => {
            log::warn!(job = job.0, class, queue, attempt, claim, outcome = "fenced";
                "fenced: job {job} ended too late, claim {claim} was lost before");
        }
        _ => return log_end_without_failure(event, messages),
    }
    true
}

/// Logs that a job ended without success and without failure. Only a job that ran in this process
/// has an attempt and a claim.
fn log_end_without_failure(event: &Event<'_>, messages: ErrorMessages) -> bool {
    match *event {
        Event::Discarded {
            job,
            class,
            queue,
            attempt,
            claim,
            kind,
            message,
        } => {
            let why = reason(kind, message, messages);
            if claim == 0 {
                log::info!(job = job.0, class, outcome = "discarded", kind; "discarded job {job} ({class}): {why}");
            } else {
                log::info!(job = job.0, class, queue, attempt, claim, outcome = "discarded", kind;
                    "discarded job {job} ({class}): {why}");
            }
        }
        Event::Cancelled { job, claim: 0, .. } => {
            log::info!(job = job.0, outcome = "cancelled"; "cancelled job {job}");
        }
        Event::Cancelled {
            job,
            class,
            queue,
            attempt,
            claim,
        } => {
            log::info!(job = job.0, class, queue, attempt, claim, outcome = "cancelled"; "cancelled job {job}");
        }
        _ => return false,
    }
    true
}

/// Logs why a job will run once more. Returns `false` if the event is of another kind.
fn log_new_attempt(event: &Event<'_>, messages: ErrorMessages) -> bool {
    match *event {
        Event::Retried {
            job,
            class,
            queue,
            attempt,
            claim,
            ran,
            kind,
            message,
            delay,
        } => {
            let (why, delay_ms) = (reason(kind, message, messages), millis(delay));
            log::warn!(job = job.0, class, queue, attempt, claim, outcome = "retried", kind, ms = millis(ran), delay_ms;
                "an attempt at job {job} ({class}) failed: {why}; the next comes in {delay_ms} ms");
        }
        Event::Snoozed {
            job,
            class,
            queue,
            attempt,
            claim,
            delay,
        } => {
            let delay_ms = millis(delay);
            log::info!(job = job.0, class, queue, attempt, claim, outcome = "snoozed", delay_ms;
                "snoozed job {job} ({class}) for {delay_ms} ms");
        }
        Event::Parked {
            job,
            class,
            queue,
            attempt,
            claim,
            step,
        } => {
            log::info!(job = job.0, class, queue, attempt, claim, outcome = "parked", step; "job {job} ({class}) waits at its step {step}");
        }
        _ => return false,
    }
    true
}

/// Logs events of recurring tasks. Returns `false` if the event is of another kind.
fn log_recurring(event: &Event<'_>) -> bool {
    match *event {
        Event::Ticked { task, tick, job } => {
            let tick = tick.to_rfc3339();
            log::debug!(task, tick = tick.as_str(), job = job.0; "recurring task {task} of {tick} has job {job}");
        }
        Event::TickDropped { task, tick } => {
            let tick = tick.to_rfc3339();
            log::info!(task, tick = tick.as_str();
                "dropped the tick {tick} of recurring task {task}: the job before it has not ended");
        }
        Event::TicksMissed { task, since } => {
            let since = since.to_rfc3339();
            log::warn!(task, since = since.as_str(); "recurring task {task} missed ticks since {since}");
        }
        Event::TaskRefused { reason } => log::error!(reason; "{reason}"),
        _ => return false,
    }
    true
}

/// Logs what a process did with the executions of jobs, mostly several at once. Returns `false` if the
/// event is of another kind.
fn log_executions(event: &Event<'_>) -> bool {
    match *event {
        Event::Released { count, why } => {
            log::info!(count, why; "released {count} of its claims: {why}")
        }
        Event::Dispatched { count } => {
            log::debug!(count; "dispatched {count} scheduled executions");
        }
        Event::Overlooked { key } => {
            log::warn!(key; "the concurrency key {key} had free slots and blocked jobs that were not promoted; they continue now");
        }
        Event::Cleared {
            finished,
            failed,
            results,
        } => {
            log::info!(finished, failed, results;
                "cleared {finished} finished jobs, {failed} failed jobs and {results} results");
        }
        Event::Stalled { job, outcome } => {
            log::warn!(job = job.0, outcome; "stalled: job {job} was running when its process died; {outcome}");
        }
        Event::Pruned {
            kind,
            name,
            how,
            released,
            delayed,
            failed,
        } => {
            log::warn!(kind, name, released, delayed, failed;
                "pruned {kind} {name}, which {how}: {released} jobs released, {delayed} delayed, {failed} failed");
        }
        _ => return false,
    }
    true
}

/// Logs events of the children of a supervisor. Returns `false` if the event is of another kind.
fn log_child(event: &Event<'_>) -> bool {
    match *event {
        Event::ChildStarted { pid } => log::info!(pid; "started child {pid}"),
        Event::ChildExited { pid, how } => log::info!(pid, how; "child {pid} {how}"),
        Event::CrashLoop {
            program,
            exits,
            delay,
        } => {
            let delay_ms = millis(delay);
            log::error!(program, exits, delay_ms;
                "{program} ended {exits} times in a row soon after its start; the next start comes in {delay_ms} ms");
        }
        Event::RolloutStarted { children } => {
            log::info!(children; "rolling restart: {children} children are replaced one by one");
        }
        Event::RolloutFinished { children } => {
            log::info!(children; "rolling restart: all {children} children were replaced");
        }
        Event::RolloutStopped { why } => {
            log::error!(why; "rolling restart: stopped, the other children stay as they are: {why}");
        }
        Event::LeftBehind { pid, how } => log::error!(pid, how;
            "the child {pid}, which {how}, may have left jobs behind: the database was away until the stop was over; \
             any supervisor recovers them when the process counts as dead"),
        _ => return false,
    }
    true
}

/// Logs events of a process about itself. Returns `false` if the event is of another kind.
fn log_process(event: &Event<'_>) -> bool {
    match *event {
        Event::Registered { kind, name } => log::info!(kind, name; "registered {kind} {name}"),
        Event::Deregistered { kind, name } => log::info!(kind, name; "deregistered {kind} {name}"),
        Event::Stopping { kind } => log::info!(kind; "stopping the {kind}"),
        Event::Lost { name, why } => log::error!(name, why; "lost the registration {name}: {why}"),
        Event::Recycling { why } => {
            log::info!(why; "this worker is being replaced by a new one: {why}")
        }
        Event::Quieted => log::info!("quiet: claiming nothing more"),
        Event::Resumed => log::info!("claiming again"),
        Event::Unreachable { action, reason } => {
            let reason = one_line(reason);
            log::error!(action, reason = reason.as_str(); "cannot {action}, trying again: {reason}");
        }
        Event::Broken { reason } => log::error!(reason; "this process stops: {reason}"),
        _ => return false,
    }
    true
}

/// Returns the kind of an error, with its message if messages are logged.
fn reason(kind: &str, message: &str, messages: ErrorMessages) -> String {
    if messages == ErrorMessages::Logged && !message.is_empty() {
        format!("{kind}: {}", in_a_line(message))
    } else {
        kind.to_owned()
    }
}

/// Returns a message as one line, cut after 500 characters.
///
/// Each control character, including line breaks, becomes a space, and several spaces become one.
fn in_a_line(message: &str) -> String {
    const MOST: usize = 500;
    let is_gap = |c: char| c.is_control() || c.is_whitespace();
    let words = message.split(is_gap).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST - 1).chain(['…']).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// --- Passes events to the log and to the application's functions ---

/// Receives every event, on the thread where it happened, so it must return quickly.
///
/// A panic in it is logged, and the process stops in an orderly way with exit code 70.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use windlass::Event;
/// use windlass::hooks::Subscriber;
///
/// let failures = Arc::new(AtomicU64::new(0));
/// let counted = Arc::clone(&failures);
/// let subscriber = Subscriber::new(move |event| {
///     if matches!(event, Event::Failed { .. }) {
///         counted.fetch_add(1, Ordering::Relaxed);
///     }
/// });
/// # let _ = subscriber.log_messages(false);
/// ```
#[derive(Clone, Default)]
pub struct Subscriber {
    hear: Option<Arc<Hear>>,
    on_panic: Option<Arc<OnPanic>>,
    messages: ErrorMessages,
}

type Hear = dyn Fn(&Event<'_>) + Send + Sync;

type OnPanic = dyn Fn() + Send + Sync;

impl Subscriber {
    /// Creates a subscriber that calls `hear` for every event, after the event was logged.
    ///
    /// A panic in `hear` is logged and does not unwind into the thread that emitted the event. The
    /// process then stops in an orderly way, with exit code 70.
    pub fn new(hear: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Subscriber {
            hear: Some(Arc::new(hear)),
            on_panic: None,
            messages: ErrorMessages::Logged,
        }
    }

    /// Sets whether the log and the spans of jobs contain their error messages, beside the kinds.
    /// Default: `true`.
    ///
    /// Each message is one line of at most 500 characters. Turn this off if messages may contain
    /// data that must not be logged. The job and its events keep them in any case.
    pub fn log_messages(mut self, logged: bool) -> Self {
        self.messages = match logged {
            true => ErrorMessages::Logged,
            false => ErrorMessages::Hidden,
        };
        self
    }

    /// Returns true if log lines and spans may contain the messages of errors.
    pub(crate) fn logs_messages(&self) -> bool {
        self.messages == ErrorMessages::Logged
    }

    /// Sets what happens after a panic, for a process that stops then.
    pub(crate) fn on_panic(&self, then: impl Fn() + Send + Sync + 'static) -> Self {
        Subscriber {
            hear: self.hear.clone(),
            on_panic: Some(Arc::new(then)),
            messages: self.messages,
        }
    }

    /// Logs an event and passes it to the function.
    pub(crate) fn emit(&self, event: &Event<'_>) {
        log_event(event, self.messages);
        let Some(hear) = &self.hear else { return };
        // A panic must not unwind the thread it runs on: a finisher or a heartbeat must complete
        // what it has started.
        if catch_unwind(AssertUnwindSafe(|| hear(event))).is_err() {
            log::error!("a subscriber panicked: this process stops");
            if let Some(then) = &self.on_panic {
                then();
            }
        }
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscriber")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        assert_eq!(in_a_line("no\n\tstamp\r\n \u{1b}[2J"), "no stamp [2J");
        assert_eq!(in_a_line(&"ä".repeat(500)).chars().count(), 500);
        let cut = in_a_line(&"ä ".repeat(5_000));
        assert_eq!(cut.chars().count(), 500);
        assert!(cut.ends_with('…'));
    }
}
