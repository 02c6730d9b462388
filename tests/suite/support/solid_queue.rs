//! Solid Queue 1.7's tables, written down once: to hold ours to, and to make
//! the database of a Rails app from.

use super::TestDb;

/// `table: column type, ..`; `!` is NOT NULL, `= x` a default.
pub const TABLES: &[&str] = &[
    "jobs: queue_name string!, class_name string!, arguments text, priority integer! = 0, \
     active_job_id string, scheduled_at datetime, finished_at datetime, concurrency_key string, \
     created_at datetime!, updated_at datetime!, batch_id bigint",
    "ready_executions: job_id bigint!, queue_name string!, priority integer! = 0, created_at datetime!",
    "claimed_executions: job_id bigint!, process_id bigint, created_at datetime!",
    "scheduled_executions: job_id bigint!, queue_name string!, priority integer! = 0, \
     scheduled_at datetime!, created_at datetime!",
    "blocked_executions: job_id bigint!, queue_name string!, priority integer! = 0, \
     concurrency_key string!, expires_at datetime!, created_at datetime!",
    "failed_executions: job_id bigint!, error text, created_at datetime!",
    "processes: kind string!, last_heartbeat_at datetime!, supervisor_id bigint, pid integer!, \
     hostname string, metadata text, created_at datetime!, name string!",
    "pauses: queue_name string!, created_at datetime!",
    "semaphores: key string!, value integer! = 1, expires_at datetime!, created_at datetime!, updated_at datetime!",
    "recurring_tasks: key string!, schedule string!, command string, class_name string, arguments text, \
     queue_name string, priority integer = 0, static boolean! = true, description text, \
     created_at datetime!, updated_at datetime!",
    "recurring_executions: job_id bigint!, task_key string!, run_at datetime!, created_at datetime!",
    "batches: active_job_batch_id string, description string, on_finish text, on_success text, on_failure text, \
     metadata text, total_jobs integer! = 0, completed_jobs integer! = 0, failed_jobs integer! = 0, \
     enqueued_at datetime, finished_at datetime, failed_at datetime, created_at datetime!, updated_at datetime!",
    "batch_executions: job_id bigint!, batch_id bigint!, created_at datetime!",
];

/// `table: columns; columns`: the unique indexes.
pub const UNIQUE: &[&str] = &[
    "ready_executions: job_id",
    "claimed_executions: job_id",
    "scheduled_executions: job_id",
    "blocked_executions: job_id",
    "failed_executions: job_id",
    "processes: name,supervisor_id",
    "pauses: queue_name",
    "semaphores: key",
    "recurring_tasks: key",
    "recurring_executions: job_id; task_key,run_at",
    "batches: active_job_batch_id",
    "batch_executions: job_id",
];

/// One column, with its type in Rails' words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: String,
    pub nullable: bool,
    pub default: Option<String>,
}

/// The columns besides `id`, by table name without `solid_queue_`.
pub fn tables() -> Vec<(&'static str, Vec<Column>)> {
    TABLES
        .iter()
        .map(|line| {
            let (table, columns) = line.split_once(": ").unwrap();
            (table, columns.split(", ").map(column).collect())
        })
        .collect()
}

fn column(text: &str) -> Column {
    let (text, default) = match text.split_once(" = ") {
        Some((text, default)) => (text, Some(default.to_owned())),
        None => (text, None),
    };
    let (name, kind) = text.split_once(' ').unwrap();
    Column {
        name: name.to_owned(),
        kind: kind.trim_end_matches('!').to_owned(),
        nullable: !kind.ends_with('!'),
        default,
    }
}

/// The unique indexes as `(table, [columns])`.
pub fn unique_indexes() -> Vec<(&'static str, Vec<&'static str>)> {
    UNIQUE
        .iter()
        .flat_map(|line| {
            let (table, indexes) = line.split_once(": ").unwrap();
            indexes
                .split("; ")
                .map(move |columns| (table, columns.split(',').collect()))
        })
        .collect()
}

