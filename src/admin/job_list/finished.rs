//! Finds finished jobs behind others: no index has them, as that would cost each job a write.

use crate::admin::job_list::{Finder, FoundPage};
use crate::clock;
use crate::db::Conn;
use crate::db::model::decision::JobState;
use crate::db::query::pages::job_window::{self, FoundBy, KeyRange, ListPlace};
use diesel::QueryResult;
use std::time::Duration;

/// How many ids without a finished job are passed at a time, and for how long: 100,000 jobs take some 40 ms.
const PASSED: i64 = 100_000;
const PASSING: Duration = Duration::from_millis(300);

impl Finder<'_> {
    /// Returns where a search for finished jobs stopped that has found none.
    pub(super) fn may_pass(&self, page: &FoundPage) -> Option<i64> {
        let is_back = matches!(self.place, ListPlace::Before(_));
        let is_of_finished = self.search.state == Some(JobState::Finished);
        let may_pass =
            is_back && is_of_finished && self.by == FoundBy::Key && page.found.is_empty();
        page.stop.filter(|_| may_pass)
    }

    /// Passes jobs below `key` that have not finished, none of which can be on the page, and goes on with the newest
    /// that has.
    pub(super) fn beyond_unfinished(
        &mut self,
        conn: &mut Conn<'_>,
        key: i64,
    ) -> QueryResult<FoundPage> {
        let (mut below, mut most, began) = (key, PASSED, clock::instant());
        while below > self.range.lowest.max(0) && began.elapsed() < PASSING {
            let step = clock::instant();
            let range = KeyRange {
                lowest: below.saturating_sub(most).max(self.range.lowest),
                highest: below.saturating_sub(1),
            };
            if let Some(job) = job_window::newest_finished(conn, range)? {
                self.place = ListPlace::Before(job.saturating_add(1));
                return self.page(conn);
            }
            below = range.lowest;
            // A gap in the ids costs nothing.
            if step.elapsed() < PASSING / 30 {
                most = most.saturating_mul(2);
            }
        }
        let is_over = below <= self.range.lowest.max(0);
        Ok(self.cut(Vec::new(), (!is_over).then_some(below)))
    }
}
