//! Lists of jobs for pages: found a window at a time, and shown without their secrets.

mod steps;

use crate::read::job_list::steps::IdSteps;
use crate::read::sql::job_search::JobSearch;
use crate::read::sql::job_window::{self, AccessPath, KeyRange, ListPosition, WINDOW};
use crate::read::sql::named;
use crate::read::sql::newest_job::newest_job;
use crate::read::surroundings::Surroundings;
use chrono::NaiveDateTime;
use diesel::QueryResult;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::Conn;
use windlass::internal::admin::explain::obstacles::WantedJob;
use windlass::internal::admin::secrets::Secrets;
use windlass::internal::clock;
use windlass::internal::db::conn::dialect::timestamp;
use windlass::internal::db::query::batches;
use windlass::internal::db::query::job_view::{self, JobView, StoredArguments, TextLimits};
use windlass::internal::db::query::jobs::JobMatch;
use windlass::internal::job::run_log::HIDDEN;
use windlass::jobs::JobState;

pub(crate) use steps::ENOUGH;

/// A page of a list.
#[derive(Debug)]
pub(crate) struct JobList {
    /// The newest first.
    pub(crate) jobs: Vec<ListedJob>,
    /// The position of the page with older jobs, if there is one.
    pub(crate) older: Option<ListPosition>,
    /// The position of the page with newer jobs, if there is one.
    pub(crate) newer: Option<ListPosition>,
    /// The position where the search stopped, if it did not look at all jobs.
    pub(crate) stop: Option<SearchStop>,
}

/// The position where a search stopped because it had looked at enough jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SearchStop {
    /// The position at which it continues.
    pub(crate) position: ListPosition,
    /// The last job that it looked at.
    pub(crate) job: Option<i64>,
}

/// The most jobs with one unique id, or of one batch, that are looked up by it. If there are more, all jobs are
/// searched.
const MOST_OF_ONE: usize = 1_000;

/// The most priorities that a queue may have for its ready jobs to be found by them.
const MOST_PRIORITIES: usize = 8;

/// The most candidates whose arguments are read for a search without secrets: at a time, and in all.
const CANDIDATES: (usize, usize) = (100, 2_000);

/// The most bytes of arguments that such a search reads. To parse them takes most of its processor time, 3 ms for
/// each MB. A limit in time would stop it at another position each time.
const MOST_READ: usize = 12 * 1024 * 1024;

impl JobSearch {
    /// Sets the times between which the jobs were enqueued or ended.
    pub(crate) fn between(
        mut self,
        from: Option<NaiveDateTime>,
        to: Option<NaiveDateTime>,
    ) -> Self {
        (self.from, self.to) = (from.map(timestamp), to.map(timestamp));
        self
    }
}

/// A search for one page, with the way in which its jobs are found.
struct Finder<'s> {
    search: &'s JobSearch,
    by: AccessPath,
    range: KeyRange,
    position: ListPosition,
    limit: usize,
}

/// The jobs that were found, in the order of the direction.
struct MatchPage {
    jobs: Vec<JobMatch>,
    /// True if there are more than these.
    has_more: bool,
    /// The last key that was looked at, if there may be more beyond it.
    stop: Option<i64>,
}

/// Returns a page of a list, with at most `limit` jobs.
pub(crate) fn list(
    conn: &mut Conn<'_>,
    search: &JobSearch,
    (from, to): (Option<NaiveDateTime>, Option<NaiveDateTime>),
    position: ListPosition,
    limit: usize,
) -> QueryResult<JobList> {
    let search = search.clone().between(from, to);
    let (from, to) = while_batch(conn, &search, from, to)?;
    let mut finder = Finder {
        search: &search,
        by: access_path(conn, &search)?,
        range: job_window::in_time(conn, &search, from, to)?,
        position,
        limit,
    };
    if search.arguments.is_some() && search.has_job_keys() {
        let newest = newest_job(conn)?.unwrap_or(0);
        let lowest = newest.saturating_sub(job_window::SEARCHED_JOBS - 1);
        finder.range.lowest = finder.range.lowest.max(lowest);
    }
    let mut page = finder.page(conn)?;
    if let Some(stop) = finder.may_pass(&page) {
        page = finder.beyond_unfinished(conn, stop)?;
    }
    if matches!(position, ListPosition::After(_)) && !page.has_more && page.stop.is_none() {
        // The newest page is a full one.
        finder.position = ListPosition::Before(i64::MAX);
        page = finder.page(conn)?;
    }
    finder.shown(conn, page)
}

