//! Completes a schema of Postgres while programs write to it.
//!
//! One advisory lock keeps migrations apart. It is tried repeatedly and never waited for: a session
//! that waits in a statement holds a snapshot, and an index that is built `CONCURRENTLY` waits for
//! that session. Each table is changed in a transaction of its own, which waits for no lock once it
//! has one, so there are no deadlocks. If a process dies in between, the next migration completes
//! the rest.
//!
//! Behind a pooler in transaction mode no lock of a session can be held. Everything is done in one transaction then,
//! and refused if an index would have to be built `CONCURRENTLY`.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::schema::action::{Action, PlanStep};
use crate::db::schema::compare::{Migrated, check, failed, look};
use crate::db::schema::fresh;
use crate::db::schema::plan::SchemaPlan;
use crate::db::schema::postgres_locks::{concurrently, holders, is_locked};
use crate::error::{Doing, Result};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long to wait for other sessions' locks, in all.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait for another migration, which may build large indexes.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The key of the advisory lock, unlikely in other programs: "windlass" in ASCII, cut to 63 bits.
const LOCK: i64 = 0x7769_6e64_6c61_7373;

/// The number of rows from which a table's indexes are built without blocking its writers.
pub(crate) const LARGE: i64 = 1_000;

#[derive(QueryableByName)]
struct Flag {
    #[diesel(sql_type = Bool)]
    it: bool,
}

/// Adds what is missing, while programs write.
pub(crate) fn complete(conn: &mut PgConnection, timeout: Duration) -> Result<Migrated> {
    if Conn::Postgres(conn).is_in_transaction() {
        take_turn(conn, "pg_try_advisory_xact_lock")?;
        return all(conn, timeout).map(Migrated::of);
    }
    if Conn::Postgres(conn).has_no_session() {
        return in_one_transaction(conn, timeout).map(Migrated::of);
    }
    take_turn(conn, "pg_try_advisory_lock")?;
    let done = all(conn, timeout);
    let free = diesel::sql_query("SELECT pg_advisory_unlock($1) AS it")
        .bind::<BigInt, _>(LOCK)
        .execute(conn);
    let done = done?;
    free.doing("release the migration lock")?;
    Ok(Migrated::of(done))
}

fn in_one_transaction(conn: &mut PgConnection, timeout: Duration) -> Result<SchemaPlan> {
    Conn::Postgres(conn).transaction(|conn| {
        let conn = conn.reborrow().postgres()?;
        take_turn(conn, "pg_try_advisory_xact_lock")?;
        let plan = look(&mut Conn::Postgres(conn))?;
        for step in &plan.steps {
            if is_long(conn, step)? {
                let table = step.table.as_deref().unwrap_or_default();
                let reason = format!(
                    "{table} has {LARGE} rows or more, so that an index of it is built CONCURRENTLY, which needs a \
                     session: run `windlass migrate --database URL` with an address that does not lead through the \
                     pooler"
                );
                return Err(failed(step, reason));
            }
        }
        all(conn, timeout)
    })
}

fn take_turn(conn: &mut PgConnection, function: &str) -> Result<()> {
    let deadline = clock::deadline(MIGRATION_TIMEOUT);
    loop {
        let tried = diesel::sql_query(format!("SELECT {function}($1) AS it"))
            .bind::<BigInt, _>(LOCK)
            .get_result::<Flag>(conn);
        if tried.doing("take the migration lock")?.it {
            return Ok(());
        }
        if clock::instant() > deadline {
            let reason = format!(
                "another migration has been running for {} s",
                MIGRATION_TIMEOUT.as_secs()
            );
            return Err(crate::error::Error::Migration {
                version: "lock".to_owned(),
                reason,
            });
        }
        clock::nap(clock::jittered(Duration::from_millis(30)));
    }
}

fn all(conn: &mut PgConnection, timeout: Duration) -> Result<SchemaPlan> {
    let plan = look(&mut Conn::Postgres(conn))?;
    check(&plan)?;
    if plan.is_fresh {
        fresh::run(&mut Conn::Postgres(conn))?;
        return Ok(plan);
    }
    let is_alone = !Conn::Postgres(conn).is_in_transaction();
    let mut later = BTreeSet::new();
    for (place, step) in plan.steps.iter().enumerate() {
        if is_alone && is_long(conn, step)? {
            later.insert(place);
        }
    }
    let (long, brief): (Vec<_>, Vec<_>) = plan
        .steps
        .iter()
        .enumerate()
        .partition(|(place, _)| later.contains(place));
    let brief: Vec<&PlanStep> = brief.into_iter().map(|(_, step)| step).collect();
    let deadline = clock::deadline(timeout);
    let groups = if is_alone {
        groups(&brief)
    } else {
        vec![brief]
    };
    for group in groups {
        at_once(conn, &group, deadline)?;
    }
    for (_, step) in long {
        for act in &step.acts {
            concurrently(conn, act, timeout).map_err(|error| {
                let what = step.what.as_deref().unwrap_or_default();
                let advice = if is_locked(&error) {
                    format!("; {}", holders(conn, &[]))
                } else {
                    String::new()
                };
                failed(step, format!("{what}: {error}{advice}"))
            })?;
        }
    }
    Ok(plan)
}

