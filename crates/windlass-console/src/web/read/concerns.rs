//! Finds what needs attention.

use crate::read::curves::{QueueCurves, queue_curves};
use crate::read::doctor::processes::ABOUT_TO_PRUNE;
use crate::read::doctor::scope::{Finding, Verdict};
use crate::read::now::{LoadNow, Member, QueueView};
use crate::read::sql::tasks;
use crate::web::cache::Cached;
use crate::web::http;
use crate::web::read::QueueVerdict;
use crate::web::show::{about, count, duration};
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::history::{
    Bucket, Histogram, HistoryFilter, SeriesTally, TimeRange, Usual, by_class, series, typical_run,
    usual,
};
use windlass::internal::clock;
use windlass::internal::db::table::{recurring_tasks, run_time};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result, failed};

/// The most of each kind that are listed.
const MOST: usize = 10;

/// The most dead processes that are listed one by one.
const NAMED: usize = 3;

/// In seconds. A recurring task that has been due for longer is not being fired.
const OVERDUE: u32 = 60;

/// The findings of `doctor` about what other concerns show: queues without a worker, and overdue tasks.
const SHOWN_OTHERWISE: [&str; 2] = ["queues", "recurring"];

/// Returns what needs attention, the worst first. `findings` are those of the last look of `doctor`.
pub(crate) fn find(
    conn: &mut Conn<'_>,
    load: &LoadNow,
    findings: &[Finding],
    now: DateTime<Utc>,
) -> Result<Vec<Concern>> {
    let mut all = failing(conn, now)?;
    // Without workers, `doctor` finds more than each queue by itself.
    let has_workers = load.fleet.alive_workers().next().is_some();
    let queues = load.worst_first().into_iter().filter(|queue| {
        let is_unserved = matches!(queue.verdict, QueueVerdict::Unserved | QueueVerdict::Silent);
        has_workers || !is_unserved
    });
    all.extend(queues.filter_map(of_queue).take(MOST));
    all.extend(dead(load));
    all.extend(overdue(conn)?);
    all.extend(paused_classes(conn)?);
    all.extend(findings.iter().filter_map(of_finding));
    all.sort_by_key(|concern| concern.kind);
    Ok(all)
}

fn failing(conn: &mut Conn<'_>, now: DateTime<Utc>) -> Result<Vec<Concern>> {
    let groups = failed::groups(conn, u32::try_from(MOST).unwrap_or(u32::MAX))?.groups;
    let concerns = groups.into_iter().map(|group| {
        let more = if group.is_exact { "" } else { "+" };
        let name = format!("{}{more} {}", count(group.count), group.class_name);
        let path = http::with_query("/jobs", &[("group", &group.fingerprint)]);
        let since = (now - group.first_at).as_seconds_f64();
        let said = match group.message.as_str() {
            "" => &group.kind,
            message => message,
        };
        Concern::new(ConcernKind::Failing, name, path)
            .text(format!(" failed: {}", shortened(said)))
            .since(since)
    });
    Ok(concerns.collect())
}

/// Returns the start of a text that may be very long.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the path of the page of a queue.
pub(crate) fn queue_path(queue: &str) -> String {
    http::path(&["queues", queue])
}

fn of_queue(queue: &QueueView) -> Option<Concern> {
    let (name, path) = (queue.name.as_str(), queue_path(&queue.name));
    let ready = ready_jobs(queue);
    let waited = queue.oldest_seconds.unwrap_or_default();
    let concern = |kind| Concern::new(kind, name, path.clone());
    Some(match queue.verdict {
        QueueVerdict::Late { promise } => {
            let text = format!(
                ": its oldest ready job has waited for {}, and {} is promised; {ready}",
                duration(waited),
                duration(promise.as_secs_f64())
            );
            let late = waited - promise.as_secs_f64();
            concern(ConcernKind::Late).text(text).since(late)
        }
        QueueVerdict::Unserved => concern(ConcernKind::Unserved)
            .text(format!(": {ready}, and no worker serves the queue"))
            .since(waited),
        QueueVerdict::Silent => concern(ConcernKind::Unserved)
            .text(format!(": {ready}, and the workers of the queue are dead"))
            .since(waited),
        QueueVerdict::Quiet => concern(ConcernKind::Unserved)
            .text(format!(
                ": {ready}, and the workers of the queue are quiet or stopping"
            ))
            .since(waited),
        QueueVerdict::Paused => {
            let pause = queue.pause.as_ref()?;
            concern(ConcernKind::Paused)
                .text(format!(
                    "{}; {ready}",
                    who_and_why(pause.paused_by.as_deref(), pause.pause_reason.as_deref())
                ))
                .since(pause.paused_seconds)
                .post(http::path(&["queues", name, "resume"]), "Resume")
        }
        QueueVerdict::InTime { .. } | QueueVerdict::Unjudged | QueueVerdict::Empty => return None,
    })
}

