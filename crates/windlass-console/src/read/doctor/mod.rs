//! Checks of a database and the processes that use it.

pub(crate) mod batches;
pub(crate) mod processes;
pub(crate) mod rates;
pub(crate) mod replication;
pub(crate) mod requests;
pub(crate) mod scope;
pub(crate) mod statistics;
pub(crate) mod tenants;
pub(crate) mod unserved;
pub(crate) mod waits;

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use crate::read::doctor::{
    batches as doctor_batches, processes as doctor_processes, rates as doctor_rates,
    requests as doctor_requests, tenants as doctor_tenants, waits as doctor_waits,
};
use crate::read::sql::doctor::{self, Inconsistent, MigrationDifference, Rule};
use crate::read::sql::{keys, totals};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;
use windlass::internal::db::own;
use windlass::internal::db::schema::compare;
use windlass::internal::db::schema::plan::PlanStep;
use windlass::internal::db::table::run_time::{self, limits as run_time_limits};
use windlass::internal::db::table::{semaphores, web};
use windlass::internal::error::ErrorContext;
use windlass::{AsConn, Conn, Error, Result};

/// A larger log is not being checkpointed, because a connection has been reading for a long time.
const LARGE_WAL: u64 = 256 * 1024 * 1024;

/// Checks the schema, the processes, the database, and that each job is in exactly one state.
///
/// It only reads; the time grows with the size of the tables.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass_console::Verdict;
/// let findings = windlass_console::doctor(&mut conn)?;
/// assert!(findings.iter().all(|finding| finding.verdict == Verdict::Fine));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer. A check that cannot run is reported as a warning.
pub fn doctor<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<Finding>> {
    check(conn, CheckScope::All)
}

/// Does what [`doctor`] does.
pub(crate) fn check<C: AsConn + ?Sized>(conn: &mut C, scope: CheckScope) -> Result<Vec<Finding>> {
    let mut conn = own(conn);
    let version = doctor::version(&mut conn).during("look at the database")?;
    let mut findings = vec![database(&version)];
    findings.extend(pooler(&mut conn));
    findings.extend(write_ahead_log(&version));
    #[cfg(feature = "sqlite")]
    findings.extend(write_lock(&mut conn, &version, scope));
    findings.extend(replication::check(&mut conn, scope)?);
    let schema = match schema(&mut conn) {
        Err(Error::Schema(error)) => finding("schema", Verdict::Problem, error.to_string()),
        schema => schema?,
    };
    let is_whole = schema.verdict != Verdict::Problem;
    findings.push(schema);
    // Without its tables there is nothing more to check.
    if is_whole {
        for rule in Rule::ALL {
            findings.push(state_finding(&mut conn, rule, scope)?);
        }
        findings.extend(doctor_batches::check(&mut conn, scope)?);
        findings.extend(doctor_waits::check(&mut conn, scope)?);
        findings.extend(doctor_requests::check(&mut conn, scope)?);
        findings.push(limits(&mut conn, scope)?);
        findings.extend(doctor_rates::check(&mut conn, scope)?);
        findings.extend(doctor_tenants::check(&mut conn, scope)?);
        findings.extend(set_at_run_time(&mut conn, scope)?);
        findings.extend(expiring_tokens(&mut conn, scope)?);
        findings.extend(doctor_processes::check(&mut conn, scope)?);
        findings.push(audit(&mut conn)?);
        findings.extend(open_functions(&mut conn, scope)?);
    }
    Ok(findings)
}

fn database(version: &doctor::DatabaseVersion) -> Finding {
    let name = &version.version;
    if (1..140_000).contains(&version.number) {
        let says = format!("{name}: Windlass needs Postgres 14 or later; update the server");
        return finding("database", Verdict::Warning, says);
    }
    // A database in memory has no other mode, and needs none.
    let is_right = ["server", "wal", "memory"].contains(&version.journal.as_str());
    if !is_right && !has_wal_header(&version.file) {
        let journal = &version.journal;
        let says = format!(
            "{name}: the journal mode is `{journal}`, with which readers and writers wait for each \
             other; something changed it: set `journal_mode` to WAL"
        );
        return finding("database", Verdict::Problem, says);
    }
    finding("database", Verdict::Fine, name)
}

/// Returns whether a SQLite file is in WAL mode according to its header. A file that this process may only read, in a
/// directory where it may not write either, is opened as one that never changes, which has no journal.
fn has_wal_header(file: &str) -> bool {
    let mut header = [0; 20];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[18..] == [2, 2]
}

/// Returns whether a pooler gives out the sessions by transaction, if it does.
fn pooler(conn: &mut Conn<'_>) -> Option<Finding> {
    let says =
        "a pooler in transaction mode stands before the server: nothing is kept in its sessions";
    conn.has_no_session()
        .then(|| finding("pooler", Verdict::Fine, says))
}

