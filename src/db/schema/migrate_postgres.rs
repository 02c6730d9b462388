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
use crate::db::schema::compare::{Migrated, create, failed, migration_plan, refuse_by_hand};
use crate::db::schema::plan::{Action, PlanStep, SchemaPlan};
use crate::error::{Error, ErrorContext, Result};
use diesel::prelude::*;
use diesel::result::Error as QueryError;
use diesel::sql_types::{BigInt, Bool, Text};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest wait for other sessions' locks, in all.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest wait for another migration, which may build large indexes.
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

#[derive(QueryableByName)]
struct NameRow {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Adds what is missing, while programs write.
pub(crate) fn complete(conn: &mut PgConnection, timeout: Duration) -> Result<Migrated> {
    if Conn::Postgres(conn).is_in_transaction() {
        take_turn(conn, "pg_try_advisory_xact_lock")?;
        return apply_plan(conn, timeout).map(Migrated::of);
    }
    if Conn::Postgres(conn).has_no_session() {
        return in_one_transaction(conn, timeout).map(Migrated::of);
    }
    take_turn(conn, "pg_try_advisory_lock")?;
    let done = apply_plan(conn, timeout);
    let free = diesel::sql_query("SELECT pg_advisory_unlock($1) AS it")
        .bind::<BigInt, _>(LOCK)
        .execute(conn);
    let done = done?;
    free.during("release the migration lock")?;
    Ok(Migrated::of(done))
}

fn in_one_transaction(conn: &mut PgConnection, timeout: Duration) -> Result<SchemaPlan> {
    Conn::Postgres(conn).transaction(|conn| {
        let conn = conn.reborrow().postgres()?;
        take_turn(conn, "pg_try_advisory_xact_lock")?;
        let plan = migration_plan(&mut Conn::Postgres(conn))?;
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
        apply_plan(conn, timeout)
    })
}

fn take_turn(conn: &mut PgConnection, function: &str) -> Result<()> {
    let deadline = clock::deadline(MIGRATION_TIMEOUT);
    loop {
        let tried = diesel::sql_query(format!("SELECT {function}($1) AS it"))
            .bind::<BigInt, _>(LOCK)
            .get_result::<Flag>(conn);
        if tried.during("take the migration lock")?.it {
            return Ok(());
        }
        if clock::instant() > deadline {
            let reason = format!(
                "another migration has been running for {} s",
                MIGRATION_TIMEOUT.as_secs()
            );
            return Err(Error::Migration {
                version: "lock".to_owned(),
                reason,
            });
        }
        clock::nap(clock::jittered(Duration::from_millis(30)));
    }
}

fn apply_plan(conn: &mut PgConnection, timeout: Duration) -> Result<SchemaPlan> {
    let plan = migration_plan(&mut Conn::Postgres(conn))?;
    refuse_by_hand(&plan)?;
    if plan.is_fresh {
        create(&mut Conn::Postgres(conn))?;
        return Ok(plan);
    }
    let is_alone = !Conn::Postgres(conn).is_in_transaction();
    let (mut brief, mut long) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        match is_alone && is_long(conn, step)? {
            true => long.push(step),
            false => brief.push(step),
        }
    }
    let deadline = clock::deadline(timeout);
    for group in if is_alone {
        groups(&brief)
    } else {
        vec![brief]
    } {
        at_once(conn, &group, deadline)?;
    }
    for step in long {
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
    Ok(large.during("look for rows")?.it)
}

/// Groups the steps by table, so that each transaction holds the lock of one table and waits for no
/// other. New tables come first, statements that run once last.
fn groups<'p>(steps: &[&'p PlanStep]) -> Vec<Vec<&'p PlanStep>> {
    let mut groups: Vec<Vec<&PlanStep>> = vec![Vec::new()];
    let (once, steps): (Vec<&PlanStep>, Vec<&PlanStep>) =
        steps.iter().partition(|step| step.what.is_none());
    for step in steps {
        let mut others = groups.iter_mut().skip(1);
        let found = match step.table {
            None => groups.first_mut(),
            Some(_) => others.find(|group| group.iter().any(|one| one.table == step.table)),
        };
        match found {
            Some(group) => group.push(step),
            None => groups.push(vec![step]),
        }
    }
    groups.push(once);
    groups
}