/// Returns the times between which the ids of a search are: those of a batch came after its start and before its end.
fn while_batch(
    conn: &mut Conn<'_>,
    search: &JobSearch,
    from: Option<NaiveDateTime>,
    to: Option<NaiveDateTime>,
) -> QueryResult<(Option<NaiveDateTime>, Option<NaiveDateTime>)> {
    let batch = match search.batch.filter(|_| search.has_job_keys()) {
        Some(batch) => batches::one(conn, batch, 0)?,
        None => None,
    };
    let Some(batch) = batch else {
        return Ok((from, to));
    };
    let from = from.map_or(batch.created_at, |from| from.max(batch.created_at));
    let to = match (to, batch.finished_at) {
        (Some(to), Some(end)) => Some(to.min(end)),
        (to, end) => to.or(end),
    };
    Ok((Some(from), to))
}

fn access_path(conn: &mut Conn<'_>, search: &JobSearch) -> QueryResult<AccessPath> {
    if let Some(unique_id) = &search.unique_id
        && let Some(ids) = named::with_unique_id(conn, unique_id, MOST_OF_ONE)?
    {
        return Ok(AccessPath::Jobs(ids));
    }
    if let Some(batch) = search.batch
        && let Some(ids) = named::of_batch(conn, batch, MOST_OF_ONE)?
    {
        return Ok(AccessPath::Jobs(ids));
    }
    if search.state == Some(JobState::Ready)
        && let Some(queue) = &search.queue
    {
        let most = MOST_PRIORITIES as i64 + 1;
        let priorities = job_window::priorities(conn, queue, most)?;
        if (1..=MOST_PRIORITIES).contains(&priorities.len()) {
            return Ok(AccessPath::Priorities(priorities));
        }
    }
    Ok(AccessPath::Key)
}

