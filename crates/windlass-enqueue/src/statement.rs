//! The statements that enqueue a job or a list of jobs, for a driver to run.

use crate::new_job::NewJob;
use serde::de::IgnoredAny;
use std::fmt::Write as _;

/// The column of the arguments.
const ARGUMENTS: &str = "arguments";

/// The database that a statement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Database {
    /// Postgres, with parameters as `$1`.
    Postgres,
    /// SQLite, with parameters as `?1`.
    Sqlite,
}

/// A statement and its values. All are bound as texts; the statement casts them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statement {
    /// The statement, with numbered parameters.
    pub sql: String,
    /// The values of its parameters.
    pub values: Vec<String>,
}

/// The statements that enqueue one job, or several of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Insert {
    /// The statements, to be run right after each other in one transaction. The last one returns the ids in its first
    /// column: on SQLite it is a query of its own.
    pub statements: Vec<Statement>,
    /// The number of jobs.
    pub jobs: usize,
}

impl Insert {
    fn new(statement: Statement, lookup: Option<Statement>, jobs: usize) -> Self {
        let statements = [statement].into_iter().chain(lookup).collect();
        Insert { statements, jobs }
    }

    /// Returns the ids of the jobs in their order, from the numbers that the last statement returned.
    pub fn ids(&self, numbers: Vec<i64>) -> Vec<i64> {
        let jobs = i64::try_from(self.jobs).unwrap_or(i64::MAX);
        match numbers[..] {
            // It is that of the last job. The others were inserted just before it.
            [last] => (last - jobs + 1..=last).collect(),
            _ => numbers,
        }
    }
}

impl NewJob {
    /// Returns the statement that enqueues the job.
    ///
    /// On Postgres it calls the function `windlass_enqueue_v2`, and returns the id of the job. On SQLite it inserts into the
    /// view of that name, and returns nothing; see [`lookup`](Self::lookup).
    ///
    /// Only columns with a value are in the statement, so a program has few distinct statements, and a driver can keep
    /// them prepared.
    pub fn statement(&self, database: Database) -> Statement {
        let columns = self.columns.iter().map(|(name, text)| (*name, text));
        let all: Vec<(&str, &String)> = [("class", &self.class)]
            .into_iter()
            .chain(columns)
            .collect();
        let numbered = all
            .iter()
            .enumerate()
            .map(|(place, (column, _))| (column, cast(database, place + 1, Kind::of(column))));
        let sql = match database {
            Database::Postgres => {
                let given = numbered.map(|(column, value)| format!("{column} => {value}"));
                let given: Vec<String> = given.collect();
                format!("SELECT windlass_enqueue_v2({}) AS id", given.join(", "))
            }
            Database::Sqlite => {
                let (names, values): (Vec<&str>, Vec<String>) = numbered.unzip();
                let (names, values) = (names.join(", "), values.join(", "));
                format!("INSERT INTO windlass_enqueue_v2 ({names}) VALUES ({values})")
            }
        };
        let values = all.into_iter().map(|(_, text)| text.clone()).collect();
        Statement { sql, values }
    }

    /// Returns the query for the job's id on SQLite. Run it right after the [`statement`](Self::statement), in the same
    /// transaction.
    pub fn lookup(&self) -> Statement {
        let (mut sql, mut values) = ("SELECT coalesce(".to_owned(), Vec::new());
        let by_key = "SELECT id FROM solid_queue_jobs WHERE idempotency_key = ?";
        // The job that the row names, or the one that ends before it, if another program deleted the first.
        let by_id = "SELECT j.id FROM windlass_unique_jobs u \
             JOIN solid_queue_jobs j ON j.id IN (u.job_id, u.after_job_id) WHERE u.unique_id = ? \
             ORDER BY j.id = u.job_id DESC LIMIT 1";
        for (column, query) in [("idempotency_key", by_key), ("unique_id", by_id)] {
            if let Some(text) = self.columns.get(column) {
                values.push(text.clone());
                let query = query.replace('?', &format!("?{}", values.len()));
                sql = format!("{sql}({query}), ");
            }
        }
        let newest = "SELECT seq FROM sqlite_sequence WHERE name = 'solid_queue_jobs'";
        let sql = match values.is_empty() {
            true => format!("SELECT ({newest}) AS id"),
            false => format!("{sql}({newest})) AS id"),
        };
        Statement { sql, values }
    }

