//! `windlass_wanted_keys`: requests to a promotion.
//!
//! Most ask for the blocked jobs of a concurrency key, which stands in `key`: a text of a user. All others have a `kind`
//! and name what they are about in columns of their own, so that no key is ever one of them.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, MaybeLossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::waits_for_others;
use crate::mutant;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use std::collections::{BTreeMap, BTreeSet};

#[derive(QueryableByName)]
pub(crate) struct ConcurrencyKey {
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) concurrency_key: Option<String>,
}

/// Returns the distinct keys of the rows that a statement returned.
pub(crate) fn keys(rows: Vec<ConcurrencyKey>) -> BTreeSet<String> {
    rows.into_iter()
        .filter_map(|row| row.concurrency_key)
        .collect()
}

/// Returns keys in the form that `{rows $1}` takes.
pub(crate) fn key_list<'k>(keys: impl IntoIterator<Item = &'k String>) -> String {
    let rows: Vec<[&String; 1]> = keys.into_iter().map(|key| [key]).collect();
    serde_json::to_string(&rows).unwrap_or_default()
}

/// The kind of requests to look whether a batch is over. Their `amount` is how many jobs were added to it.
pub const BATCH: &str = "batch";

/// The kind of requests to look what waited for a job. Their `amount` is 1 if the job was retried.
pub(crate) const ENDED: &str = "ended";

/// The kind of requests to look whether the parents of a job are over.
pub const CHILD: &str = "after";

/// The kind of requests to look which jobs wait for an event.
pub(crate) const EVENT: &str = "event";

/// The kind of requests to look whether the wait of a job is over.
pub(crate) const WAIT: &str = "wait";

/// The kind of requests to give slots back to a semaphore of Ruby. Their `amount` is how many.
pub(crate) const SEMAPHORE: &str = "semaphore";

/// The kind of requests to let jobs of a line through their gates.
pub(crate) const GATE: &str = "gate";

/// A request to a promotion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NewRequest {
    /// The blocked jobs of a concurrency key.
    Key(String),
    /// A batch.
    Batch(i64),
    /// A batch, and a number of jobs that were added to it.
    Added(i64, i64),
    /// A job that others wait for.
    Ended(i64),
    /// A job that was retried, and still counts as failed for some that wait for it.
    Retried(i64),
    /// A job that waits for others.
    Child(i64),
    /// An event.
    Event(String),
    /// A job that waits for an event.
    Wait(i64),
    /// A semaphore of Ruby, and how many of its slots are given back.
    Semaphore(i64, i64),
    /// A line of jobs with rates.
    Gate(String),
}

/// The columns `key`, `kind`, `target_id`, `amount` and `name` of a request.
type Columns<'r> = (
    Option<&'r str>,
    Option<&'static str>,
    Option<i64>,
    Option<i64>,
    Option<&'r str>,
);

impl NewRequest {
    fn columns(&self) -> Columns<'_> {
        let of = |kind, id: &i64, amount| (None, Some(kind), Some(*id), amount, None);
        match self {
            NewRequest::Key(key) => (Some(key), None, None, None, None),
            NewRequest::Batch(id) => of(BATCH, id, None),
            NewRequest::Added(id, jobs) => of(BATCH, id, Some(*jobs)),
            NewRequest::Ended(id) => of(ENDED, id, None),
            NewRequest::Retried(id) => of(ENDED, id, Some(1)),
            NewRequest::Child(id) => of(CHILD, id, None),
            NewRequest::Event(name) => (None, Some(EVENT), None, None, Some(name)),
            NewRequest::Gate(line) => (None, Some(GATE), None, None, Some(line)),
            NewRequest::Wait(id) => of(WAIT, id, None),
            NewRequest::Semaphore(id, slots) => of(SEMAPHORE, id, Some(*slots)),
        }
    }
}

/// Writes requests, and wakes sleeping workers.
pub(crate) fn request(
    conn: &mut Conn<'_>,
    requests: impl IntoIterator<Item = NewRequest>,
) -> QueryResult<()> {
    let requests: Vec<NewRequest> = requests.into_iter().collect();
    if requests.is_empty() {
        return Ok(());
    }
    insert_requests(conn, &requests)?;
    crate::db::conn::listening::notify(conn, requests.len())
}

/// Writes requests without waking workers, which could do no more at present than the caller did.
pub(crate) fn request_later(
    conn: &mut Conn<'_>,
    requests: impl IntoIterator<Item = NewRequest>,
) -> QueryResult<()> {
    let requests: Vec<NewRequest> = requests.into_iter().collect();
    match requests.is_empty() {
        true => Ok(()),
        false => insert_requests(conn, &requests),
    }
}