/// Returns `8,310 jobs are ready`.
pub(crate) fn ready_jobs(queue: &QueueView) -> String {
    let more = if queue.ready.is_more { "+" } else { "" };
    match queue.ready.count {
        0 => "no job is ready".to_owned(),
        1 if !queue.ready.is_more => "1 job is ready".to_owned(),
        jobs => format!("{}{more} jobs are ready", count(jobs)),
    }
}

/// Returns `, by ada: “the provider is down”`.
pub(crate) fn who_and_why(by: Option<&str>, reason: Option<&str>) -> String {
    let by = by.map(|by| format!(", by {by}")).unwrap_or_default();
    let reason = reason.map(|reason| format!(": “{}”", shortened(reason)));
    format!("{by}{}", reason.unwrap_or_default())
}

fn dead(load: &LoadNow) -> Vec<Concern> {
    let dead: Vec<&Member> = load.fleet.dead().collect();
    if dead.len() > NAMED {
        return many_dead(&dead);
    }
    let concerns = dead.into_iter().map(|process| {
        let held = process.running + process.ahead;
        let jobs = match held {
            0 => String::new(),
            1 => "; it holds 1 job".to_owned(),
            held => format!("; it holds {} jobs", count(held)),
        };
        let seconds = process.row.heartbeat_seconds;
        Concern::new(
            ConcernKind::Dead,
            format!("{} {}", process.row.kind.to_lowercase(), process.location()),
            "/processes".to_owned(),
        )
        .text(format!(
            " had its last heartbeat {} ago{jobs}",
            about(seconds)
        ))
        .since(seconds)
    });
    concerns.collect()
}

/// Returns one concern for all dead processes, which have a cause in common.
fn many_dead(dead: &[&Member]) -> Vec<Concern> {
    let locations: Vec<String> = dead.iter().take(NAMED).map(|one| one.location()).collect();
    let ages = dead.iter().map(|one| one.row.heartbeat_seconds);
    let concern = Concern::new(
        ConcernKind::Dead,
        format!("{} processes", count(dead.len())),
        "/processes".to_owned(),
    );
    let text = format!(
        " have had no heartbeat for 60 s: {} and {} more",
        locations.join(", "),
        count(dead.len() - NAMED)
    );
    vec![concern.text(text).since(ages.fold(0.0, f64::max))]
}

fn overdue(conn: &mut Conn<'_>) -> Result<Vec<Concern>> {
    let overdue =
        tasks::overdue(conn, OVERDUE, MOST as i64).during("look at the recurring tasks")?;
    let concerns = overdue.into_iter().map(|task| {
        let due = task
            .due_at
            .map(|at| at.format("%Y-%m-%d %H:%M").to_string());
        let due = due.unwrap_or_default();
        Concern::new(ConcernKind::Overdue, &task.key, "/recurring".to_owned())
            .text(format!(" was due at {due}, and no scheduler has fired it"))
            .since(task.seconds)
            .post(http::path(&["recurring", &task.key, "run"]), "Run now")
    });
    Ok(concerns.collect())
}

fn paused_classes(conn: &mut Conn<'_>) -> Result<Vec<Concern>> {
    let paused = run_time::list_paused_classes(conn).during("look at the paused classes")?;
    let concerns = paused.into_iter().take(MOST).map(|class| {
        let name = format!("class {}", class.class_name);
        let path = http::with_query("/jobs", &[("class", &class.class_name)]);
        let text = who_and_why(class.paused_by.as_deref(), class.pause_reason.as_deref());
        Concern::new(ConcernKind::Paused, name, path)
            .text(text)
            .since(class.paused_seconds)
            .post(
                http::path(&["classes", &class.class_name, "resume"]),
                "Resume",
            )
    });
    Ok(concerns.collect())
}

fn of_finding(finding: &Finding) -> Option<Concern> {
    let kind = match finding.verdict {
        Verdict::Fine => return None,
        Verdict::Warning => ConcernKind::Warning,
        Verdict::Problem => ConcernKind::Problem,
    };
    // Each of them is a concern of its own.
    if SHOWN_OTHERWISE.contains(&finding.check) || finding.says.ends_with(ABOUT_TO_PRUNE) {
        return None;
    }
    let concern = Concern::new(kind, finding.check, "/doctor".to_owned());
    Some(concern.text(format!(": {}", finding.says)))
}

// --- Something that needs attention ---