impl Finder<'_> {
    /// Returns whether every row is one that is searched for.
    fn is_plain(&self) -> bool {
        match self.by {
            AccessPath::Key => self.search.is_plain(),
            AccessPath::Jobs(_) => false,
            AccessPath::Priorities(_) => {
                let rest = JobSearch {
                    queue: None,
                    ..self.search.clone()
                };
                rest.is_plain()
            }
        }
    }

    fn page(&self, conn: &mut Conn<'_>) -> QueryResult<MatchPage> {
        let (search, by, position) = (self.search, &self.by, self.position);
        if search.arguments.is_none() {
            return self.in_steps(conn);
        }
        let Some(window) = job_window::window(conn, search, by, self.range, position)? else {
            return Ok(self.cut(Vec::new(), None));
        };
        self.with_arguments(conn, window.range, window.stop(position))
    }

    fn in_steps(&self, conn: &mut Conn<'_>) -> QueryResult<MatchPage> {
        let (search, by, position) = (self.search, &self.by, self.position);
        let wanted = self.limit.saturating_add(1);
        let mut steps = match by == &AccessPath::Key && search.is_of_jobs() {
            true => IdSteps::of_jobs(conn, self.range, position)?,
            false => IdSteps::one(self.range, position),
        };
        let (mut jobs, mut looked_at) = (Vec::new(), 0);
        while let Some(step) = steps.next() {
            let missing = wanted - jobs.len();
            let most = match self.is_plain() {
                true => missing as i64,
                false => WINDOW,
            };
            jobs.extend(job_window::matching(
                conn,
                search,
                by,
                step,
                (position, most, missing),
            )?);
            if jobs.len() == wanted {
                return Ok(self.cut(jobs, None));
            }
            if !self.is_plain()
                && let Some(window) = job_window::window(conn, search, by, step, position)?
            {
                looked_at += window.size;
                if let Some(stop) = window.stop(position) {
                    return Ok(self.cut(jobs, Some(stop)));
                }
            }
            let stop = match looked_at >= WINDOW {
                true => steps.reached(),
                false => steps.stop(),
            };
            if stop.is_some() {
                return Ok(self.cut(jobs, stop));
            }
        }
        Ok(self.cut(jobs, None))
    }

    /// Finds jobs by what is shown of their arguments: a search that found more would tell what is
    /// hidden.
    fn with_arguments(
        &self,
        conn: &mut Conn<'_>,
        range: KeyRange,
        stop: Option<i64>,
    ) -> QueryResult<MatchPage> {
        let (at_once, in_all) = CANDIDATES;
        let texts = self.search.argument_texts();
        let (mut position, mut jobs) = (self.position, Vec::new());
        let mut read = 0;
        for _ in 0..in_all / at_once {
            let how = (position, WINDOW, at_once);
            let candidates = job_window::matching(conn, self.search, &self.by, range, how)?;
            let Some(last) = candidates.last() else {
                return Ok(self.cut(jobs, stop));
            };
            position = match position {
                ListPosition::Before(_) => ListPosition::Before(last.key),
                ListPosition::After(_) => ListPosition::After(last.key),
            };
            let ids: Vec<i64> = candidates.iter().map(|job| job.job_id).collect();
            let (shown, bytes) = shown_with(conn, &ids, &texts)?;
            read += bytes;
            jobs.extend(candidates.iter().filter(|job| shown.contains(&job.job_id)));
            if jobs.len() > self.limit {
                return Ok(self.cut(jobs, stop));
            }
            if candidates.len() < at_once {
                return Ok(self.cut(jobs, stop));
            }
            if read >= MOST_READ {
                break;
            }
        }
        let (ListPosition::Before(key) | ListPosition::After(key)) = position;
        Ok(self.cut(jobs, Some(key)))
    }

    fn cut(&self, mut jobs: Vec<JobMatch>, stop: Option<i64>) -> MatchPage {
        let has_more = jobs.len() > self.limit;
        jobs.truncate(self.limit);
        MatchPage {
            jobs,
            has_more,
            stop: stop.filter(|_| !has_more),
        }
    }

    fn shown(&self, conn: &mut Conn<'_>, page: MatchPage) -> QueryResult<JobList> {
        let mut jobs = page.jobs;
        let is_back = matches!(self.position, ListPosition::Before(_));
        if !is_back {
            jobs.reverse();
        }
        let stop = page.stop.map(|key| self.stopped(conn, key));
        let stop = stop.transpose()?;
        let (first, last) = (jobs.first(), jobs.last());
        let is_top = self.position == ListPosition::Before(i64::MAX);
        let (ListPosition::Before(key) | ListPosition::After(key)) = self.position;
        // Without a job on the page, the list goes on from where it was.
        let newer = ListPosition::After(first.map_or(key.saturating_sub(1), |job| job.key));
        let older = ListPosition::Before(last.map_or(key.saturating_add(1), |job| job.key));
        let (has_newer, has_older) = match is_back {
            true => (!is_top, page.has_more),
            false => (page.has_more, true),
        };
        let ids: Vec<i64> = jobs.iter().map(|job| job.job_id).collect();
        Ok(JobList {
            jobs: listed(conn, &ids)?,
            older: has_older.then_some(older),
            newer: has_newer.then_some(newer),
            stop,
        })
    }

    fn stopped(&self, conn: &mut Conn<'_>, key: i64) -> QueryResult<SearchStop> {
        let state = self.search.state;
        let position = match self.position {
            ListPosition::Before(_) => ListPosition::Before(key),
            ListPosition::After(_) => ListPosition::After(key),
        };
        Ok(SearchStop {
            position,
            job: job_window::job_of_key(conn, state, key)?,
        })
    }
}

// --- The jobs of a list, shown without their secrets ---

/// A job of a list.
#[derive(Debug)]
pub(crate) struct ListedJob {
    pub(crate) view: JobView,
    /// `None` if its execution was deleted by hand.
    pub(crate) state: Option<JobState>,
    /// JSON, without what is secret. `None` if they are too long for a list.
    pub(crate) arguments: Option<Value>,
    pub(crate) tags: Vec<String>,
    /// Why a ready job is not claimed, after "but".
    pub(crate) but: Option<String>,
}

