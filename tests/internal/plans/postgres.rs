//! On Postgres: the plans that a session keeps, old or new.
#![allow(
    irrefutable_let_patterns,
    reason = "with one feature there is one kind of connection"
)]

use crate::db::conn::connection::Conn;
use crate::db::conn::database::{Database, prefer_indexes};
use crate::db::conn::owned::DbConnection;
use crate::db::plans::job_pages::JOB_PAGES;
use crate::db::plans::looks::{LOOKS, READ_ALL};
use crate::db::plans::operators::OPERATORS;
use crate::db::plans::pages::PAGES;
use crate::db::plans::works::{CALLERS, LOOPS};
use crate::db::plans::{Heard, LARGE, Rows, Size, Work, run, *};
use diesel::result::Error::RollbackTransaction;
use diesel::sql_types::Text;

const NUMBERS: &str = "generate_series(1, {N}) AS id";

fn time(beginning: &str, unit: &str) -> String {
    format!("timestamp '{beginning}' + id * interval '1 {unit}'")
}

/// Returns the address of a server; `bin/test` starts one.
#[expect(
    clippy::disallowed_methods,
    reason = "how `bin/test` speaks to its tests"
)]
fn server() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES").expect("run ./bin/test, or set WINDLASS_TEST_POSTGRES")
}

pub(crate) struct Schema(String);

impl Schema {
    pub(crate) fn new() -> Self {
        let name = format!("plans_{:016x}", fastrand::u64(..));
        let database = Database::open(&server()).unwrap();
        let mut connection = database.connect().unwrap();
        run(&mut connection.as_conn(), &format!("CREATE SCHEMA {name}")).unwrap();
        Schema(name)
    }

    pub(crate) fn database(&self) -> Database {
        Database::open(&format!("{}?options=-csearch_path%3D{}", server(), self.0)).unwrap()
    }
}

/// A connection on which the server ends nothing, however busy the machine is.
fn patient(database: &Database) -> DbConnection {
    let mut connection = database.connect().unwrap();
    for timeout in ["statement_timeout", "idle_in_transaction_session_timeout"] {
        run(&mut connection.as_conn(), &format!("SET {timeout} = 0")).unwrap();
    }
    connection
}

/// A transaction that sees, until it ends, all that is there now.
fn long_transaction(database: &Database) -> DbConnection {
    let mut long = patient(database);
    for text in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "SELECT 1 FROM solid_queue_pauses",
    ] {
        run(&mut long.as_conn(), text).unwrap();
    }
    long
}

impl Drop for Schema {
    fn drop(&mut self) {
        if let Ok(mut connection) =
            Database::open(&server()).and_then(|database| database.connect())
        {
            let _ = run(
                &mut connection.as_conn(),
                &format!("DROP SCHEMA {} CASCADE", self.0),
            );
        }
    }
}

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    t: String,
}

fn lines(conn: &mut Conn<'_>, text: &str) -> Vec<String> {
    let lines: QueryResult<Vec<Line>> =
        crate::with_conn!(conn, |c| diesel::sql_query(text).load(c));
    lines
        .unwrap_or_else(|error| panic!("{error}: {text}"))
        .into_iter()
        .map(|line| line.t)
        .collect()
}

/// EXPLAIN gives its lines to nobody but a function.
const EXPLAIN: &str = "CREATE FUNCTION pg_temp.explain(statement text) RETURNS SETOF text LANGUAGE plpgsql \
     AS $$ BEGIN RETURN QUERY EXECUTE 'EXPLAIN ' || statement; END $$";

/// The works that loops and callers do rarely, or only for some jobs.
const RARE: [&str; 19] = [
    "give a job back",
    "dispatch past refused jobs",
    "sample the queues",
    "store and fold what ended",
    "clear the history",
    "read the paused classes",
    "pass the paused classes",
    "name the classes",
    "raise the largest payload",
    "refuse unknown classes",
    "enqueue with a quota",
    "clear",
    "discard expired jobs",
    "promote and discard",
    "signal semaphores of Ruby",
    "look for free slots",
    "start, release and retry jobs with limits",
    "enqueue and explain a job with an expiry",
    "discard a job with an expiry",
];