/// The kind of a concern, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConcernKind {
    Failing,
    Late,
    Dead,
    Problem,
    Unserved,
    Overdue,
    Warning,
    Paused,
}

impl ConcernKind {
    /// Returns a class of the style sheet, the class of its mark, and its word.
    pub(crate) fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            ConcernKind::Failing => ("fail", "s fail", "Failing"),
            ConcernKind::Late => ("bad", "v bad", "Late"),
            ConcernKind::Dead => ("bad", "v bad", "Dead"),
            ConcernKind::Problem => ("bad", "v bad", "Problem"),
            ConcernKind::Unserved => ("warn", "v warn", "Unserved"),
            ConcernKind::Overdue => ("warn", "v warn", "Overdue"),
            ConcernKind::Warning => ("warn", "v warn", "Warning"),
            ConcernKind::Paused => ("pause", "s pause", "Paused"),
        }
    }

    /// Returns whether jobs fail, are late, or may be lost.
    pub(crate) fn is_bad(self) -> bool {
        self <= ConcernKind::Problem
    }
}

/// The action that a concern suggests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConcernAction {
    /// A page to look at.
    Look { path: String },
    /// A change that can be undone.
    Post { path: String, label: &'static str },
}

/// Something that needs attention, and one thing to do about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Concern {
    pub(crate) kind: ConcernKind,
    /// The subject of the concern, which is a link to `path`.
    pub(crate) name: String,
    pub(crate) path: String,
    /// The rest of the sentence.
    pub(crate) text: String,
    /// For how many seconds it has been so, if that is known.
    pub(crate) since: Option<f64>,
    pub(crate) action: ConcernAction,
}

impl Concern {
    /// Returns a concern with a page to look at.
    pub(crate) fn new(kind: ConcernKind, name: impl Into<String>, path: String) -> Self {
        Concern {
            kind,
            name: name.into(),
            action: ConcernAction::Look { path: path.clone() },
            path,
            text: String::new(),
            since: None,
        }
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    pub(crate) fn since(mut self, seconds: f64) -> Self {
        self.since = Some(seconds);
        self
    }

    pub(crate) fn post(mut self, path: String, label: &'static str) -> Self {
        self.action = ConcernAction::Post { path, label };
        self
    }
}

// --- The last hour of the history beside the usual one ---

/// The history of the last hour, and what is usual.
#[derive(Debug, Clone)]
pub(crate) struct LastHour {
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) curves: QueueCurves,
    pub(crate) usual: Option<Usual>,
}

impl LastHour {
    pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Self> {
        let now = recurring_tasks::now(conn).during("read the time")?;
        Ok(LastHour {
            buckets: series(conn, &HistoryFilter::all(), TimeRange::Hour)?,
            curves: queue_curves(conn, TimeRange::Hour)?,
            usual: usual(conn, &HistoryFilter::all(), now.and_utc())?,
        })
    }
}

/// The most classes that are shown.
const CLASSES: usize = 8;

/// Reads the classes of which most jobs have ended in the last hour.
pub(crate) fn busiest_classes(conn: &mut Conn<'_>) -> Result<Vec<SeriesTally>> {
    let mut classes = by_class(conn, None, TimeRange::Hour)?;
    classes.sort_by_key(|class| std::cmp::Reverse(class.tally.ended()));
    classes.truncate(CLASSES);
    Ok(classes)
}

/// The usual run times of classes, where the history holds a week.
pub(crate) type UsualRuns = BTreeMap<String, Histogram>;

/// The time for which they are used: some minutes more or less of a week make no difference.
const USUAL: Duration = Duration::from_secs(300);

/// The most classes whose usual run times are read for a page.
const MOST_READ: usize = 4;

/// Returns the usual run times of the first few of these classes, and of those that are known.
pub(crate) fn usual_runs<'c>(
    conn: &mut Conn<'_>,
    cached: &Cached<UsualRuns>,
    classes: impl Iterator<Item = &'c str>,
) -> Result<UsualRuns> {
    let begun = cached.begin(clock::instant());
    let known = cached.get(clock::instant(), USUAL);
    let mut known = known.map(|(known, _)| known).unwrap_or_default();
    let mut read: Vec<&str> = Vec::new();
    for class in classes {
        if read.len() == MOST_READ {
            break;
        }
        if known.contains_key(class) || read.contains(&class) {
            continue;
        }
        read.push(class);
        match typical_run(conn, &HistoryFilter::all().class(class))? {
            Some(run) => {
                known.insert(class.to_owned(), run);
            }
            // Without a week of history, there is none for any class.
            None if known.is_empty() => break,
            None => {}
        }
    }
    if !read.is_empty() {
        cached.set(begun, &known, USUAL);
    }
    Ok(known)
}