/// Returns whether the step is an index of a table with many rows.
fn is_long(conn: &mut PgConnection, step: &PlanStep) -> Result<bool> {
    let (Some(table), [Action::Index { .. }]) = (&step.table, &step.acts[..]) else {
        return Ok(false);
    };
    let text = format!(
        "SELECT count(*) >= {LARGE} AS it FROM (SELECT 1 FROM {table} LIMIT {LARGE}) AS few"
    );
    let large = diesel::sql_query(text).get_result::<Flag>(conn);
    Ok(large.doing("look for rows")?.it)
}

/// Groups the steps by table, so that each transaction holds the lock of one table and waits for no
/// other. Versions come last.
fn groups<'p>(steps: &[&'p PlanStep]) -> Vec<Vec<&'p PlanStep>> {
    let mut groups: Vec<Vec<&PlanStep>> = vec![Vec::new()];
    for step in steps {
        let is_it = |group: &&mut Vec<&PlanStep>| {
            group.first().is_some_and(|first| first.table == step.table)
        };
        // Statements of a migration keep their order.
        let found = match (&step.what, &step.table) {
            (None, _) => groups.last_mut().filter(is_it),
            (Some(_), None) => groups.first_mut(),
            (Some(_), Some(_)) => groups.iter_mut().find(is_it),
        };
        match found {
            Some(group) => group.push(step),
            None => groups.push(vec![step]),
        }
    }
    groups
}

/// Runs the steps in one transaction, once the locks are free.
fn at_once(conn: &mut PgConnection, steps: &[&PlanStep], deadline: Instant) -> Result<()> {
    let Some(first) = steps.first() else {
        return Ok(());
    };
    let tables = steps.iter().flat_map(|step| &step.table);
    let keys = steps.iter().flat_map(|step| &step.locks);
    let tables: BTreeSet<&str> = tables.chain(keys).map(String::as_str).collect();
    let tables: Vec<&str> = tables.into_iter().collect();
    for attempt in 0.. {
        // Long enough that in the end a vacuum gives way, which it does after 1 s.
        let wait = Duration::from_millis(50 << attempt.min(4)).min(Duration::from_millis(1_200));
        let mut blamed = *first;
        let tried = conn.transaction(|conn| {
            lock(conn, &tables, attempt, wait)?;
            for step in steps {
                blamed = step;
                step.acts.iter().try_for_each(|act| run(conn, act))?;
            }
            Ok(())
        });
        match tried {
            Ok(()) => return Ok(()),
            Err(error) if !is_locked(&error) => {
                let what = blamed.what.as_deref().unwrap_or("a statement");
                return Err(failed(blamed, format!("{what}: {error}")));
            }
            Err(_) if clock::instant() > deadline => {
                let reason = format!("locked by others all the time: {}", tables.join(", "));
                let reason = format!("{reason}; {}", holders(conn, &tables));
                return Err(failed(first, reason));
            }
            // Sessions that queued behind this one go first.
            Err(_) => clock::nap(clock::jittered(wait * 2)),
        }
    }
    Ok(())
}

/// Locks all `tables`, mostly one.
///
/// It waits while it holds nothing, so only sessions behind it in that table's queue wait for it. A
/// foreign key takes two tables: both waits together are shorter than the 1 s after which Postgres
/// looks for deadlocks, and ends a transaction that is in one.
fn lock(
    conn: &mut PgConnection,
    tables: &[&str],
    attempt: usize,
    wait: Duration,
) -> QueryResult<()> {
    diesel::sql_query("SELECT set_config('statement_timeout', '0', true)").execute(conn)?;
    let (first, all) = match tables {
        [] => return Ok(()),
        [one] => (*one, None),
        many => (many[attempt % many.len()], Some(many.join(", "))),
    };
    let half = Duration::from_millis(250);
    let waits = [
        (
            Some(first.to_owned()),
            if all.is_some() { wait.min(half) } else { wait },
        ),
        (all, half),
    ];
    for (tables, wait) in waits {
        let Some(tables) = tables else { continue };
        let timeout = format!(
            "SELECT set_config('lock_timeout', '{}ms', true)",
            wait.as_millis()
        );
        diesel::sql_query(timeout).execute(conn)?;
        diesel::sql_query(format!("LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")).execute(conn)?;
    }
    Ok(())
}

fn run(conn: &mut PgConnection, act: &Action) -> QueryResult<()> {
    match act {
        Action::Run(text) => diesel::sql_query(text).execute(conn).map(drop),
        Action::Index {
            name,
            text,
            is_there,
            ..
        } => {
            if *is_there {
                diesel::sql_query(format!("DROP INDEX {name}")).execute(conn)?;
            }
            diesel::sql_query(text).execute(conn).map(drop)
        }
        Action::Define { .. } => Ok(()),
    }
}