    /// Returns the [`statement`](Self::statement), and the [`lookup`](Self::lookup) if the database needs it.
    pub fn insert(&self, database: Database) -> Insert {
        Insert::new(self.statement(database), self.lookup_on(database), 1)
    }

    fn lookup_on(&self, database: Database) -> Option<Statement> {
        (database == Database::Sqlite).then(|| self.lookup())
    }

    /// Returns whether the rest of two jobs is the same, and none of it names one job.
    fn differs_in_arguments_alone(&self, other: &NewJob) -> bool {
        let rest = |job: &NewJob| {
            let columns = job
                .columns
                .iter()
                .filter(|(column, _)| **column != ARGUMENTS);
            columns
                .map(|(column, text)| (*column, text.clone()))
                .collect::<Vec<_>>()
        };
        !self.is_named() && rest(self) == rest(other)
    }

    /// Returns the job as an object of a list, or `None` if it cannot be written as one.
    fn in_list(&self) -> Option<String> {
        let mut object = String::new();
        for (column, text) in &self.columns {
            let value = match Kind::of(column) {
                Kind::Text | Kind::Time => serde_json::to_string(text).ok()?,
                Kind::Boolean => (text == "1").to_string(),
                Kind::Json | Kind::Integer | Kind::Bigint | Kind::Real => {
                    // The text stays as it is. Text that is not JSON could name the columns of another job.
                    serde_json::from_str::<IgnoredAny>(text).ok()?;
                    text.clone()
                }
            };
            let start = if object.is_empty() { '{' } else { ',' };
            write!(object, "{start}\"{column}\":{value}").ok()?;
        }
        if object.is_empty() {
            object.push('{');
        }
        object.push('}');
        Some(object)
    }
}

/// The type of a column: how its text is cast, and how it is written in a list.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// A text that is JSON. In a list it is a value of JSON.
    Json,
    Time,
    Integer,
    Bigint,
    Real,
    /// `0` or `1`.
    Boolean,
}

impl Kind {
    fn of(column: &str) -> Self {
        match column {
            "arguments" | "tags" | "meta" | "rates" => Kind::Json,
            "run_at" | "not_after" => Kind::Time,
            "priority" => Kind::Integer,
            "max_attempts" | "max_crashes" | "concurrency_limit" | "version" | "batch_id"
            | "after_batch" => Kind::Bigint,
            "at_most_once" => Kind::Boolean,
            seconds if seconds.ends_with("_seconds") => Kind::Real,
            _ => Kind::Text,
        }
    }
}

/// Returns a parameter as a value of the column's type. On Postgres, the type of the parameter is `text`.
fn cast(database: Database, number: usize, kind: Kind) -> String {
    let kind = match (database, kind) {
        (Database::Postgres, Kind::Text | Kind::Json) => {
            return format!("CAST(${number} AS text)");
        }
        (Database::Postgres, Kind::Time) => "timestamptz",
        (Database::Postgres, Kind::Integer) => "integer",
        (Database::Postgres, Kind::Bigint) => "bigint",
        (Database::Postgres, Kind::Real) => "double precision",
        (Database::Postgres, Kind::Boolean) => "boolean",
        (Database::Sqlite, Kind::Text | Kind::Json | Kind::Time) => return format!("?{number}"),
        (Database::Sqlite, Kind::Real) => return format!("CAST(?{number} AS real)"),
        (Database::Sqlite, Kind::Integer | Kind::Bigint | Kind::Boolean) => {
            return format!("CAST(?{number} AS integer)");
        }
    };
    format!("CAST(CAST(${number} AS text) AS {kind})")
}

/// The most jobs of one list.
const MOST_IN_LIST: usize = 500;