/// Creates the tables as a Rails app would have them, foreign keys included.
pub fn create(db: &TestDb) {
    empty_file(db);
    create_those(db, |_, _| true);
}

/// Makes a SQLite file empty, which no session may have open.
fn empty_file(db: &TestDb) {
    if !db.is_postgres() {
        db.forget_sessions();
        std::fs::File::create(db.address()).unwrap();
    }
}

/// Creates the tables of Solid Queue 1.5, which had no batches.
pub fn create_before_batches(db: &TestDb) {
    empty_file(db);
    create_those(db, |table, column| {
        !table.starts_with("batch") && column != "batch_id"
    });
}

/// Brings the tables of Solid Queue 1.5 to those of 1.7, as its update does: what exists by its name stays.
pub fn add_batches(db: &TestDb) {
    let has = |table: &str, column: &str| {
        let mut columns = db.columns().into_iter();
        columns.any(|one| one.table == format!("solid_queue_{table}") && one.name == column)
    };
    if !has("jobs", "batch_id") {
        db.execute("ALTER TABLE solid_queue_jobs ADD COLUMN batch_id bigint");
    }
    db.execute(
        "CREATE INDEX IF NOT EXISTS index_solid_queue_jobs_on_batch_id ON solid_queue_jobs (batch_id)",
    );
    let is_there = has("batches", "id");
    create_those(db, |table, _| table.starts_with("batch") && !is_there);
}

fn create_those(db: &TestDb, is_wanted: impl Fn(&str, &str) -> bool) {
    let (id, datetime) = if db.is_postgres() {
        ("bigserial PRIMARY KEY", "timestamp(6)")
    } else {
        ("integer PRIMARY KEY AUTOINCREMENT NOT NULL", "datetime(6)")
    };
    for (table, columns) in tables() {
        if !is_wanted(table, "id") {
            continue;
        }
        let mut parts = vec![format!("id {id}")];
        for column in columns
            .into_iter()
            .filter(|column| is_wanted(table, &column.name))
        {
            let kind = match &*column.kind {
                "string" => "varchar",
                "datetime" => datetime,
                other => other,
            };
            let null = if column.nullable { "" } else { " NOT NULL" };
            let default = column.default.map_or_else(String::new, |value| {
                // Rails 8.1 writes that; those before it write `1`.
                let has_batches = is_wanted("batches", "id");
                let value = match (&*value, db.is_postgres()) {
                    ("true", false) if has_batches => "TRUE",
                    ("true", false) => "1",
                    (value, _) => value,
                };
                format!(" DEFAULT {value}")
            });
            let of = match &*column.name {
                "job_id" => Some("jobs"),
                "batch_id" if table == "batch_executions" => Some("batches"),
                _ => None,
            };
            // Rails names its keys by a digest.
            let key = of.map_or_else(String::new, |of| {
                format!(
                    " CONSTRAINT fk_rails_{table}_{of} REFERENCES solid_queue_{of} (id) ON DELETE CASCADE"
                )
            });
            parts.push(format!("{} {kind}{default}{null}{key}", column.name));
        }
        db.execute(&format!(
            "CREATE TABLE solid_queue_{table} ({})",
            parts.join(", ")
        ));
    }
    for (table, columns) in unique_indexes() {
        if !is_wanted(table, "id") {
            continue;
        }
        db.execute(&format!(
            "CREATE UNIQUE INDEX index_solid_queue_{table}_on_{} ON solid_queue_{table} ({})",
            columns.join("_and_"),
            columns.join(", ")
        ));
    }
}

/// Returns the text that Rails writes into `arguments`: the Active Job envelope.
pub fn envelope(class: &str, arguments: &str) -> String {
    format!(
        r#"{{"job_class":"{class}","job_id":"b695d682-c0e8-420e-88a8-3198bc12371e","provider_job_id":null,"queue_name":"default","priority":null,"arguments":{arguments},"executions":0,"exception_executions":{{}},"locale":"en","timezone":"UTC","enqueued_at":"2026-11-21T03:36:27.384057773Z","scheduled_at":"2026-11-21T03:36:27.383907230Z"}}"#
    )
}