fn write_ahead_log(version: &doctor::DatabaseVersion) -> Option<Finding> {
    if version.file.is_empty() {
        return None;
    }
    let log = PathBuf::from(format!("{}-wal", version.file));
    let bytes = std::fs::metadata(log).map_or(0, |file| file.len());
    let megabytes = bytes / (1024 * 1024);
    Some(if bytes > LARGE_WAL {
        let says = format!(
            "the write-ahead log has {megabytes} MiB and is not getting shorter: some connection has \
             been reading for long; end it"
        );
        finding("log", Verdict::Warning, says)
    } else {
        let says = format!("the write-ahead log has {megabytes} MiB");
        finding("log", Verdict::Fine, says)
    })
}

/// The longest time for which the write lock of a SQLite file may be held.
#[cfg(feature = "sqlite")]
const LONGEST_WRITE: Duration = Duration::from_secs(1);

/// Returns what holds the write lock for long. Within a transaction, that may be this connection itself.
#[cfg(feature = "sqlite")]
fn write_lock(
    conn: &mut Conn<'_>,
    version: &doctor::DatabaseVersion,
    scope: CheckScope,
) -> Option<Finding> {
    use crate::read::sql::doctor::write_lock::{HeldFor, held};
    if version.file.is_empty() || scope != CheckScope::All || conn.is_in_transaction() {
        return None;
    }
    let holder = match held(&version.file, LONGEST_WRITE)? {
        HeldFor::Turn(Some(pid)) => format!("process {pid} has had its turn to write"),
        HeldFor::Turn(None) => "a process has had its turn to write".to_owned(),
        HeldFor::Lock => "a program that takes no turns has held the write lock".to_owned(),
    };
    let says = format!(
        "{holder} for more than {LONGEST_WRITE:?}, and all that write wait for it: keep transactions \
         short, and end a process that was stopped in the middle of one"
    );
    Some(finding("writes", Verdict::Warning, says))
}

fn schema(conn: &mut Conn<'_>) -> Result<Finding> {
    let MigrationDifference { lacking, unknown } = doctor::migrations(conn)?;
    let problem = |says: String| Ok(finding("schema", Verdict::Problem, says));
    if !lacking.is_empty() {
        let lacking = lacking.join(", ");
        return problem(format!("not migrated: {lacking}; run `windlass migrate`"));
    }
    let missing = compare::missing(conn, compare::MissingParts::Anything)?;
    if !missing.is_empty() {
        return problem(format!(
            "{}; something else changed the tables: run `windlass migrate`",
            missing.join("; ")
        ));
    }
    if !unknown.is_empty() {
        let says = format!("newer than this program: {}", unknown.join(", "));
        return Ok(finding("schema", Verdict::Fine, says));
    }
    Ok(finding(
        "schema",
        Verdict::Fine,
        "all tables, columns and indexes are there",
    ))
}

