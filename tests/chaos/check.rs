//! The invariants, checked from the database, from an audit that the database
//! keeps itself, and from the log of effects.

use crate::Result;
use crate::faults::Faults;
use crate::gates::RAISED;
use crate::jobs::SLOTS;
use crate::place::Place;
use crate::{batches, flows, gates, rates, shares, waits};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The violated invariants, and the first few cases of each.
#[derive(Debug, Default)]
pub struct Violations(BTreeMap<&'static str, Vec<String>>);

/// The invariants that are checked, in words.
pub const INVARIANTS: [(&str, &str); 21] = [
    ("I1", "every job is in exactly one place"),
    ("I2", "every claim belongs to a registered process"),
    (
        "I3",
        "a claim is given once and ends once; a job finishes once",
    ),
    ("I4", "no acknowledged job is lost"),
    ("I5", "an at-most-once job starts at most once"),
    ("I6", "a recurring task fires once per tick"),
    (
        "I7",
        "no more jobs of a concurrency key are under way than may be",
    ),
    ("I8", "crashes are counted, and a job that kills is parked"),
    ("I11", "when the faults end, the queues drain"),
    (
        "I12",
        "what is finished has done its work, and nothing runs again without need",
    ),
    ("I14", "processes stop in order and leave nothing behind"),
    (
        "I15",
        "a job that ends because it was interrupted has not failed",
    ),
    (
        "I16",
        "batches end, and what follows them is neither lost nor of another outcome",
    ),
    (
        "I17",
        "a job of a flow runs after those that it waits for, if they ended as it wants",
    ),
    (
        "I18",
        "the done steps of a job that fails are undone once, the newest first",
    ),
    ("I19", "who waits for an event gets it once it is there"),
    (
        "I20",
        "a quota admits as many as it says, and a refused job is not there",
    ),
    (
        "I21",
        "full keys end what does not wait, hold up no others, and leave nothing",
    ),
    (
        "I22",
        "no job takes a slot beyond the limits that are in force",
    ),
    (
        "I23",
        "in no window do more jobs of a key start than its rate allows",
    ),
    (
        "I24",
        "between any two promotions, tenants that wait have got their shares",
    ),
];

impl Violations {
    pub fn add(&mut self, invariant: &'static str, what: String) {
        self.0.entry(invariant).or_default().push(what);
    }

    pub fn of(&self, invariant: &str) -> &[String] {
        self.0.get(invariant).map_or(&[], Vec::as_slice)
    }

    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Triggers that write down, in the transactions themselves, every claim that
/// is given or ends and every finish.
pub fn install_audit(place: &Place) -> Result<()> {
    if place.is_postgres() {
        place.execute(&[
            "CREATE TABLE chaos_steps (job_id bigint)",
            "CREATE INDEX chaos_steps_jobs ON chaos_steps (job_id)",
            "CREATE TABLE chaos_audit (n bigserial, what text, claim_id bigint, job_id bigint)",
            "CREATE INDEX chaos_audit_claims ON chaos_audit (claim_id, what)",
            "CREATE FUNCTION chaos_given() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) VALUES ('given', NEW.id, NEW.job_id); RETURN NULL; END $$",
            "CREATE FUNCTION chaos_ended() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) VALUES ('ended', OLD.id, OLD.job_id); RETURN NULL; END $$",
            "CREATE FUNCTION chaos_finished() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) VALUES ('finished', NEW.last_claim_id, NEW.id); RETURN NULL; END $$",
            "CREATE FUNCTION chaos_homeless() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) SELECT 'homeless', NEW.id, NEW.job_id \
             WHERE NOT EXISTS (SELECT 1 FROM solid_queue_processes p WHERE p.id = NEW.process_id); RETURN NULL; END $$",
            "CREATE FUNCTION chaos_abandoned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) SELECT 'abandoned', c.id, c.job_id \
             FROM solid_queue_claimed_executions c WHERE c.process_id = OLD.id; RETURN NULL; END $$",
            "CREATE TRIGGER chaos_homeless AFTER INSERT ON solid_queue_claimed_executions FOR EACH ROW EXECUTE FUNCTION chaos_homeless()",
            "CREATE TRIGGER chaos_abandoned AFTER DELETE ON solid_queue_processes FOR EACH ROW EXECUTE FUNCTION chaos_abandoned()",
            "CREATE TRIGGER chaos_given AFTER INSERT ON solid_queue_claimed_executions FOR EACH ROW EXECUTE FUNCTION chaos_given()",
            "CREATE TRIGGER chaos_ended AFTER DELETE ON solid_queue_claimed_executions FOR EACH ROW EXECUTE FUNCTION chaos_ended()",
            "CREATE TRIGGER chaos_finished AFTER UPDATE OF finished_at ON solid_queue_jobs FOR EACH ROW \
             WHEN (NEW.finished_at IS NOT NULL) EXECUTE FUNCTION chaos_finished()",
        ])
    } else {
        if std::env::var("WINDLASS_MUTANT").as_deref() == Ok("rowid_reuse") {
            forget_autoincrement(place)?;
        }
        place.execute(&[
            "CREATE TABLE chaos_steps (job_id bigint)",
            "CREATE INDEX chaos_steps_jobs ON chaos_steps (job_id)",
            "CREATE TABLE chaos_audit (n integer PRIMARY KEY AUTOINCREMENT, what text, claim_id bigint, job_id bigint)",
            "CREATE INDEX chaos_audit_claims ON chaos_audit (claim_id, what)",
            "CREATE TRIGGER chaos_homeless AFTER INSERT ON solid_queue_claimed_executions BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) SELECT 'homeless', NEW.id, NEW.job_id \
             WHERE NOT EXISTS (SELECT 1 FROM solid_queue_processes p WHERE p.id = NEW.process_id); END",
            "CREATE TRIGGER chaos_abandoned AFTER DELETE ON solid_queue_processes BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) SELECT 'abandoned', c.id, c.job_id \
             FROM solid_queue_claimed_executions c WHERE c.process_id = OLD.id; END",
            "CREATE TRIGGER chaos_given AFTER INSERT ON solid_queue_claimed_executions BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) VALUES ('given', NEW.id, NEW.job_id); END",
            "CREATE TRIGGER chaos_ended AFTER DELETE ON solid_queue_claimed_executions BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) VALUES ('ended', OLD.id, OLD.job_id); END",
            "CREATE TRIGGER chaos_finished AFTER UPDATE OF finished_at ON solid_queue_jobs WHEN NEW.finished_at IS NOT NULL BEGIN \
             INSERT INTO chaos_audit (what, claim_id, job_id) VALUES ('finished', NEW.last_claim_id, NEW.id); END",
        ])
    }
}

/// The deliberate fault `rowid_reuse`: the claims get plain row ids, and the
/// look at the tables does not notice.
fn forget_autoincrement(place: &Place) -> Result<()> {
    const CLAIMS: &str = "solid_queue_claimed_executions";
    let mut statements = place.texts(&format!(
        "SELECT sql AS t FROM sqlite_schema WHERE tbl_name = '{CLAIMS}' AND sql IS NOT NULL ORDER BY type DESC"
    ))?;
    statements.insert(0, format!("DROP TABLE {CLAIMS}"));
    for statement in &statements {
        place.execute(&[&statement.replace("AUTOINCREMENT", "/* AUTOINCREMENT */")])?;
    }
    Ok(())
}

/// Counts the jobs that stand in no place or in several.
fn places(of: &str) -> String {
    format!(
        "SELECT count(*) AS n FROM (SELECT j.id, \
     (SELECT count(*) FROM solid_queue_ready_executions e WHERE e.job_id = j.id) \
     + (SELECT count(*) FROM solid_queue_scheduled_executions e WHERE e.job_id = j.id) \
     + (SELECT count(*) FROM solid_queue_claimed_executions e WHERE e.job_id = j.id) \
     + (SELECT count(*) FROM solid_queue_blocked_executions e WHERE e.job_id = j.id) \
     + (SELECT count(*) FROM solid_queue_failed_executions e WHERE e.job_id = j.id) \
     + (CASE WHEN j.finished_at IS NULL THEN 0 ELSE 1 END) AS places FROM solid_queue_jobs j {of}) AS p WHERE places <> 1"
    )
}

/// The newest jobs: nearly all that still move.
const NEWEST: &str = "WHERE j.id > (SELECT max(id) FROM solid_queue_jobs) - 20000";

const ORPHANS: &str = "SELECT count(*) AS n FROM solid_queue_claimed_executions c \
     WHERE NOT EXISTS (SELECT 1 FROM solid_queue_processes p WHERE p.id = c.process_id)";

/// Checks what must hold at every moment, as one statement sees it.
pub fn while_running(place: &Place, violations: &mut Violations) {
    // All jobs are looked at in the end: that is dear when there are many.
    if fastrand::u32(..10) == 0
        && let Ok(n @ 1..) = place.count(&places(NEWEST))
    {
        violations.add(
            "I1",
            format!("{n} jobs in no place or in several, while running"),
        );
    }
    if let Ok(n @ 1..) = place.count(ORPHANS) {
        violations.add("I2", format!("{n} claims without a process, while running"));
    }
    let crowded = format!(
        "SELECT count(*) AS n FROM (SELECT concurrency_key FROM ( \
           SELECT concurrency_key FROM solid_queue_ready_executions WHERE concurrency_key IS NOT NULL UNION ALL \
           SELECT concurrency_key FROM solid_queue_claimed_executions WHERE concurrency_key IS NOT NULL) AS held \
         WHERE concurrency_key <> '{RAISED}' GROUP BY concurrency_key HAVING count(*) > {SLOTS}) AS crowded"
    );
    if let Ok(n @ 1..) = place.count(&crowded) {
        violations.add("I7", format!("{n} concurrency keys above their limit"));
    }
}

/// Checks what must hold when everything has stopped.
pub fn at_the_end(
    place: &Place,
    drained: bool,
    daily: u32,
    faults: &Faults<'_>,
    violations: &mut Violations,
) -> Result<()> {
    if !drained {
        violations.add("I11", "jobs were left when the time was up".to_owned());
    }
    let everywhere = places("");
    let counts = [
        ("I1", everywhere.as_str(), "jobs in no place or in several"),
        (
            "I2",
            "SELECT count(*) AS n FROM chaos_audit WHERE what = 'homeless'",
            "claims given to processes that were not registered",
        ),
        (
            "I2",
            "SELECT count(*) AS n FROM chaos_audit WHERE what = 'abandoned'",
            "claims left behind by the pruning of their process",
        ),
        ("I2", ORPHANS, "claims without a process"),
        (
            "I3",
            "SELECT count(*) AS n FROM (SELECT claim_id FROM chaos_audit WHERE what = 'given' GROUP BY claim_id HAVING count(*) > 1) AS t",
            "claim ids given twice",
        ),
        (
            "I3",
            "SELECT count(*) AS n FROM (SELECT claim_id FROM chaos_audit WHERE what = 'ended' GROUP BY claim_id HAVING count(*) > 1) AS t",
            "claims ended twice",
        ),
        (
            "I3",
            "SELECT count(*) AS n FROM (SELECT job_id FROM chaos_audit WHERE what = 'finished' GROUP BY job_id HAVING count(*) > 1) AS t",
            "jobs finished twice",
        ),
        (
            "I3",
            "SELECT count(*) AS n FROM chaos_audit f WHERE f.what = 'finished' AND f.claim_id IS NOT NULL AND NOT EXISTS \
                (SELECT 1 FROM chaos_audit e WHERE e.what = 'ended' AND e.claim_id = f.claim_id AND e.job_id = f.job_id \
                 AND abs(e.n - f.n) < 3000)",
            "jobs finished by a claim that had ended before",
        ),
        (
            "I8",
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE crash_count > coalesce(max_crashes, 3) + 1",
            "jobs that crashed more often than they may",
        ),
        (
            "I8",
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE arguments LIKE '%Aborts%' AND finished_at IS NOT NULL \
             AND last_claim_id IS NOT NULL",
            "jobs that kill, and yet finished",
        ),
        (
            "I15",
            "SELECT count(*) AS n FROM solid_queue_failed_executions WHERE error LIKE '%\"lost\"%' \
             OR error LIKE '%\"stopping\"%' OR error LIKE '%\"cancelled\"%'",
            "jobs failed that had only been interrupted",
        ),
        (
            "I14",
            "SELECT count(*) AS n FROM solid_queue_claimed_executions",
            "claims left",
        ),
    ];
    for (invariant, query, what) in counts {
        let n = place.count(query)?;
        if n > 0 {
            violations.add(invariant, format!("{n} {what}"));
        }
    }
    left_processes(place, faults, violations)?;
    acknowledged_jobs(place, violations)?;
    batches::check(place, violations)?;
    flows::check(place, drained, violations)?;
    waits::check(place, drained, violations)?;
    gates::check(place, drained, daily, violations)?;
    rates::check(place, violations)?;
    shares::check(place, violations)?;
    effects(place, faults, violations)
}

/// A supervisor that was killed leaves its row to the next one's watch, so
/// only living programs must have taken theirs away.
fn left_processes(place: &Place, faults: &Faults<'_>, violations: &mut Violations) -> Result<()> {
    let left = place.count("SELECT count(*) AS n FROM solid_queue_processes")?;
    if left > 0 && faults.are_graceful() {
        violations.add("I14", format!("{left} processes left"));
    }
    Ok(())
}

fn acknowledged_jobs(place: &Place, violations: &mut Violations) -> Result<()> {
    let there: HashMap<String, String> = place
        .texts("SELECT CAST(id AS text) || ' ' || coalesce(idempotency_key, '') AS t FROM solid_queue_jobs")?
        .into_iter()
        .filter_map(|text| text.split_once(' ').map(|(id, key)| (id.to_owned(), key.to_owned())))
        .collect();
    for line in std::fs::read_to_string(place.acknowledged())?.lines() {
        let Some((id, key)) = line.split_once(' ') else {
            continue;
        };
        match there.get(id) {
            Some(found) if found == key => {}
            found => violations.add("I4", format!("job {id} with key {key} is {found:?} now")),
        }
    }
    Ok(())
}

fn effects(place: &Place, faults: &Faults<'_>, violations: &mut Violations) -> Result<()> {
    let mut starts: HashMap<i64, Vec<i64>> = HashMap::new();
    let mut runners: HashMap<i64, Vec<String>> = HashMap::new();
    let mut ends: HashSet<(i64, i64)> = HashSet::new();
    let mut ticks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in std::fs::read_to_string(place.effects())?.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        if parts[0] == "tick" {
            ticks
                .entry(parts[2].to_owned())
                .or_default()
                .insert(parts[1].to_owned());
            continue;
        }
        let (what, job, claim) = (parts[0], parts[1].parse()?, parts[2].parse()?);
        match what {
            "start" => {
                starts.entry(job).or_default().push(claim);
                runners.entry(job).or_default().push(parts[3].to_owned());
            }
            "end" => drop(ends.insert((job, claim))),
            "odd" => violations.add("I19", line.to_owned()),
            _ => {}
        }
    }
    for (tick, jobs) in ticks.iter().filter(|(_, jobs)| jobs.len() > 1) {
        violations.add("I6", format!("the tick {tick} was enqueued as {jobs:?}"));
    }
    let ids = |query: &str| -> Result<BTreeSet<i64>> {
        Ok(place
            .texts(query)?
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect())
    };
    let starved = starved(place);
    let once = ids("SELECT CAST(id AS text) AS t FROM solid_queue_jobs WHERE at_most_once")?;
    // By its own policy, a job that failed runs once more.
    let retried =
        ids("SELECT CAST(job_id AS text) AS t FROM windlass_attempts WHERE outcome = 'retried'")?;
    for (job, claims) in &starts {
        if once.contains(job) && claims.len() > 1 {
            violations.add(
                "I5",
                format!("at-most-once job {job} started under the claims {claims:?}"),
            );
        }
        let is_starved = runners[job].iter().any(|pid| starved.contains(pid));
        let allowed = 1 + usize::from(retried.contains(job));
        if faults.are_graceful() && !is_starved && claims.len() > allowed {
            violations.add(
                "I12",
                format!(
                    "job {job} ran {} times, though processes only stopped in order",
                    claims.len()
                ),
            );
        }
        // A run may end unseen at most once a crash: the counted ones, and
        // those since the last success, of which there is at most one.
        let distinct: BTreeSet<&i64> = claims.iter().collect();
        if distinct.len() != claims.len() {
            violations.add(
                "I3",
                format!("job {job} started twice under one claim: {claims:?}"),
            );
        }
    }
    for text in place.texts(
        "SELECT CAST(id AS text) || ' ' || CAST(last_claim_id AS text) AS t FROM solid_queue_jobs WHERE finished_at IS NOT NULL \
         AND last_claim_id IS NOT NULL",
    )? {
        let Some((job, claim)) = text.split_once(' ') else { continue };
        if !ends.contains(&(job.parse()?, claim.parse()?)) {
            violations.add("I12", format!("job {job} is finished by claim {claim}, which did not do its work"));
        }
    }
    Ok(())
}

/// On a machine too busy for heartbeats the living are pruned as well; they say
/// so, and then a second run of their jobs was not without need.
fn starved(place: &Place) -> HashSet<String> {
    let log = std::fs::read_to_string(place.directory.join("log")).unwrap_or_default();
    let lost = log
        .lines()
        .filter(|line| line.contains("lost the registration"));
    let pids = lost.filter_map(|line| line.split(' ').next());
    pids.map(str::to_owned).collect()
}
