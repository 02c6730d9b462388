//! Jobs that wait for jobs, and jobs whose steps are undone: what must hold of them at the end.

use crate::Result;
use crate::check::Violations;
use crate::jobs::{Kind, Log, Work, line};
use crate::place::Place;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use windlass::flows::On;
use windlass::{Context, DbConnection, Error, Job, JobId, JobResult, NewJob, Policy};

/// A job of a flow; what it waits for is in its arguments, so that the check needs no table of Windlass' own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    flow: u64,
    place: usize,
    /// The number of jobs of the flow, if all were enqueued in one transaction.
    of: Option<usize>,
    /// The places of those that it waits for.
    parents: Vec<usize>,
    when: When,
    work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum When {
    Success,
    Failure,
    Finish,
}

impl Job for Link {
    const NAME: &'static str = "chaos_link";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        if matches!(self.work.kind, Kind::Fails | Kind::Panics) {
            cx.line(&line("fail", cx));
        }
        self.work.perform(cx)
    }
}

/// A job of some steps, each of which a job undoes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Saga {
    number: u64,
    steps: u32,
    fails: bool,
}

/// Undoes a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Undo {
    saga: u64,
    step: u32,
}

impl Job for Saga {
    const NAME: &'static str = "chaos_saga";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_crashes(100)
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        for step in 0..self.steps {
            let saga = self.number;
            cx.undo(|step: &u32| NewJob::new(&Undo { saga, step: *step }))
                .memo(&format!("step {step}"), || Ok(step))?;
        }
        if self.fails {
            return Err("it fails by design".into());
        }
        cx.line(&line("end", cx));
        Ok(())
    }
}

impl Job for Undo {
    const NAME: &'static str = "chaos_undo";
    type State = Log;
    type Output = ();

    /// One that is parked would hold up the others for ever.
    fn policy() -> Policy {
        Policy::new().max_crashes(100)
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.line(&line("start", cx));
        cx.line(&line("end", cx));
        Ok(())
    }
}

/// Enqueues flows until there are so many jobs of them, each in a transaction or job by job.
pub fn enqueue(conn: &mut DbConnection, n: u32, killers: u32) -> Result<(), Error> {
    let mut made = 0;
    while made < n {
        let size = fastrand::usize(2..=6);
        let links = draw(size, killers, fastrand::bool());
        if links[0].of.is_some() {
            conn.transaction(|conn| enqueue_links(conn, &links))?;
        } else {
            enqueue_links(conn, &links)?;
        }
        made += size as u32;
    }
    Ok(())
}

fn enqueue_links(conn: &mut DbConnection, links: &[Link]) -> Result<(), Error> {
    let mut ids: Vec<JobId> = Vec::new();
    for link in links {
        let mut job = NewJob::new(link)?.priority(fastrand::i32(0..3));
        if !link.parents.is_empty() {
            let parents: Vec<JobId> = link.parents.iter().map(|parent| ids[*parent]).collect();
            job = job.after(parents).when(match link.when {
                When::Success => On::Success,
                When::Failure => On::Failure,
                When::Finish => On::Finish,
            });
        }
        ids.push(job.enqueue(conn)?.id);
    }
    Ok(())
}

/// Chains, fans out and fans in.
fn draw(size: usize, killers: u32, whole: bool) -> Vec<Link> {
    let flow = fastrand::u64(..1 << 40);
    let shape = fastrand::u32(..3);
    let link = |place: usize| {
        let parents = match shape {
            _ if place == 0 => Vec::new(),
            0 => vec![place - 1],
            1 if place + 1 < size => vec![0],
            1 => (place.min(1)..place).collect(),
            _ => (0..place).filter(|_| fastrand::bool()).collect(),
        };
        let kind = match fastrand::u32(..1000) {
            n if n < killers => Kind::Aborts,
            0..150 => Kind::Fails,
            150..200 => Kind::Panics,
            _ => Kind::Short,
        };
        Link {
            flow,
            place,
            of: whole.then_some(size),
            parents,
            when: [When::Success, When::Success, When::Failure, When::Finish][fastrand::usize(..4)],
            work: Work {
                key: 1,
                kind,
                millis: fastrand::u64(..20),
            },
        }
    };
    (0..size).map(link).collect()
}

