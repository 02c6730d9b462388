//! Lets jobs through their gates: the share of their tenant, their rates, and their concurrency key.
//!
//! Jobs with the same gates are in one line, in the order of their priority and age. A promotion looks at the first jobs of
//! the lines that were requested: a job becomes ready if all its gates are open at once, and takes a token of each rate and
//! a slot of its key. Otherwise its line waits for the first gate that is closed, and holds nothing. The gates are looked at
//! in this order: the share, the rates, as the job names them, and then the concurrency key. Once a job has found a rate
//! without the tokens that it costs, no later job passes that rate, of whatever line.
//!
//! A token that was taken is promised until a promotion sees that its job has started, see
//! [`RateBucket`](crate::db::model::rate::RateBucket). The row of a key is written once for all jobs that a promotion lets
//! through, and once in a tick: jobs that come earlier wait for the next look.

mod fair_queue;
mod gates;
mod line;
mod rate_gate;
mod share_gate;
mod steady_clock;
mod watch;

pub(crate) use line::WantedGates;
pub(crate) use watch::{GateWatch, UsedTimes};

use crate::db::conn::connection::Conn;
use crate::db::model::gate_line::ShareOf;
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{jobs, rates};
use crate::db::transition::gate::gates::{Gates, Passed};
use crate::db::transition::gate::line::{Line, LineOrigin, SeenLines};
use crate::db::transition::gate::share_gate::ShareGates;
use diesel::QueryResult;
use std::collections::BTreeSet;

/// The most lines of one promotion, besides those that were requested.
const MOST_LINES: usize = 200;

/// The result.
#[derive(Debug, Default)]
pub(crate) struct LetThrough {
    /// The jobs that may run now, which the caller makes ready.
    pub(crate) ready: Vec<i64>,
    /// Those that end, as their key has no free slot.
    pub(crate) full: Vec<i64>,
    /// The number of lines that must be looked at again, as another transaction has locked gates of theirs.
    pub(crate) left_over: usize,
    /// True if more jobs may go on at once.
    pub(crate) has_rest: bool,
    /// The queues of which more jobs may, for which the caller makes requests.
    pub(crate) rest: BTreeSet<String>,
    /// True if jobs or lines have gone on.
    pub(crate) has_moved: bool,
    /// The number of lines that waited, and in which no job waits any more, or that wait for another gate now.
    pub(crate) followed: usize,
}

/// Lets jobs of these lines through. Returns `None` if there is none to look at.
///
/// # Errors
/// Also if the clock has made a step, see [`GateWatch::wants_clock`].
pub(crate) fn let_through(
    conn: &mut Conn<'_>,
    mut wanted: WantedGates,
    watch: &mut GateWatch,
) -> QueryResult<Option<LetThrough>> {
    if wanted.is_empty() {
        return Ok(None);
    }
    wanted.sort();
    let queues = std::mem::take(&mut wanted.queues);
    let mut seen = line::find(conn, wanted, MOST_LINES)?;
    let moment = rates::moment(conn)?;
    let Some(now) = watch.steady.look(moment) else {
        watch.wants_clock = true;
        return Err(diesel::result::Error::RollbackTransaction);
    };
    let shares = ShareGates::open(conn, &mut seen, queues, watch, now)?;
    watch.by_time = shares.by_time();
    let mut gates = Gates::open(conn, &seen, shares, now)?;
    if watch.has_no_tick {
        gates.look_again();
    }
    gates.stop_early(&mut seen.lines);
    gates.count(conn)?;
    let first = gates.first_jobs(conn, &mut seen.lines)?;
    let passed = gates.pass(&mut seen.lines, first);
    let full = end_full(conn, &passed, &mut seen.lines)?;
    note_skipped(conn, &mut seen.lines)?;
    gates.store(conn, &seen.lines)?;
    let lines = &seen.lines;
    let gone_on = lines.iter().filter(|line| line.has_gone_on()).count();
    let has_moved = !passed.ready.is_empty() || !full.is_empty() || gone_on > 0;
    request_limits(conn, &seen, &gates)?;
    request_rest(conn, lines, has_moved, &gates)?;
    request_queues(conn, gates.shares.left.iter(), false)?;
    let rest = gates.shares.with_rest(lines);
    Ok(Some(LetThrough {
        left_over: lines.iter().filter(|line| line.is_locked).count() + gates.shares.left.len(),
        has_rest: !rest.is_empty() || lines.iter().any(Line::has_more),
        rest,
        has_moved,
        followed: lines.iter().filter(|line| line.has_emptied()).count() + gone_on,
        ready: passed.ready,
        full,
    }))
}