/// The plan that the session has for a statement: the one that is kept for
/// those that Diesel prepared, however old it is.
fn plan(conn: &mut Conn<'_>, what: &str, statement: &str) -> Vec<String> {
    let quoted = statement.replace('\'', "''");
    let find = "SELECT name || '|' || array_to_string(parameter_types::text[], '|') AS t \
         FROM pg_prepared_statements WHERE";
    let mut found = lines(conn, &format!("{find} statement = '{quoted}'"));
    if found.is_empty() {
        // Queries of people, and statements that clear, run too rarely to be kept.
        assert!(
            what == "the control"
                || all_looks().iter().any(|(look, _)| *look == what)
                || RARE.contains(&what)
                || statement.starts_with("DELETE FROM windlass_")
                || statement.starts_with("INSERT INTO windlass_stats_deltas")
                || statement.starts_with("DELETE FROM solid_queue_jobs")
                // Only after a retry by hand.
                || statement.contains("'undo'")
                || statement.contains("w.outcome || '' = 'failed'")
                // Beside such a DELETE.
                || statement.contains("'it was deleted before it had finished'"),
            "not kept prepared: {statement}"
        );
        let name = format!("uncached_{:016x}", fastrand::u64(..));
        run(conn, &format!("PREPARE {name} AS {statement}")).unwrap();
        found = lines(conn, &format!("{find} name = '{name}'"));
    }
    let parts: Vec<&str> = found[0].trim_end_matches('|').split('|').collect();
    let is_named = statement.contains("ORDINALITY AS q");
    let names = if is_named { "'{q1,q2}'" } else { "'{}'" };
    let values: Vec<&str> = parts[1..]
        .iter()
        .enumerate()
        .map(|(place, kind)| {
            if *kind == "text[]" && place == 3 {
                names
            } else {
                plausible(kind)
            }
        })
        .collect();
    let execute = if values.is_empty() {
        format!("EXECUTE {}", parts[0])
    } else {
        format!("EXECUTE {} ({})", parts[0], values.join(", "))
    };
    let execute = execute.replace('\'', "''");
    lines(
        conn,
        &format!("SELECT t FROM pg_temp.explain('{execute}') AS t"),
    )
}

fn plausible(kind: &str) -> &'static str {
    match kind {
        "text" | "character varying" | "json" => "'[7,8,9]'",
        "integer" => "1",
        "bigint" | "double precision" => "7",
        "boolean" => "true",
        "text[]" => "'{q1,q2,plan}'",
        "integer[]" => "'{1,2,3}'",
        "bigint[]" => "'{7,8,9}'",
        "timestamp without time zone" => "timestamp '2026-01-01'",
        "boolean[]" => "'{t,f,t}'",
        "bytea" => "'a'",
        "bytea[]" => "'{a,b,c}'",
        other => panic!("a parameter of the type {other}"),
    }
}

/// Indexes from whose beginning, past a few rows, a claim takes its jobs: those
/// of classes that it does not know and of paused queues.
const IN_ORDER: [&str; 2] = [
    "index_solid_queue_poll_all",
    "index_solid_queue_poll_by_queue",
];

/// Returns whether an index of a large table is read from its beginning, other
/// than to take the first few. There are never many claims.
fn walks(plan: &[String]) -> bool {
    let scans = plan.iter().enumerate().filter(|(_, line)| {
        let on = |table: &&&str| line.contains(&format!(" on {table} "));
        let tables = LARGE.iter().filter(|table| !table.contains("claimed"));
        line.contains("Scan using") && tables.into_iter().any(|table| on(&table))
    });
    let indent = |line: &String| line.len() - line.trim_start_matches([' ', '-', '>']).len();
    scans.into_iter().any(|(place, line)| {
        let details = plan[place + 1..]
            .iter()
            .take_while(|next| !next.trim_start().starts_with("->"));
        let details: Vec<&String> = details.collect();
        let says = |what: &str| details.iter().any(|detail| detail.contains(what));
        let has_condition = says("Index Cond");
        let is_filtered = says("Filter:") && !IN_ORDER.iter().any(|index| line.contains(index));
        let mut depth = indent(line);
        let is_limited = plan[..place].iter().rev().any(|above| {
            let is_parent = indent(above) < depth;
            depth = depth.min(indent(above));
            is_parent && above.contains("Limit")
        });
        !has_condition && (!is_limited || is_filtered)
    })
}

