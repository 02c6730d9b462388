//! On Postgres: the plans that a session keeps, old or new.
#![allow(
    irrefutable_let_patterns,
    reason = "with one feature there is one kind of connection"
)]

use super::*;
use crate::db::prefer_indexes;
use diesel::sql_types::Text;

const FILL: &str = "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, created_at, updated_at) \
       SELECT 'q' || (i % 10), 'note', '{}', '2026-01-01', '2026-01-01' FROM generate_series(1, 100000) AS i; \
     INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, created_at) \
       SELECT id, queue_name, id % 5, class_name, created_at FROM solid_queue_jobs; \
     INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, scheduled_at, created_at) \
       SELECT id, queue_name, timestamp '2030-01-01' + id * interval '1 second', created_at FROM solid_queue_jobs; \
     INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) \
       SELECT id, 1000000 + id % 1000, created_at FROM solid_queue_jobs; \
     INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
       SELECT id, 't' || (id % 10), timestamp '2020-01-01' + id * interval '1 minute', created_at FROM solid_queue_jobs;";

/// Where a server can be reached; `bin/test` starts one.
#[expect(
    clippy::disallowed_methods,
    reason = "how `bin/test` speaks to its tests"
)]
fn server() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES").expect("run ./bin/test, or set WINDLASS_TEST_POSTGRES")
}

struct Schema(String);

impl Schema {
    fn new() -> Self {
        let name = format!("plans_{:016x}", fastrand::u64(..));
        let database = Database::open(&server()).unwrap();
        let mut connection = database.connect().unwrap();
        run(&mut connection.as_conn(), &format!("CREATE SCHEMA {name}")).unwrap();
        Schema(name)
    }

    fn database(&self) -> Database {
        Database::open(&format!("{}?options=-csearch_path%3D{}", server(), self.0)).unwrap()
    }
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
    let lines: QueryResult<Vec<Line>> = crate::db::on!(conn, |c| diesel::sql_query(text).load(c));
    lines
        .unwrap_or_else(|error| panic!("{error}: {text}"))
        .into_iter()
        .map(|line| line.t)
        .collect()
}

/// EXPLAIN gives its lines to nobody but a function.
const EXPLAIN: &str = "CREATE FUNCTION pg_temp.explain(statement text) RETURNS SETOF text LANGUAGE plpgsql \
     AS $$ BEGIN RETURN QUERY EXECUTE 'EXPLAIN ' || statement; END $$";

/// The plan that the session has for a statement: the one that is kept for
/// those that Diesel prepared, however old it is.
fn plan(conn: &mut Conn<'_>, statement: &str) -> Vec<String> {
    let quoted = statement.replace('\'', "''");
    let find = "SELECT name || '|' || array_to_string(parameter_types::text[], '|') AS t \
         FROM pg_prepared_statements WHERE";
    let mut found = lines(conn, &format!("{find} statement = '{quoted}'"));
    if found.is_empty() {
        // Diesel keeps no UPDATE of its own; raw statements are to be kept.
        assert!(
            statement.contains("\"solid_queue_")
                || statement.starts_with("DELETE FROM windlass_")
                || statement.starts_with("DELETE FROM solid_queue_jobs"),
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
        "boolean[]" => "'{t,f,t}'",
        other => panic!("a parameter of the type {other}"),
    }
}

/// Indexes from whose beginning, past a few rows, a claim takes its jobs: those
/// of classes that it does not know and of paused queues.
const IN_ORDER: [&str; 2] = [
    "index_solid_queue_poll_all",
    "index_solid_queue_poll_by_queue",
];

/// Whether an index of a large table is read from its beginning, other than
/// to take the first few. There are never many claims.
fn walks(plan: &[String]) -> bool {
    let scans = plan.iter().enumerate().filter(|(_, line)| {
        let on = |table: &&&str| line.contains(&format!(" on {table}"));
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
        let plan = plan(&mut conn, statement);
        let is_bad = |line: &String| {
            LARGE.iter().any(|table| {
                line.contains(&format!("Seq Scan on {table}"))
                    || what.starts_with("claim") && line.contains("Sort Key: r.priority")
            })
        };
        if plan.iter().any(is_bad) || walks(&plan) {
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
    // What only makes room for a work is another text each time.
    let makes_room = |text: &String| {
        text.starts_with("DELETE FROM solid_queue_ready_executions WHERE job_id = ")
            || text.contains("2 + id % 3")
            || text.contains("'@hourly'")
            || text.contains("VALUES (") && text.contains(unique::AGAIN)
            || text == "DELETE FROM solid_queue_recurring_tasks"
    };
    statements.retain(|(_, text)| !makes_room(text));
    statements.sort();
    statements.dedup();
    run(&mut heard.connection.as_conn(), EXPLAIN).unwrap();
    (heard, statements)
}

/// The worst that happens in practice: plans made and kept while the
/// tables were empty and known to be, then a hundred thousand rows.
#[test]
fn no_statement_reads_a_large_table_from_end_to_end() {
    let schema = Schema::new();
    let database = schema.database();
    database.migrate().unwrap();
    let mut other = database.connect().unwrap();
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
    let Conn::Postgres(c) = other.as_conn() else {
        unreachable!()
    };
    diesel::connection::SimpleConnection::batch_execute(c, FILL).unwrap();
    diesel::connection::SimpleConnection::batch_execute(c, FILL_BESIDE).unwrap();
    for analyzed in [false, true] {
        let mut bad = bad_plans(&mut loops.0, &loops.1);
        bad.extend(bad_plans(&mut callers.0, &callers.1));
        assert!(bad.is_empty(), "analyzed: {analyzed}\n{}", bad.join("\n"));
        if !analyzed {
            run(&mut other.as_conn(), "ANALYZE").unwrap();
        }
    }
    let mut conn = callers.0.connection.as_conn();
    let all = plan(
        &mut conn,
        "SELECT max(created_at) FROM \"solid_queue_jobs\"",
    );
    assert!(
        all.iter()
            .any(|line| line.contains("Seq Scan on solid_queue_jobs")),
        "{all:?}"
    );
}

/// Whether a plan finds claims other than by their own numbers, or those of
/// their jobs.
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
    let mut other = database.connect().unwrap();
    let mut long = database.connect().unwrap();
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
    for text in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "SELECT 1 FROM solid_queue_pauses",
    ] {
        run(&mut long.as_conn(), text).unwrap();
    }
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
        let plan = plan(&mut conn, &statement);
        assert!(!passes_old_claims(&plan), "{what}\n{}", plan.join("\n"));
    }
    drop(long);
}