/// Runs the steps in one transaction, once the locks are free.
fn at_once(conn: &mut PgConnection, steps: &[&PlanStep], deadline: Instant) -> Result<()> {
    let Some(first) = steps.first() else {
        return Ok(());
    };
    let tables = steps.iter().flat_map(|step| &step.table);
    let tables: BTreeSet<&str> = tables.map(String::as_str).collect();
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
/// transaction of the caller takes all tables: both waits together are shorter than the 1 s after
/// which Postgres looks for deadlocks, and ends a transaction that is in one.
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

/// Returns whether the error is about a lock, by its message: Diesel keeps no code.
fn is_locked(error: &QueryError) -> bool {
    let message = error.to_string();
    ["could not obtain lock", "lock timeout", "deadlock detected"]
        .iter()
        .any(|text| message.contains(text))
}

/// Builds an index without blocking writers. An incomplete one, left by a process that died or was
/// blocked, is dropped first.
fn concurrently(conn: &mut PgConnection, act: &Action, timeout: Duration) -> QueryResult<()> {
    let Action::Index {
        name,
        text,
        is_there,
    } = act
    else {
        return Ok(());
    };
    let deadline = clock::deadline(timeout);
    let mut is_there = *is_there;
    loop {
        match build(conn, name, text, is_there, timeout) {
            Err(error) if is_locked(&error) && clock::instant() < deadline => is_there = true,
            done => return done,
        }
        clock::nap(clock::jittered(Duration::from_millis(100)));
    }
}

/// Tries once, and restores the session's own timeouts.
fn build(
    conn: &mut PgConnection,
    name: &str,
    text: &str,
    is_there: bool,
    timeout: Duration,
) -> QueryResult<()> {
    let of = |name: &str| format!("SELECT current_setting('{name}') AS name");
    let locks: NameRow = diesel::sql_query(of("lock_timeout")).get_result(conn)?;
    let statements: NameRow = diesel::sql_query(of("statement_timeout")).get_result(conn)?;
    limit(conn, &format!("{}ms", timeout.as_millis()), "0")?;
    let dropped = if is_there {
        diesel::sql_query(format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")).execute(conn)
    } else {
        Ok(0)
    };
    let built = dropped.and_then(|_| {
        let text = text.replacen(" INDEX ", " INDEX CONCURRENTLY ", 1);
        diesel::sql_query(text).execute(conn)
    });
    let restored = limit(conn, &locks.name, &statements.name);
    built?;
    restored
}

fn limit(conn: &mut PgConnection, locks: &str, statements: &str) -> QueryResult<()> {
    diesel::sql_query(
        "SELECT set_config('lock_timeout', $1, false), set_config('statement_timeout', $2, false)",
    )
    .bind::<Text, _>(locks)
    .bind::<Text, _>(statements)
    .execute(conn)
    .map(drop)
}

/// Returns the sessions that hold locks on `tables`, or on any table of Windlass.
fn holders(conn: &mut PgConnection, tables: &[&str]) -> String {
    let text = "SELECT DISTINCT 'pid ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') \
         || coalesce(', ' || a.state, '') || ', holds ' || c.relname || ' for ' \
         || coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::integer, 0) || ' s' AS name \
         FROM pg_locks l JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
         WHERE l.granted AND l.pid <> pg_backend_pid() AND c.relkind = 'r' AND pg_table_is_visible(c.oid) \
         AND CASE WHEN $1 = '' THEN c.relname LIKE 'solid\\_queue\\_%' OR c.relname LIKE 'windlass\\_%' \
         ELSE c.relname = ANY (string_to_array($1, ',')) END ORDER BY 1 LIMIT 5";
    let found = diesel::sql_query(text)
        .bind::<Text, _>(tables.join(","))
        .load::<NameRow>(conn);
    let names: Vec<String> = found
        .unwrap_or_default()
        .into_iter()
        .map(|one| one.name)
        .collect();
    if names.is_empty() {
        "no session holds a lock on them now: try again".to_owned()
    } else {
        format!("{}; end them, or try again", names.join("; "))
    }
}