/// Returns the statements that enqueue these jobs in their order, in few statements: one for each run of up to 500 jobs
/// of the same class.
///
/// Run all of them in one transaction, so that all jobs are enqueued or none. On SQLite, a job with a unique id or an
/// idempotency key has a statement of its own, because only so its id can be found.
///
/// ```
/// use windlass_enqueue::{Database, NewJob, statements_for_all};
///
/// let jobs: Vec<NewJob> = (0..1000).map(|n| NewJob::of_class("import", n.to_string())).collect();
/// assert_eq!(statements_for_all(&jobs, Database::Postgres).len(), 2);
/// ```
pub fn statements_for_all(jobs: &[NewJob], database: Database) -> Vec<Insert> {
    if let [job] = jobs {
        return vec![job.insert(database)];
    }
    let mut inserts = Vec::new();
    let mut list = List::default();
    for job in jobs {
        let is_alone = database == Database::Sqlite && job.is_named();
        let object = if is_alone { None } else { job.in_list() };
        if object.is_none() || !list.takes(job) {
            inserts.extend(std::mem::take(&mut list).insert(database));
        }
        match object {
            Some(object) => list.add(job, &object),
            None => inserts.push(job.insert(database)),
        }
    }
    inserts.extend(list.insert(database));
    inserts
}

/// The jobs of one class that the next statement enqueues.
#[derive(Default)]
struct List<'j> {
    jobs: Vec<&'j NewJob>,
    json: String,
}

impl<'j> List<'j> {
    fn takes(&self, job: &NewJob) -> bool {
        let first = self.jobs.first();
        first.is_none_or(|first| first.class == job.class) && self.jobs.len() < MOST_IN_LIST
    }

    fn add(&mut self, job: &'j NewJob, object: &str) {
        self.json.push(if self.jobs.is_empty() { '[' } else { ',' });
        self.json.push_str(object);
        self.jobs.push(job);
    }

    fn insert(self, database: Database) -> Option<Insert> {
        let first = *self.jobs.first()?;
        if self.jobs.len() == 1 {
            return Some(first.insert(database));
        }
        if self
            .jobs
            .iter()
            .all(|job| job.differs_in_arguments_alone(first))
        {
            return Some(each(first, &self.jobs, database));
        }
        let sql = match database {
            Database::Postgres => {
                "SELECT windlass_enqueue_many_v2(CAST($1 AS text), CAST(CAST($2 AS text) AS json)) AS id"
            }
            Database::Sqlite => {
                "INSERT INTO windlass_enqueue_many_v2 (class, jobs) VALUES (?1, ?2)"
            }
        };
        let statement = Statement {
            sql: sql.to_owned(),
            values: vec![first.class.clone(), self.json + "]"],
        };
        let lookup = first.lookup_on(database);
        Some(Insert::new(statement, lookup, self.jobs.len()))
    }
}

/// Returns the statements for jobs that differ in their arguments alone: the rest is passed once.
fn each(first: &NewJob, jobs: &[&NewJob], database: Database) -> Insert {
    let (sql, open, close) = match database {
        Database::Postgres => (
            "SELECT windlass_enqueue_each_v2(CAST($1 AS text), CAST(CAST($2 AS text) AS text[]), \
             CAST(CAST($3 AS text) AS json)) AS id",
            '{',
            '}',
        ),
        Database::Sqlite => (
            "INSERT INTO windlass_enqueue_each_v2 (class, arguments, options) VALUES (?1, ?2, ?3)",
            '[',
            ']',
        ),
    };
    let mut texts = String::from(open);
    for (place, job) in jobs.iter().enumerate() {
        if place > 0 {
            texts.push(',');
        }
        quote(
            &mut texts,
            job.columns.get(ARGUMENTS).map_or("null", String::as_str),
        );
    }
    texts.push(close);
    let mut options = first.clone();
    options.columns.remove(ARGUMENTS);
    // Only its arguments could not be written.
    let options = options.in_list().unwrap_or_default();
    let statement = Statement {
        sql: sql.to_owned(),
        values: vec![first.class.clone(), texts, options],
    };
    Insert::new(statement, first.lookup_on(database), jobs.len())
}

/// Adds JSON text as an element of an array. Both databases take the same escapes: JSON has the characters below the space
/// between its parts alone, where a space means the same.
fn quote(texts: &mut String, json: &str) {
    texts.push('"');
    for character in json.chars() {
        match character {
            '"' | '\\' => texts.extend(['\\', character]),
            '\0'..' ' => texts.push(' '),
            other => texts.push(other),
        }
    }
    texts.push('"');
}