pub fn enqueue_sagas(conn: &mut DbConnection, n: u32, _killers: u32) -> Result<(), Error> {
    let sagas = (0..n).map(|_| {
        NewJob::new(&Saga {
            number: fastrand::u64(..1 << 40),
            steps: fastrand::u32(1..5),
            fails: fastrand::bool(),
        })
    });
    windlass::enqueue_all(conn, sagas.collect::<Result<Vec<NewJob>, Error>>()?).map(drop)
}

/// The outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Finished,
    Failed,
    /// Parked or unknown: not by its own error.
    Crashed,
    Discarded,
    Open,
}

struct Ended<T> {
    id: i64,
    job: T,
    end: End,
    claim: i64,
}

fn ended<T: serde::de::DeserializeOwned>(place: &Place, class: &str) -> Result<Vec<Ended<T>>> {
    let rows = place.texts(&format!(
        "SELECT CAST(j.id AS text) || ' ' || CAST(coalesce(j.last_claim_id, 0) AS text) || ' ' || CASE \
           WHEN EXISTS (SELECT 1 FROM windlass_attempts a WHERE a.job_id = j.id AND a.outcome = 'discarded') THEN 'discarded' \
           WHEN j.finished_at IS NOT NULL THEN 'finished' \
           ELSE coalesce((SELECT CASE WHEN f.error LIKE '%\"crashed\"%' THEN 'crashed' ELSE 'failed' END \
             FROM solid_queue_failed_executions f WHERE f.job_id = j.id), 'open') END \
         || ' ' || j.arguments AS t FROM solid_queue_jobs j WHERE j.class_name = '{class}'"
    ))?;
    let parse = |row: &String| -> Result<Ended<T>> {
        let mut parts = row.splitn(4, ' ');
        let mut part = || parts.next().unwrap_or_default();
        let (id, claim) = (part().parse()?, part().parse()?);
        let end = match part() {
            "finished" => End::Finished,
            "failed" => End::Failed,
            "crashed" => End::Crashed,
            "discarded" => End::Discarded,
            _ => End::Open,
        };
        let job = serde_json::from_str(part())?;
        Ok(Ended {
            id,
            job,
            end,
            claim,
        })
    };
    rows.iter().map(parse).collect()
}

/// At which line of the log of effects a job first started, first failed, and ended under a claim.
#[derive(Default)]
struct Lines {
    first: HashMap<(i64, char), usize>,
    ends: HashMap<(i64, i64), usize>,
}

impl Lines {
    fn read(place: &Place, jobs: &HashSet<i64>) -> Result<Self> {
        let mut lines = Lines::default();
        for (number, line) in std::fs::read_to_string(place.effects())?
            .lines()
            .enumerate()
        {
            let mut parts = line.split(' ');
            let mut part = || parts.next().unwrap_or_default();
            let (what, job, claim) = (part(), part().parse()?, part());
            if jobs.contains(&job) {
                let kind = what.chars().next().unwrap_or_default();
                lines.first.entry((job, kind)).or_insert(number);
                if what == "end" {
                    lines.ends.insert((job, claim.parse()?), number);
                }
            }
        }
        Ok(lines)
    }

    /// Returns true if the job ended before this line.
    fn ended_before<T>(&self, job: &Ended<T>, line: usize) -> bool {
        let end = match job.end {
            End::Finished => self.ends.get(&(job.id, job.claim)),
            End::Failed => self.first.get(&(job.id, 'f')),
            End::Open => return false,
            End::Crashed | End::Discarded => return true,
        };
        end.is_some_and(|end| *end < line)
    }
}