fn limits(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Finding> {
    let checked = match scope {
        CheckScope::All => semaphores::check(conn),
        CheckScope::AllInTime => semaphores::check(conn),
        CheckScope::Newest => keys::above_limit(conn),
    };
    Ok(match checked.during("check the concurrency limits") {
        Ok(wrong) if wrong.is_empty() => finding(
            "limits",
            Verdict::Fine,
            "the slots of every concurrency key match its rows",
        ),
        Ok(wrong) => {
            let more = wrong.len().saturating_sub(doctor::FIRST);
            let mut says = wrong[..wrong.len() - more].join("; ");
            if more > 0 {
                says.push_str(&format!("; and {more} more"));
            }
            finding("limits", Verdict::Warning, says)
        }
        Err(error) => scope.unchecked("limits", error)?,
    })
}

/// Returns what operators have set, if anything: it may be the reason why jobs wait.
fn set_at_run_time(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Option<Finding>> {
    let action = "look at what operators have set";
    let classes = scope.or_nothing(run_time::paused(conn).during(action))?;
    let limits = scope.or_nothing(run_time_limits::list_limits(conn).during(action))?;
    let names = |mut all: Vec<String>| {
        let more = all.len() > doctor::FIRST;
        all.truncate(doctor::FIRST);
        all.join(", ") + if more { ", .." } else { "" }
    };
    let mut says = Vec::new();
    if !classes.is_empty() {
        let (count, names) = (classes.len(), names(classes));
        says.push(format!(
            "{count} classes are paused: {names} (`windlass classes list`)"
        ));
    }
    if !limits.is_empty() {
        let count = limits.len();
        let limits = limits.into_iter();
        let names = names(
            limits
                .map(|one| format!("{} to {}", one.key, one.values()))
                .collect(),
        );
        says.push(format!(
            "{count} limits are set: {names} (`windlass limits list`)"
        ));
    }
    Ok((!says.is_empty()).then(|| finding("operators", Verdict::Fine, says.join("; "))))
}

/// The rows of the audit are protected by triggers, without which no process starts. Those of Postgres can
/// be disabled.
fn audit(conn: &mut Conn<'_>) -> Result<Finding> {
    Ok(
        match doctor::disabled_triggers(conn).during("look at the audit")? {
            0 => finding("audit", Verdict::Fine, "its rows can only be added"),
            _ => finding(
                "audit",
                Verdict::Warning,
                "a trigger of `windlass_audit` is disabled, so its rows can be changed and deleted: \
             `ALTER TABLE windlass_audit ENABLE TRIGGER USER` enables it",
            ),
        },
    )
}

fn inconsistent(
    conn: &mut Conn<'_>,
    rule: Rule,
    scope: CheckScope,
) -> diesel::QueryResult<Inconsistent> {
    match scope {
        CheckScope::All => doctor::inconsistent(conn, rule),
        CheckScope::AllInTime => doctor::inconsistent(conn, rule),
        CheckScope::Newest => totals::inconsistent(conn, rule),
    }
}

/// Tokens that expire within this time are reported.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reports functions of Postgres that a role could misuse, or that every role may call: a backup that is restored without
/// rights leaves them so.
fn open_functions(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Option<Finding>> {
    let open = scope.or_nothing(compare::open_functions(conn))?;
    let more = open.len().saturating_sub(doctor::FIRST);
    let mut faults: Vec<String> = open.iter().filter_map(PlanStep::says).collect();
    faults.truncate(doctor::FIRST);
    if more > 0 {
        faults.push(format!("and {more} more"));
    }
    let says = format!(
        "{}: a role could get the rights of the owner, or enqueue without being allowed to; was a backup restored \
         without its rights? Run `windlass migrate`, which sets them again",
        faults.join("; ")
    );
    Ok((!open.is_empty()).then(|| finding("rights", Verdict::Warning, says)))
}

/// Reports the tokens of the web pages that expire soon: what uses them would be refused.
fn expiring_tokens(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Option<Finding>> {
    let tokens = web::expiring(conn, SOON).during("look at the tokens");
    let tokens = scope.or_nothing(tokens)?;
    let names = tokens.iter().map(|token| {
        let days = (token.seconds / 86_400.0).ceil();
        format!("`{}` in {days:.0} days", token.name)
    });
    let names: Vec<String> = names.collect();
    let says = format!(
        "tokens of the web pages expire: {}; make new ones (`windlass web tokens add`)",
        names.join(", ")
    );
    Ok((!names.is_empty()).then(|| finding("tokens", Verdict::Warning, says)))
}

fn state_finding(conn: &mut Conn<'_>, rule: Rule, scope: CheckScope) -> Result<Finding> {
    let (fine, wrong) = match rule {
        Rule::IsSomewhere => (
            "every unfinished job has a state",
            "unfinished jobs have no state and will never run; set their `finished_at`, delete them, or \
             insert a ready execution",
        ),
        Rule::IsInOneState => (
            "no job is in two states",
            "jobs are in two states and may run twice; delete all but one of their executions",
        ),
        Rule::HasLeft => (
            "no finished job has an execution left",
            "finished jobs still have an execution and may run again; delete it",
        ),
        Rule::IsThere => (
            "every execution has its job",
            "executions have no job; delete them",
        ),
        Rule::IsHeld => (
            "every claim has its process",
            "claims belong to no process: within the alive threshold, a supervisor of Windlass recovers those \
             that Windlass has started, and Solid Queue's supervisor fails those of Rails; delete any others \
             and insert ready executions",
        ),
    };
    let check = rule.check();
    let found = inconsistent(conn, rule, scope);
    Ok(match found.during("compare the tables") {
        Ok(Inconsistent { count: 0, .. }) => finding(check, Verdict::Fine, fine),
        Ok(Inconsistent { count, jobs }) => Finding {
            jobs,
            ..finding(check, Verdict::Problem, format!("{count} {wrong}"))
        },
        Err(error) => scope.unchecked(check, error)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_only_read_is_judged_by_its_header() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let version = doctor::DatabaseVersion {
            version: "SQLite 3".to_owned(),
            number: 0,
            journal: "delete".to_owned(),
            file: file.path().display().to_string(),
        };
        assert_eq!(database(&version).verdict, Verdict::Problem);
        let header = [b"SQLite format 3\0", &[16, 0, 2, 2][..]].concat();
        std::fs::write(file.path(), header).unwrap();
        assert_eq!(database(&version).verdict, Verdict::Fine);
    }
}