fn insert_requests(conn: &mut Conn<'_>, requests: &[NewRequest]) -> QueryResult<()> {
    // An existing request is enough on SQLite: see `insert_keys`. One with a number is not the same.
    let unless_there = match conn.dialect() {
        Dialect::Postgres => "true",
        Dialect::Sqlite => {
            "NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key = value ->> 0) \
             AND (value ->> 3 IS NOT NULL OR NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w \
               WHERE w.key IS NULL AND w.target_id IS value ->> 2 AND w.name IS value ->> 4 AND w.kind = value ->> 1 AND w.amount IS NULL))"
        }
    };
    let text = format!(
        "INSERT INTO windlass_wanted_keys (key, kind, target_id, amount, name) \
         SELECT value ->> 0, value ->> 1, CAST(value ->> 2 AS bigint), CAST(value ->> 3 AS bigint), value ->> 4 \
         FROM {{rows $1}} WHERE {unless_there}"
    );
    let rows: Vec<Columns<'_>> = requests.iter().map(NewRequest::columns).collect();
    let rows = serde_json::to_string(&rows).unwrap_or_default();
    Statement::new(text).bind(rows).execute(conn)
}

/// Requests the promotion of keys, and wakes sleeping workers.
pub(crate) fn request_promotion(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    insert_keys(conn, keys)?;
    crate::db::conn::listening::notify(conn, keys.len())
}

/// Requests the promotion of keys without waking workers, which could do no more at present than
/// the caller did.
pub(crate) fn request_promotion_later(
    conn: &mut Conn<'_>,
    keys: &BTreeSet<String>,
) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    insert_keys(conn, keys)
}

fn insert_keys(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    // On SQLite, with one writer at a time, an existing request is enough: it is handled after this
    // transaction. Elsewhere it may be handled just before this transaction commits.
    let unless_named = match conn.dialect() {
        Dialect::Postgres => "true",
        Dialect::Sqlite => {
            "NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key = value ->> 0)"
        }
    };
    let text = format!(
        "INSERT INTO windlass_wanted_keys (key) SELECT value ->> 0 FROM {{rows $1}} WHERE {unless_named}"
    );
    Statement::new(text).bind(key_list(keys)).execute(conn)
}

/// Returns an expression for whether a promotion is requested that looks at `id`.
pub fn is_requested_sql(kind: &str, id: &str) -> String {
    format!(
        "(SELECT k.id FROM windlass_wanted_keys k WHERE k.key IS NULL AND k.target_id = {id} AND k.kind = '{kind}' LIMIT 1) IS NOT NULL"
    )
}