/// Returns those of the jobs that end which can end now. The lines of the others, whose rows another transaction has locked,
/// are left for later.
fn end_full(conn: &mut Conn<'_>, passed: &Passed, lines: &mut [Line]) -> QueryResult<Vec<i64>> {
    if passed.full.is_empty() {
        return Ok(Vec::new());
    }
    let full: Vec<i64> = passed.full.iter().map(|(job, _)| *job).collect();
    let free = jobs::lock_free(conn, &full)?;
    let locked = passed.full.iter().filter(|(job, _)| !free.contains(job));
    let locked: BTreeSet<&String> = locked.map(|(_, line)| line).collect();
    let locked = lines.iter_mut().filter(|line| locked.contains(&line.name));
    locked.for_each(|line| line.is_locked = true);
    Ok(free)
}

/// Leaves the lines for later of which jobs were skipped, as other transactions have locked them.
fn note_skipped(conn: &mut Conn<'_>, lines: &mut [Line]) -> QueryResult<()> {
    let ended = lines.iter().filter(|line| line.is_empty());
    let ended: Vec<(&str, i64)> = ended.map(|line| (&*line.name, line.found)).collect();
    let longer = rates::longer_than(conn, &ended)?;
    let skipped = lines.iter_mut().filter(|line| longer.contains(&line.name));
    skipped.for_each(|line| line.is_locked = true);
    Ok(())
}

/// Requests concurrency keys of which more jobs may go on.
fn request_limits(conn: &mut Conn<'_>, seen: &SeenLines, gates: &Gates) -> QueryResult<()> {
    let open = gates.open_limits(seen).into_iter().map(NewRequest::Key);
    match seen.lines.iter().any(|line| line.is_locked) {
        true => wanted_keys::request_later(conn, open),
        false => wanted_keys::request(conn, open),
    }
}

/// Requests lines of which more jobs may go on, and those that could not be looked at. Lines at a rate that another transaction
/// has locked are not: that rate stays due.
fn request_rest(
    conn: &mut Conn<'_>,
    lines: &[Line],
    has_moved: bool,
    gates: &Gates,
) -> QueryResult<()> {
    let request = |line: &Line| NewRequest::Gate(line.name.clone());
    let more = lines.iter().filter(|line| line.has_more());
    match has_moved {
        true => wanted_keys::request(conn, more.map(request))?,
        false => wanted_keys::request_later(conn, more.map(request))?,
    }
    let locked = lines.iter().filter(|line| line.is_locked);
    let locked = locked.filter(|line| match &line.origin {
        LineOrigin::Requested | LineOrigin::AtLimit | LineOrigin::AtShare => true,
        LineOrigin::AtRate(key) => gates.has_rate(key),
    });
    wanted_keys::request_later(conn, locked.map(request))
}

/// Requests looks at queues: at once, or if no process that hears of it could do more at present.
pub(crate) fn request_queues<'q>(
    conn: &mut Conn<'_>,
    queues: impl Iterator<Item = &'q String>,
    at_once: bool,
) -> QueryResult<()> {
    let requests = queues.map(|queue| NewRequest::Gate(ShareOf::gate(queue)));
    match at_once {
        true => wanted_keys::request(conn, requests),
        false => wanted_keys::request_later(conn, requests),
    }
}

/// Requests lines in which jobs wait, up to `most` after one, unless they are requested or wait for a rate that is theirs
/// alone. Returns the last line that was read; `None` at the end.
pub(crate) fn sweep(conn: &mut Conn<'_>, after: &str, most: usize) -> QueryResult<Option<String>> {
    let (reached, lines) = rates::unwanted_lines(conn, after, most)?;
    wanted_keys::request_later(conn, lines.into_iter().map(NewRequest::Gate))?;
    Ok(reached)
}