/// Returns those of the jobs whose arguments contain one of the texts where they are shown, and how many bytes of
/// arguments were read.
pub(crate) fn shown_with(
    conn: &mut Conn<'_>,
    ids: &[i64],
    texts: &[String],
) -> QueryResult<(Vec<i64>, usize)> {
    let jobs = job_view::arguments(conn, ids)?;
    let read: usize = jobs.iter().map(|job| job.arguments.len()).sum();
    let secrets = Secrets::of_classes(conn, jobs.iter().map(|job| &*job.class_name))?;
    let is_shown = |job: &&StoredArguments| {
        let hidden = secrets.get(&job.class_name);
        hidden.is_some_and(|hidden| hidden.shows(&job.arguments, texts))
    };
    let shown = jobs.iter().filter(is_shown);
    Ok((shown.map(|job| job.job_id).collect(), read))
}

/// Returns tags without the values of secret fields.
fn shown_tags(mut tags: Vec<String>, arguments: Option<&str>, hidden: &Secrets) -> Vec<String> {
    match arguments {
        _ if tags.is_empty() => {}
        Some(arguments) => hidden.with(arguments).hide_in_tags(&mut tags),
        // The arguments were not read, so it is unknown what is secret in the tags.
        None if hidden.has_names() => tags.fill(HIDDEN.to_owned()),
        None => {}
    }
    tags
}

/// Reads jobs for a list, in the order of the ids.
pub(crate) fn listed(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<ListedJob>> {
    let views = job_view::jobs(conn, ids, TextLimits::LIST)?;
    let secrets = Secrets::of_classes(conn, views.iter().map(|view| &*view.class_name))?;
    let needs_why = views
        .iter()
        .any(|view| view.state() == Some(JobState::Ready));
    let around = match needs_why {
        true => Some(Surroundings::read(conn)?),
        false => None,
    };
    let mut known: BTreeMap<(String, String, u32, bool), Option<String>> = BTreeMap::new();
    let jobs = views.into_iter().map(|view| {
        let (extras, state, of_ruby) = (view.extras(), view.state(), view.is_of_ruby());
        let but = around.as_ref().filter(|_| state == Some(JobState::Ready));
        let but = but.and_then(|around| {
            let version = extras.arguments_version();
            let job = WantedJob {
                queue: &view.queue_name,
                class: &view.class_name,
                version,
            };
            let key = (
                view.queue_name.clone(),
                view.class_name.clone(),
                version,
                of_ruby,
            );
            let why = || around.why(job, of_ruby);
            known.entry(key).or_insert_with(why).clone()
        });
        let hidden = secrets.get(&view.class_name).unwrap_or(&Secrets::All);
        ListedJob {
            arguments: view.arguments.as_deref().map(|text| hidden.show(text)),
            tags: shown_tags(extras.tags, view.arguments.as_deref(), hidden),
            state,
            but,
            view,
        }
    });
    Ok(jobs.collect())
}

// --- Finds finished jobs behind others, which no index has ---

/// The ids without a finished job that are passed at a time, and the time limit: 100,000 jobs take some 40 ms.
const PASSED: i64 = 100_000;
const PASSING: Duration = Duration::from_millis(300);

impl Finder<'_> {
    /// Returns where a search for finished jobs stopped that has found none.
    pub(crate) fn may_pass(&self, page: &MatchPage) -> Option<i64> {
        let is_back = matches!(self.position, ListPosition::Before(_));
        let is_of_finished = self.search.state == Some(JobState::Finished);
        let may_pass =
            is_back && is_of_finished && self.by == AccessPath::Key && page.jobs.is_empty();
        page.stop.filter(|_| may_pass)
    }

    /// Passes jobs below `key` that have not finished, none of which can be on the page, and goes on with the newest
    /// that has.
    pub(crate) fn beyond_unfinished(
        &mut self,
        conn: &mut Conn<'_>,
        key: i64,
    ) -> QueryResult<MatchPage> {
        let (mut below, mut most, began) = (key, PASSED, clock::instant());
        while below > self.range.lowest.max(0) && began.elapsed() < PASSING {
            let step = clock::instant();
            let range = KeyRange {
                lowest: below.saturating_sub(most).max(self.range.lowest),
                highest: below.saturating_sub(1),
            };
            if let Some(job) = job_window::newest_finished(conn, range)? {
                self.position = ListPosition::Before(job.saturating_add(1));
                return self.page(conn);
            }
            below = range.lowest;
            // A gap in the ids costs nothing.
            if step.elapsed() < PASSING / 30 {
                most = most.saturating_mul(2);
            }
        }
        let is_at_end = below <= self.range.lowest.max(0);
        Ok(self.cut(Vec::new(), (!is_at_end).then_some(below)))
    }
}
