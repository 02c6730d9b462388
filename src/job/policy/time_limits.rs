//! Until when a job may start, and until when it may be tried again.

use crate::job::policy::Policy;
use crate::job::policy::backoff::{Expiry, RetryLimit};
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use std::time::Duration;

impl Policy {
    /// Discards a job that has not started so long after it is due: after its enqueue, or after the
    /// time at which it is to run if it has one. Default: it waits forever.
    ///
    /// The database's clock counts. A job that expires is never run: it is discarded with the kind
    /// `expired`. Once a run has started, the expiry has no effect any more, so that it does not
    /// end a job which waits for a retry or has snoozed; see [`retry_for`](Self::retry_for) for
    /// that. If the job is rescheduled to a time after its expiry, it no longer expires.
    ///
    /// The value is stored when the job is enqueued; a program-wide value has no effect. Zero is
    /// refused by the enqueue, and more than 1000 years count as 1000 years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Policy;
    /// // A code for a login is worth nothing later.
    /// let policy = Policy::new().expires_in(Duration::from_secs(300));
    /// # let _ = policy;
    /// ```
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expiry = Some(Expiry::In(time));
        self
    }

    /// Sets until how long after a job is due it is tried again: after its enqueue, or after the
    /// time at which it is to run if it has one. Default: only the number of
    /// [attempts](Self::max_attempts) counts.
    ///
    /// If the next attempt would be due later, by the database's clock, there is none: the job has
    /// failed with the error of its last attempt. Snoozes and runs that were cut short are not
    /// limited. This does not set the number of attempts, whose default is 1.
    ///
    /// Zero is refused by the enqueue.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Policy;
    /// let policy = Policy::new()
    ///     .max_attempts(u32::MAX)
    ///     .retry_for(Duration::from_secs(24 * 3600));
    /// # let _ = policy;
    /// ```
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_limit = Some(RetryLimit::For(time));
        self
    }

    /// Sets the time after which a job is not tried again; see [`retry_for`](Self::retry_for),
    /// which this replaces.
    pub fn retry_until(mut self, time: DateTime<Utc>) -> Self {
        self.retry_limit = Some(RetryLimit::Until(time));
        self
    }

    /// Returns the time after which no further attempt may be due. Both times are of the database.
    pub(crate) fn last_retry(
        &self,
        enqueued_at: NaiveDateTime,
        scheduled_at: Option<NaiveDateTime>,
    ) -> Option<NaiveDateTime> {
        match self.retry_limit? {
            RetryLimit::Until(time) => Some(time.naive_utc()),
            RetryLimit::For(time) => {
                let due = scheduled_at.map_or(enqueued_at, |at| at.max(enqueued_at));
                // So far away that it is no limit.
                due.checked_add_signed(TimeDelta::from_std(time).ok()?)
            }
        }
    }

    /// Returns what is wrong with the limits.
    pub(crate) fn wrong_limit(&self, due: Option<NaiveDateTime>) -> Option<String> {
        if self.expiry == Some(Expiry::In(Duration::ZERO)) {
            return Some("it would expire at once: `expires_in` must be above zero".to_owned());
        }
        if self.retry_limit == Some(RetryLimit::For(Duration::ZERO)) {
            let problem =
                "`retry_for` must be above zero; for no further attempt, set `max_attempts` to 1";
            return Some(problem.to_owned());
        }
        match (self.expiry, due) {
            (Some(Expiry::At(expiry)), Some(due)) if expiry.naive_utc() <= due => Some(format!(
                "it would expire at {expiry}, before it is due at {}; set an earlier time or a \
                 later expiry",
                due.and_utc()
            )),
            _ => None,
        }
    }
}

// --- Priorities that are times ---

impl Policy {
    /// Makes the priority the time from which the job waits, minus `ahead`: it runs before jobs that
    /// have waited for up to so much longer, and no others.
    ///
    /// Jobs with such priorities run in the order of these times, whatever their attempts and
    /// schedules. So every job runs eventually. `Duration::ZERO` gives plain order of time.
    ///
    /// The time is that of the enqueue by the database's clock, the time at which the job is due if
    /// it has one, or that of its tick for a recurring task. It is counted in seconds from 2020, so
    /// the number is much larger than usual priorities, and jobs with those run first. Use only one
    /// kind of priority in a queue.
    ///
    /// This is applied during the enqueue; a program-wide value has no effect. An enqueue that sets
    /// a [`priority`](crate::NewJob::priority) overrides it.
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        self.ahead_by = Some(i64::try_from(ahead.as_secs()).unwrap_or(i64::MAX));
        self
    }

    /// Makes the priority the time from which the job waits, plus `behind`: jobs that were enqueued
    /// up to so much later run before it. See [`ahead_by`](Self::ahead_by).
    ///
    /// ```
    /// # use windlass::Policy;
    /// use std::time::Duration;
    /// // Whatever else came within the last hour runs first.
    /// let policy = Policy::new().behind_by(Duration::from_secs(3600));
    /// # let _ = policy;
    /// ```
    pub fn behind_by(mut self, behind: Duration) -> Self {
        self.ahead_by = Some(i64::try_from(behind.as_secs()).map_or(i64::MIN, |seconds| -seconds));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(hour: u32) -> NaiveDateTime {
        let day = chrono::NaiveDate::from_ymd_opt(2030, 1, 1).unwrap();
        day.and_hms_opt(hour, 0, 0).unwrap()
    }

    #[test]
    fn retries_are_limited_from_when_the_job_is_due() {
        let policy = Policy::new().retry_for(HOUR);
        assert_eq!(policy.last_retry(at(2), None), Some(at(3)));
        assert_eq!(policy.last_retry(at(2), Some(at(1))), Some(at(3)));
        assert_eq!(policy.last_retry(at(2), Some(at(5))), Some(at(6)));
        let policy = policy.retry_until(at(4).and_utc());
        assert_eq!(policy.last_retry(at(2), Some(at(9))), Some(at(4)));
        assert_eq!(Policy::new().last_retry(at(2), None), None);
        let policy = Policy::new().retry_for(Duration::MAX);
        assert_eq!(policy.last_retry(at(2), None), None);
    }

    #[test]
    fn they_are_stored_in_short() {
        let policy = Policy::new().expires_in(HOUR).retry_until(at(4).and_utc());
        let column = policy.to_column().unwrap();
        assert_eq!(
            column,
            r#"{"expiry":{"in":3600000},"retry_limit":{"until":"2030-01-01T04:00:00Z"}}"#
        );
        assert_eq!(Policy::of_columns(Some(&column), None, false), policy);
        // Of a later version, for example.
        let strange = r#"{"expiry":{"by":"moonlight"},"delivery":"never","keep_finished":true}"#;
        let policy = Policy::new().keep_finished(true);
        assert_eq!(Policy::of_columns(Some(strange), None, false), policy);
    }
}
