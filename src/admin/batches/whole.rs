//! The jobs of a batch and of the batches in it, as a selection.
//!
//! They are not found by their states but as members of the batches: neither other jobs nor those that have ended are read.

use crate::admin::jobs::{BoundedCount, Jobs};
use crate::db::Conn;
use crate::db::model::decision::JobState;
use crate::db::query::batches;
use crate::db::query::batches::walk::{BatchWalk, Members};
use crate::db::query::filter::Filter;
use crate::db::query::jobs::{self, JobCount};
use crate::error::{Error, ErrorContext as _, Result};
use std::collections::BTreeMap;

/// The number of jobs that are read at once to be counted.
const PAGE: usize = 5_000;

/// The jobs of a batch and of the batches in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WholeBatch {
    batch: i64,
    which: Members,
}

impl WholeBatch {
    fn walk(self) -> BatchWalk {
        BatchWalk::of(self.batch, self.which)
    }
}

impl Jobs {
    /// Returns the batch that is selected with the batches in it, if one is.
    ///
    /// # Errors
    /// If there is no such batch, it is of Ruby, or its jobs are selected by something else too.
    pub(crate) fn whole_batch(&self, conn: &mut Conn<'_>) -> Result<Option<WholeBatch>> {
        let Some(batch) = self.filter.whole_batch else {
            return Ok(None);
        };
        let only = Filter {
            whole_batch: Some(batch),
            ..Filter::default()
        };
        let which = self.members().filter(|_| self.filter == only);
        let which = which.ok_or_else(|| {
            Error::Settings(
                "of a batch with the batches in it, all jobs that have not ended are selected, or all failed ones: \
                 use `Jobs::batch` to select some"
                    .to_owned(),
            )
        })?;
        match batches::one(conn, batch, 0).during("look the batch up")? {
            None => Err(Error::NoSuchBatch { id: batch }),
            Some(row) if !row.is_ours => Err(Error::BatchOfRuby { id: batch }),
            Some(_) => Ok(Some(WholeBatch { batch, which })),
        }
    }

    /// Returns the members of batches that have the selected states. `None` if there is no such kind of members.
    pub(crate) fn members(&self) -> Option<Members> {
        let open = Jobs::waiting_or_running().states;
        if self.states == [JobState::Failed] {
            return Some(Members::Failed);
        }
        (self.states == open).then_some(Members::Open)
    }

    /// Returns the first jobs of a batch, at most `most`.
    pub(crate) fn first_members(
        conn: &mut Conn<'_>,
        whole: WholeBatch,
        most: usize,
    ) -> Result<Vec<i64>> {
        let (mut walk, mut all) = (whole.walk(), Vec::new());
        while !walk.is_done() && all.len() < most {
            let limit = PAGE.min(most - all.len());
            all.extend(
                walk.next(conn, whole.which, limit)
                    .during("read the jobs")?,
            );
        }
        Ok(all)
    }

    /// Counts the jobs of a batch up to `most`.
    pub(crate) fn count_members(
        conn: &mut Conn<'_>,
        whole: WholeBatch,
        most: u64,
    ) -> Result<BoundedCount> {
        let (mut walk, mut count) = (whole.walk(), 0);
        while !walk.is_done() && count <= most {
            let jobs = walk.next(conn, whole.which, PAGE);
            count += jobs.during("count the jobs")?.len() as u64;
        }
        Ok(BoundedCount {
            count: count.min(most),
            is_exact: count <= most,
        })
    }

    /// Counts the jobs of a batch by state, class and queue.
    pub(crate) fn member_counts(
        &self,
        conn: &mut Conn<'_>,
        whole: WholeBatch,
    ) -> Result<Vec<(JobState, JobCount)>> {
        let mut all: BTreeMap<_, i64> = BTreeMap::new();
        let mut walk = whole.walk();
        while !walk.is_done() {
            let ids = walk
                .next(conn, whole.which, PAGE)
                .during("count the jobs")?;
            let filter = Filter {
                ids: Some(ids),
                ..Filter::default()
            };
            for state in &self.states {
                let counts = jobs::counts(conn, *state, &filter).during("count the jobs")?;
                for found in counts {
                    let kind = (
                        *state,
                        found.class_name,
                        found.queue_name,
                        found.at_most_once,
                    );
                    *all.entry(kind).or_default() += found.count;
                }
            }
        }
        let counts = all.into_iter().map(|(kind, count)| {
            let (state, class_name, queue_name, at_most_once) = kind;
            let found = JobCount {
                class_name,
                queue_name,
                at_most_once,
                count,
            };
            (state, found)
        });
        Ok(counts.collect())
    }
}