fn bad_plans(heard: &mut Heard, statements: &[(&str, String)]) -> Vec<String> {
    let mut conn = heard.connection.as_conn();
    let mut bad = Vec::new();
    for (what, statement) in statements {
        let plan = plan(&mut conn, what, statement);
        let is_bad = |line: &String| {
            LARGE.iter().any(|table| {
                line.contains(&format!("Seq Scan on {table} "))
                    || what.starts_with("claim") && line.contains("Sort Key: r.priority")
            })
        };
        // A filter that a person may set is one that every row is asked about.
        let is_list =
            what.starts_with("list") && what.ends_with("jobs") || what.starts_with("walk");
        // All others would pass the executions of paused classes.
        let by_id = "Index Scan using solid_queue_ready_executions_pkey";
        let is_by_id = plan.iter().any(|line| line.contains(by_id));
        let is_newer = statement.contains("r.id > $9");
        if plan.iter().any(is_bad) || !is_list && walks(&plan) || is_newer && !is_by_id {
            bad.push(format!("{what}\n{}\n", plan.join("\n")));
        }
    }
    bad
}

fn prepared(
    database: &Database,
    prepare: fn(&mut Conn<'_>) -> QueryResult<()>,
    works: &[(&'static str, Work)],
) -> (Heard, Vec<(&'static str, String)>) {
    let mut heard = Heard::new(database);
    prepare(&mut heard.connection.as_conn()).unwrap();
    let mut statements = Vec::new();
    for (what, work) in works {
        // From the sixth time on, a plan may be kept for all values.
        for _ in 0..7 {
            let sent = heard.statements_of(*work);
            statements.extend(sent.into_iter().map(|text| (*what, text)));
        }
    }
    statements.sort();
    statements.dedup();
    run(&mut heard.connection.as_conn(), EXPLAIN).unwrap();
    (heard, statements)
}

/// Returns the number of different statements that a connection keeps prepared.
fn kept(heard: &mut Heard) -> usize {
    let text = "SELECT statement AS t FROM pg_prepared_statements WHERE name NOT LIKE 'uncached%'";
    lines(&mut heard.connection.as_conn(), text).len()
}

/// The worst that happens in practice: plans made and kept while the
/// tables were empty and known to be, then a million jobs.
#[test]
fn no_statement_reads_a_large_table_from_end_to_end() {
    let schema = Schema::new();
    let database = schema.database();
    database.migrate().unwrap();
    let mut other = patient(&database);
    for table in LARGE {
        run(
            &mut other.as_conn(),
            &format!("ALTER TABLE {table} SET (autovacuum_enabled = off)"),
        )
        .unwrap();
        run(&mut other.as_conn(), &format!("ANALYZE {table}")).unwrap();
    }
    let mut loops = prepared(&database, prefer_indexes, &LOOPS);
    let mut callers = prepared(&database, |_| Ok(()), &CALLERS);
    let (of_loops, of_callers) = (kept(&mut loops.0), kept(&mut callers.0));
    // Two of the texts depend on what this process has met before: workers that listen, and rows of Ruby.
    assert!(
        of_loops <= 104 && of_callers <= 75,
        "texts that differ: {of_loops} of the loops, {of_callers} of the callers"
    );
    let bounded: Vec<_> = LOOKS
        .into_iter()
        .chain(OPERATORS)
        .filter(|(what, _)| !READ_ALL.contains(what))
        .collect();
    let mut lookers = prepared(&database, |_| Ok(()), &bounded);
    // As the readers of `windlass web` do.
    let of_pages = [PAGES.as_slice(), JOB_PAGES.as_slice()].concat();
    let mut pages = prepared(&database, prefer_indexes, &of_pages);
    let Conn::Postgres(c) = other.as_conn() else {
        unreachable!()
    };
    let fill = Size::LARGE.fill(NUMBERS, time);
    diesel::connection::SimpleConnection::batch_execute(c, &fill).unwrap();
    for analyzed in [false, true] {
        let mut bad = bad_plans(&mut loops.0, &loops.1);
        bad.extend(bad_plans(&mut callers.0, &callers.1));
        bad.extend(bad_plans(&mut lookers.0, &lookers.1));
        bad.extend(bad_plans(&mut pages.0, &pages.1));
        assert!(bad.is_empty(), "analyzed: {analyzed}\n{}", bad.join("\n"));
        if !analyzed {
            run(&mut other.as_conn(), "ANALYZE").unwrap();
        }
    }
    let mut conn = callers.0.connection.as_conn();
    let all = plan(
        &mut conn,
        "the control",
        "SELECT max(created_at) FROM solid_queue_jobs",
    );
    assert!(
        all.iter()
            .any(|line| line.contains("Seq Scan on solid_queue_jobs")),
        "{all:?}"
    );
}

/// Returns whether a plan finds claims other than by their own numbers, or
/// those of their jobs.
fn passes_old_claims(plan: &[String]) -> bool {
    plan.iter().enumerate().any(|(place, line)| {
        let condition = plan.get(place + 1).map_or("", |next| next.trim());
        let by_number = condition.contains("(id =") || condition.contains("(job_id =");
        let reads = line.contains("Scan using") && line.contains(" on solid_queue_claimed_exec");
        (reads && !by_number) || line.contains("Bitmap Index Scan on index_solid_queue_claimed")
    })
}

/// The other worst: all that was claimed has ended, as the statistics know,
/// and somebody's long transaction keeps all of it in the indexes.
#[test]
fn no_end_passes_what_a_long_transaction_keeps() {
    const ENDS: [&str; 8] = [
        "finish and keep",
        "finish and delete",
        "finish and tell",
        "note the progress",
        "condemn",
        "fail",
        "release",
        "release for later",
    ];
    let schema = Schema::new();
    let database = schema.database();
    database.migrate().unwrap();
    let mut other = patient(&database);
    let claims = "solid_queue_claimed_executions";
    for text in [
        format!("ALTER TABLE {claims} SET (autovacuum_enabled = off)"),
        format!(
            "INSERT INTO {claims} (job_id, process_id, created_at) \
             SELECT -i, 1, '2026-01-01' FROM generate_series(1, 20000) AS i"
        ),
    ] {
        run(&mut other.as_conn(), &text).unwrap();
    }
    let mut long = long_transaction(&database);
    for text in [
        format!("DELETE FROM {claims}"),
        format!("VACUUM ANALYZE {claims}"),
    ] {
        run(&mut other.as_conn(), &text).unwrap();
    }
    let known =
        format!("SELECT reltuples::text AS t FROM pg_class WHERE oid = '{claims}'::regclass");
    assert_eq!(lines(&mut other.as_conn(), &known), ["0"]);
    let works: Vec<_> = LOOPS
        .into_iter()
        .filter(|(what, _)| ENDS.contains(what))
        .collect();
    assert_eq!(works.len(), ENDS.len());
    let (mut heard, statements) = prepared(&database, prefer_indexes, &works);
    let mut conn = heard.connection.as_conn();
    for (what, statement) in statements {
        let plan = plan(&mut conn, what, &statement);
        assert!(!passes_old_claims(&plan), "{what}\n{}", plan.join("\n"));
    }
    run(&mut long.as_conn(), "COMMIT").expect("it was open all the time");
}

/// Counts the reads of a connection in this schema so far: entries of indexes,
/// dead ones too, and pages.
const READ: &str = "SELECT relname || ' ' || CASE relkind WHEN 'i' THEN pg_stat_get_xact_tuples_returned(oid) ELSE 0 END \
     + pg_stat_get_xact_blocks_fetched(oid) AS t \
     FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY relname";

/// Works that begin where the oldest rows stood, and meet what is left of them.
const PASS_OLD_ROWS: [(&str, &str); 10] = [
    (
        "sample the queues",
        "counts up to 10,000 jobs of each queue",
    ),
    ("clear the history", "looks at a batch of the oldest rows"),
    ("discard expired jobs", "the oldest expiries first"),
    ("clear", "walks through all rows, a batch at a time"),
    (
        "recover claim by claim",
        "looks at the process of every claim",
    ),
    ("list the queues", "looks for the first of each queue"),
    ("list the foremost queues", "the same"),
    ("look at the paused queues", "up to a thousand of a queue"),
    ("fire recurring tasks", "deletes up to 200 old ticks"),
    ("look for due jobs", "the first of all that are scheduled"),
];

/// The older half of all tables is gone, but a transaction may still see it.
#[test]
fn nothing_reads_all_that_a_long_transaction_keeps() {
    const ROWS: u32 = 20_000;
    let schema = Schema::new();
    let database = schema.database();
    database.migrate().unwrap();
    let mut other = patient(&database);
    for table in LARGE {
        let off = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
        run(&mut other.as_conn(), &off).unwrap();
    }
    let size = Size {
        finished: 0,
        live: 2 * ROWS,
        blocked: 2 * ROWS,
        unique: 2 * ROWS,
    };
    let Conn::Postgres(c) = other.as_conn() else {
        unreachable!()
    };
    diesel::connection::SimpleConnection::batch_execute(c, &size.fill(NUMBERS, time)).unwrap();
    let mut long = long_transaction(&database);
    for table in LARGE {
        let older = match table {
            "solid_queue_jobs"
            | "solid_queue_batches"
            | "windlass_audit"
            | "windlass_operations"
            | "windlass_stats_deltas" => {
                format!("id <= {ROWS}")
            }
            "windlass_stats" => format!("starts_at <= {ROWS}"),
            "windlass_events" => format!("CAST(substr(name, 7) AS bigint) <= {ROWS}"),
            "windlass_edges" => format!("child_job_id <= {ROWS}"),
            _ => format!("job_id <= {ROWS}"),
        };
        run(
            &mut other.as_conn(),
            &format!("DELETE FROM {table} WHERE {older}"),
        )
        .unwrap();
        run(&mut other.as_conn(), &format!("VACUUM ANALYZE {table}")).unwrap();
    }
    run(&mut other.as_conn(), "TRUNCATE windlass_wanted_keys").unwrap();
    let mut reads: Vec<String> = Vec::new();
    for (works, prepare) in [
        (
            &LOOPS[..],
            prefer_indexes as fn(&mut Conn<'_>) -> QueryResult<()>,
        ),
        (&CALLERS[..], |_| Ok(())),
    ] {
        let mut connection = database.connect().unwrap();
        let conn = &mut connection.as_conn();
        prepare(conn).unwrap();
        for (what, work) in works {
            let result = conn.transaction(|conn| {
                let rows = Rows::insert(conn)?;
                let before = lines(conn, READ);
                work(conn, &rows)?;
                let read =
                    |line: &String| -> u32 { line.rsplit_once(' ').unwrap().1.parse().unwrap() };
                let after = lines(conn, READ);
                let is_known = PASS_OLD_ROWS.iter().any(|(known, _)| known == what);
                let much = before.iter().zip(&after).filter_map(|(before, after)| {
                    let count = read(after) - read(before);
                    (count > ROWS / 10 && !is_known).then(|| format!("{what}: {after} ({count})"))
                });
                reads.extend(much);
                Err::<(), _>(RollbackTransaction)
            });
            assert_eq!(result, Err(RollbackTransaction), "{what}");
        }
    }
    assert!(reads.is_empty(), "{}", reads.join("\n"));
    run(&mut long.as_conn(), "COMMIT").expect("it was open all the time");
}