/// Returns those of the jobs that were retried, and still count as failed for some that wait for them.
pub(crate) fn retried(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<BTreeSet<i64>> {
    if jobs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let text = format!(
        "SELECT target_id AS id FROM windlass_wanted_keys WHERE key IS NULL AND target_id IN {{in $1}} \
         AND kind = '{ENDED}' AND amount IS NOT NULL"
    );
    let rows: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// The most requests of locked keys that a promotion passes on its way to others.
const PASSED: usize = 10_000;

/// Returns the CTEs of a statement that takes requests: `taken` has the ids of the `$2` oldest after the id `$1` of which no
/// other transaction has locked what they name. On Postgres they lock that until the transaction ends.
///
/// These are advisory locks, not rows: an unused key needs no storage and no cleaning, and a Rails app's own semaphores
/// are not touched. None is waited for, since it may be that of a frozen client. The requests of a locked key stay as they
/// are: the transaction that has locked it looks for requests once more after its commit.
fn taken_ctes(dialect: Dialect) -> String {
    // No other connection writes during a transaction of SQLite.
    if dialect == Dialect::Sqlite || mutant::is("promote_without_lock") {
        return "taken AS MATERIALIZED (SELECT id FROM windlass_wanted_keys WHERE id > $1 ORDER BY id LIMIT $2 {lock skip})"
            .to_owned();
    }
    let lock = try_lock(&format!(
        "coalesce(kind, '') || ' ' || coalesce(key, CASE WHEN kind = '{GATE}' \
           THEN nullif(split_part(split_part(split_part(name, chr(30), 1), chr(31), 1), chr(28), 1), '') END, name, CAST(target_id AS text), '')"
    ));
    format!(
        "seen AS MATERIALIZED (SELECT id, key, kind, target_id, name FROM windlass_wanted_keys WHERE id > $1 \
           ORDER BY id LIMIT {PASSED}), \
         free AS MATERIALIZED (SELECT id FROM seen WHERE {lock} LIMIT $2), \
         taken AS MATERIALIZED (SELECT id FROM windlass_wanted_keys WHERE id IN {{in SELECT id FROM free}} {{lock skip}})"
    )
}

/// Returns an expression of Postgres that locks what a request is about until the transaction ends, if no other transaction
/// has locked it: its kind, a blank, and its key. The request of a line locks the first gate of the line.
///
/// The first number ("WIND") keeps clear of the application's own locks, the table's oid of other schemas of the same
/// database.
fn try_lock(name: &str) -> String {
    format!(
        "pg_try_advisory_xact_lock(1464422980, hashtext( \
           (SELECT CAST(CAST(CAST('windlass_wanted_keys' AS regclass) AS oid) AS text)) || ' ' || {name}))"
    )
}

#[derive(QueryableByName)]
struct LockedName {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Locks gates as the requests of them do: rates, and the concurrency keys of lines. Returns those that no other transaction
/// has locked.
pub(crate) fn lock_gates(
    conn: &mut Conn<'_>,
    rates: &BTreeSet<String>,
    limits: &BTreeSet<String>,
) -> QueryResult<BTreeSet<String>> {
    let rates = rates.iter().map(|key| format!("{GATE} {key}"));
    let limits = limits.iter().map(|key| format!(" {key}"));
    let names: BTreeSet<String> = rates.chain(limits).collect();
    if conn.dialect() == Dialect::Sqlite || mutant::is("promote_without_lock") {
        return Ok(names);
    }
    let text = format!(
        "SELECT value ->> 0 AS name FROM {{rows $1}} WHERE {}",
        try_lock("(value ->> 0)")
    );
    let locked: Vec<LockedName> = Statement::new(text).bind(key_list(&names)).load(conn)?;
    Ok(locked.into_iter().map(|row| row.name).collect())
}

/// Puts the request that would be taken next behind all others, because its promotion was refused, and counts that.
pub(crate) fn postpone(conn: &mut Conn<'_>, after: i64) -> QueryResult<()> {
    let last = match conn.dialect() {
        Dialect::Postgres => "DEFAULT",
        Dialect::Sqlite => "(SELECT max(id) + 1 FROM windlass_wanted_keys)",
    };
    let text = format!(
        "WITH {} UPDATE windlass_wanted_keys SET id = {last}, failures = coalesce(failures, 0) + 1 \
         WHERE id IN {{in SELECT id FROM taken}}",
        taken_ctes(conn.dialect())
    );
    Statement::new(text)
        .uncached()
        .bind(after)
        .bind(1_i64)
        .execute(conn)
}

/// Notes that requests wait, up to `most` of those of which that is not noted yet.
pub(crate) fn note_waiting(conn: &mut Conn<'_>, most: usize) -> QueryResult<()> {
    // First a read: mostly there is none, and an UPDATE takes SQLite's write lock.
    let text = format!("SELECT {} AS is_wanted", is_requested_after("$1"));
    let any: PromotionRequest = Statement::new(text).bind(BEGINNING).get_result(conn)?;
    if !any.is_wanted {
        return Ok(());
    }
    let text = "WITH new AS MATERIALIZED (SELECT id FROM windlass_wanted_keys WHERE waiting_since IS NULL \
           ORDER BY id LIMIT $1 {lock skip}) \
         UPDATE windlass_wanted_keys SET waiting_since = {now} WHERE id IN {in SELECT id FROM new}";
    Statement::new(text)
        .uncached()
        .bind(most as i64)
        .execute(conn)
}

/// The id before all requests.
pub(crate) const BEGINNING: i64 = 0;

/// Returns an expression for whether a promotion was requested after the request with this id, for
/// statements that are sent anyway.
///
/// Postgres keeps handled requests in the index until the next vacuum, which a long transaction
/// delays. A read from the beginning passes all of them, so a loop remembers the last id.
pub(crate) fn is_requested_after(id: &str) -> String {
    format!("EXISTS (SELECT 1 FROM windlass_wanted_keys WHERE id > {id})")
}

#[derive(QueryableByName)]
pub(crate) struct PromotionRequest {
    #[diesel(sql_type = Bool)]
    pub(crate) is_wanted: bool,
}

#[derive(QueryableByName)]
struct LastId {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Returns the last id given to a request, also by a transaction that is still open. Returns
/// [`BEGINNING`] if it cannot be read, and on SQLite, which keeps no dead rows.
pub(crate) fn last_id(conn: &mut Conn<'_>) -> QueryResult<i64> {
    match conn.dialect() {
        // A user with permission to insert may have none on the sequence.
        Dialect::Postgres => Statement::new(
            "SELECT coalesce(CASE WHEN has_sequence_privilege(name, 'SELECT') THEN pg_sequence_last_value(name) END, 0) \
             AS id FROM (SELECT CAST(pg_get_serial_sequence('windlass_wanted_keys', 'id') AS regclass) AS name) AS ids",
        )
        .get_result::<LastId>(conn)
        .map(|last| last.id),
        Dialect::Sqlite => Ok(BEGINNING),
    }
}

#[derive(QueryableByName)]
struct RequestRow {
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    key: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    kind: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    target_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    amount: Option<i64>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    name: Option<String>,
}

impl RequestRow {
    /// Returns the request, or `None` if it is none that Windlass writes.
    fn request(&self) -> Option<NewRequest> {
        let Some(kind) = &self.kind else {
            let key = self.key.as_ref().filter(|key| !waits_for_others(key));
            return key.cloned().map(NewRequest::Key);
        };
        match (&**kind, self.target_id, self.amount) {
            (BATCH, Some(id), None) => Some(NewRequest::Batch(id)),
            (BATCH, Some(id), Some(jobs)) if jobs >= 0 => Some(NewRequest::Added(id, jobs)),
            (ENDED, Some(id), None) => Some(NewRequest::Ended(id)),
            (ENDED, Some(id), Some(_)) => Some(NewRequest::Retried(id)),
            (CHILD, Some(id), _) => Some(NewRequest::Child(id)),
            (EVENT, None, _) => self.name.clone().map(NewRequest::Event),
            (GATE, None, None) => self.name.clone().map(NewRequest::Gate),
            (WAIT, Some(id), _) => Some(NewRequest::Wait(id)),
            (SEMAPHORE, Some(id), Some(slots)) if slots > 0 => {
                Some(NewRequest::Semaphore(id, slots))
            }
            _ => None,
        }
    }
}

/// The keys, jobs, batches and events to look at in a promotion, each once.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The number of requests.
    pub(crate) taken: usize,
    /// Those of them that no program of Windlass writes, in words.
    pub(crate) invalid: Vec<String>,
    pub(crate) keys: BTreeSet<String>,
    /// The number of jobs that were added to each.
    pub(crate) batches: BTreeMap<i64, i64>,
    pub(crate) ended: BTreeSet<i64>,
    /// Those of them that were retried.
    pub(crate) retried: BTreeSet<i64>,
    pub(crate) children: BTreeSet<i64>,
    pub(crate) events: BTreeSet<String>,
    pub(crate) waits: BTreeSet<i64>,
    /// The number of slots that each gets back.
    pub(crate) semaphores: BTreeMap<i64, i64>,
    /// The lines of jobs with rates.
    pub(crate) lines: BTreeSet<String>,
}

impl Requests {
    fn add(&mut self, request: NewRequest) {
        let sum = |numbers: &mut BTreeMap<i64, i64>, id, number| {
            let all = numbers.entry(id).or_default();
            *all = all.saturating_add(number);
        };
        match request {
            NewRequest::Key(key) => drop(self.keys.insert(key)),
            NewRequest::Batch(id) => sum(&mut self.batches, id, 0),
            NewRequest::Added(id, jobs) => sum(&mut self.batches, id, jobs),
            NewRequest::Ended(id) => drop(self.ended.insert(id)),
            NewRequest::Retried(id) => {
                self.ended.insert(id);
                self.retried.insert(id);
            }
            NewRequest::Child(id) => drop(self.children.insert(id)),
            NewRequest::Event(name) => drop(self.events.insert(name)),
            NewRequest::Wait(id) => drop(self.waits.insert(id)),
            NewRequest::Semaphore(id, slots) => sum(&mut self.semaphores, id, slots),
            NewRequest::Gate(line) => drop(self.lines.insert(line)),
        }
    }
}

/// Takes up to `chunk` of the oldest requests after the id `after` that are not locked, and locks what they name until the
/// transaction ends.
///
/// One that cannot be read, as it was written by hand, stops no other: it is deleted, and returned in words.
pub(crate) fn take(conn: &mut Conn<'_>, after: i64, chunk: usize) -> QueryResult<Requests> {
    let text = format!(
        "WITH {} DELETE FROM windlass_wanted_keys WHERE id IN {{in SELECT id FROM taken}} \
         RETURNING key, kind, target_id, amount, name",
        taken_ctes(conn.dialect())
    );
    let rows: Vec<RequestRow> = Statement::new(text)
        .bind(after)
        .bind(chunk as i64)
        .load(conn)?;
    let mut requests = Requests {
        taken: rows.len(),
        ..Requests::default()
    };
    for row in rows {
        match row.request() {
            Some(request) => requests.add(request),
            None => requests.invalid.push(format!(
                "kind {:?}, target_id {:?}, amount {:?}",
                row.kind, row.target_id, row.amount
            )),
        }
    }
    Ok(requests)
}