/// Enqueues as Rails does: the job and its ready execution in one transaction, nothing but Solid Queue's own columns
/// named.
pub fn enqueue(db: &TestDb, class: &str, arguments: &str) {
    insert(db, class, arguments, "2026-11-21 03:36:27.384057", "ready");
}

/// The same for a time to come.
pub fn schedule(db: &TestDb, class: &str, arguments: &str, at: &str) {
    insert(db, class, arguments, at, "scheduled");
}

fn insert(db: &TestDb, class: &str, arguments: &str, at: &str, into: &str) {
    let key = format!("{:032x}", fastrand::u128(..));
    let arguments = envelope(class, arguments).replace('\'', "''");
    let (column, value) = match into {
        "scheduled" => (", scheduled_at", ", scheduled_at"),
        _ => ("", ""),
    };
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, active_job_id, \
             scheduled_at, created_at, updated_at) VALUES ('default', '{class}', '{arguments}', 0, '{key}', \
             '{at}', '2026-11-21 03:36:27.384057', '2026-11-21 03:36:27.384057')"
        ),
        &format!(
            "INSERT INTO solid_queue_{into}_executions (job_id, queue_name, priority, created_at{column}) \
             SELECT id, queue_name, priority, created_at{value} FROM solid_queue_jobs WHERE active_job_id = '{key}'"
        ),
    ]);
}

/// Enqueues a job of a class with `limits_concurrency to: limit, duration: 10.minutes`: it takes a slot of the
/// semaphore and is ready, or it is blocked.
pub fn enqueue_limited(db: &TestDb, class: &str, arguments: &str, key: &str, limit: u32) {
    place_limited(db, class, arguments, key, limit, "NULL");
}

/// The same, of a job of the gem with a limit of Windlass: so many slots, or `NULL`.
pub fn place_limited(
    db: &TestDb,
    class: &str,
    arguments: &str,
    key: &str,
    limit: u32,
    slots: &str,
) {
    // Before `windlass migrate`, there is no such column.
    let (name, slots) = match slots {
        "NULL" => ("", String::new()),
        slots => (", concurrency_slots", format!(", {slots}")),
    };
    let id = format!("{:032x}", fastrand::u128(..));
    let arguments = envelope(class, arguments).replace('\'', "''");
    let (now, later) = (
        "'2026-11-21 03:36:27.384057'",
        "'2999-11-21 03:46:27.384057'",
    );
    let lock = if db.is_postgres() { " FOR UPDATE" } else { "" };
    let this = format!("FROM solid_queue_jobs j WHERE active_job_id = '{id}'");
    let is_free =
        format!("EXISTS (SELECT 1 FROM solid_queue_semaphores WHERE key = '{key}' AND value > 0)");
    let is_ready = format!(
        "(SELECT count(*) FROM solid_queue_ready_executions WHERE job_id = (SELECT id {this})) = 1"
    );
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, active_job_id, concurrency_key, \
             created_at, updated_at{name}) VALUES ('default', '{class}', '{arguments}', 0, '{id}', '{key}', {now}, {now}{slots})"
        ),
        &format!(
            "INSERT INTO solid_queue_semaphores (key, value, expires_at, created_at, updated_at) \
             VALUES ('{key}', {limit}, {later}, {now}, {now}) ON CONFLICT (key) DO NOTHING"
        ),
        &format!("SELECT id FROM solid_queue_semaphores WHERE key = '{key}'{lock}"),
        &format!(
            "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
             SELECT id, queue_name, priority, created_at {this} AND {is_free}"
        ),
        &format!(
            "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
             SELECT id, queue_name, priority, concurrency_key, {later}, created_at {this} AND NOT {is_ready}"
        ),
        &format!("UPDATE solid_queue_semaphores SET value = value - 1, expires_at = {later} WHERE key = '{key}' AND {is_ready}"),
    ]);
}