/// Checks what must hold when everything has stopped. Jobs may be open only if the queues are not `drained`.
pub fn check(place: &Place, drained: bool, violations: &mut Violations) -> Result<()> {
    let links: Vec<Ended<Link>> = ended(place, Link::NAME)?;
    let sagas: Vec<Ended<Saga>> = ended(place, Saga::NAME)?;
    let undos: Vec<Ended<Undo>> = ended(place, Undo::NAME)?;
    let ids = links.iter().map(|link| link.id);
    let ids = ids.chain(undos.iter().map(|undo| undo.id)).collect();
    let lines = Lines::read(place, &ids)?;
    let mut flows: BTreeMap<u64, BTreeMap<usize, Ended<Link>>> = BTreeMap::new();
    for link in links {
        let flow = flows.entry(link.job.flow).or_default();
        flow.insert(link.job.place, link);
    }
    for flow in flows.values() {
        let size = flow.values().next().and_then(|link| link.job.of);
        if size.is_some_and(|size| size != flow.len()) {
            let ids: Vec<i64> = flow.values().map(|link| link.id).collect();
            violations.add(
                "I17",
                format!("of {size:?} jobs of a flow are left: {ids:?}"),
            );
            continue;
        }
        for link in flow.values() {
            if drained || link.end != End::Open {
                check_link(flow, link, &lines, violations);
            }
        }
    }
    let mut by_saga: HashMap<u64, BTreeMap<u32, Ended<Undo>>> = HashMap::new();
    for undo in undos {
        let of = by_saga.entry(undo.job.saga).or_default();
        if let Some(twice) = of.insert(undo.job.step, undo) {
            violations.add("I18", format!("job {} undoes a step once more", twice.id));
        }
    }
    for saga in &sagas {
        let undos = by_saga.remove(&saga.job.number).unwrap_or_default();
        if drained {
            check_saga(saga, &undos, &lines, violations);
        }
    }
    Ok(())
}

fn check_link(
    flow: &BTreeMap<usize, Ended<Link>>,
    link: &Ended<Link>,
    lines: &Lines,
    violations: &mut Violations,
) {
    let parents = link.job.parents.iter().map(|parent| flow.get(parent));
    let Some(parents): Option<Vec<&Ended<Link>>> = parents.collect() else {
        let lost = format!(
            "job {} has no parents {:?} any more",
            link.id, link.job.parents
        );
        return violations.add("I17", lost);
    };
    let failed = parents
        .iter()
        .any(|parent| !matches!(parent.end, End::Finished | End::Open));
    let runs = match link.job.when {
        _ if parents.is_empty() => true,
        When::Success => !failed,
        When::Failure => failed,
        When::Finish => true,
    };
    let start = lines.first.get(&(link.id, 's'));
    let fits = match link.end {
        End::Open => false,
        End::Discarded => !runs && start.is_none(),
        _ => runs,
    };
    let outcomes: Vec<(i64, End)> = parents
        .iter()
        .map(|parent| (parent.id, parent.end))
        .collect();
    if !fits {
        let (id, end, when) = (link.id, link.end, link.job.when);
        let wrong = format!("job {id}, for {when:?}, is {end:?} after {outcomes:?}");
        violations.add("I17", wrong);
    }
    if let Some(start) = start {
        for early in parents.iter().filter(|p| !lines.ended_before(p, *start)) {
            let early = format!("job {} started before the end of job {}", link.id, early.id);
            violations.add("I17", early);
        }
    }
}

fn check_saga(
    saga: &Ended<Saga>,
    undos: &BTreeMap<u32, Ended<Undo>>,
    lines: &Lines,
    violations: &mut Violations,
) {
    let all = (0..saga.job.steps).all(|step| undos.contains_key(&step));
    // One that crashed, or failed before its last step, has done the first ones.
    let is_start = undos.keys().copied().eq(0..undos.len() as u32);
    let fits = match saga.end {
        End::Finished => undos.is_empty() && !saga.job.fails,
        End::Failed if saga.job.fails => all,
        End::Failed | End::Crashed => is_start,
        End::Discarded | End::Open => false,
    };
    let undone = undos.values().all(|undo| undo.end == End::Finished);
    if !fits || !undone {
        let steps: Vec<(&u32, End)> = undos.iter().map(|(step, undo)| (step, undo.end)).collect();
        let (id, end, of) = (saga.id, saga.end, saga.job.steps);
        violations.add(
            "I18",
            format!("job {id} of {of} steps is {end:?}, undone: {steps:?}"),
        );
    }
    for (older, newer) in undos.values().zip(undos.values().skip(1)) {
        let start = lines.first.get(&(older.id, 's'));
        if start.is_some_and(|start| !lines.ended_before(newer, *start)) {
            let early = format!("job {} undid before job {} had", older.id, newer.id);
            violations.add("I18", early);
        }
    }
}
