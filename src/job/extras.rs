//! The properties of a job beside its arguments, and the callers that may enqueue or see it.

use crate::db::model::extras::Follows;
use crate::db::model::new_row::{NewQuota, NewRow};
use crate::db::table::classes::{self, NamedClass};
use crate::db::table::flows::{batches, parents};
use crate::db::table::public_tokens::NewPublicToken;
use crate::db::transition::enqueue::public_tokens;
use crate::db::{Conn, Refusal};
use crate::error::{Error, ErrorContext, Result};
use crate::job::bounds::{MAX_ARGUMENTS, ONE_ATTEMPT, beyond_maximum};
use crate::job::policy::backoff::Expiry;
use crate::job::policy::quota::refusal_to_error;
use crate::job::policy::{Delivery, Policy};
use crate::job::{Enqueued, PublicToken, digest};
use std::collections::{BTreeMap, BTreeSet};

// --- Enqueues jobs with public tokens ---

/// The choices to give a job a public token, and to show the job's result with it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PublicAccess {
    pub(crate) wants_token: bool,
    pub(crate) shows_result: bool,
}

impl PublicAccess {
    /// Returns a new token and what to store of it, if the job gets one.
    ///
    /// # Errors
    /// As for [`PublicToken::generate`].
    pub(crate) fn token(self) -> Result<Option<(PublicToken, NewPublicToken)>> {
        if !self.wants_token {
            return Ok(None);
        }
        let token = PublicToken::generate()?;
        let new = NewPublicToken {
            digest: digest(&token.to_string()),
            shows_result: self.shows_result,
        };
        Ok(Some((token, new)))
    }
}

/// Inserts jobs, with the tokens of those that ask for one.
///
/// # Errors
/// As for [`PublicToken::generate`], and if a statement fails.
pub(crate) fn insert_with_tokens(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    accesses: &[PublicAccess],
) -> Result<Vec<Enqueued>> {
    let tokens = accesses.iter().map(|access| access.token());
    let tokens = tokens.collect::<Result<Vec<_>>>()?;
    let (tokens, new): (Vec<_>, Vec<_>) = tokens.into_iter().map(Option::unzip).unzip();
    let inserted = refusal_to_error(public_tokens::insert_all(conn, rows, &new))?;
    let enqueued = inserted
        .into_iter()
        .zip(tokens)
        .map(|((job, is_stored), token)| Enqueued {
            public_token: token.filter(|_| is_stored),
            ..job.into()
        });
    Ok(enqueued.collect())
}

// --- Classes whose jobs are not enqueued by name ---

/// Refuses the classes of jobs that were given by name, and gives the others what their class says and they left out: the
/// quota as well. Those of Ruby are known to no worker of Rust, and jobs that wait for others have no quota.
pub(crate) fn refuse_named(conn: &mut Conn<'_>, rows: &mut [NewRow]) -> Result<()> {
    let (mut names, mut of_ruby) = (BTreeSet::new(), BTreeSet::new());
    for row in rows.iter().filter(|row| row.by_name) {
        match row.active_job_id {
            Some(_) => of_ruby.insert(&*row.class_name),
            None => names.insert(&*row.class_name),
        };
    }
    let known = checked(conn, &names.into_iter().collect::<Vec<_>>())?;
    for name in of_ruby {
        match refuse_classes(conn, &[name]) {
            Err(Error::UnknownClass { .. }) => {}
            refused => refused?,
        }
    }
    let by_name = rows.iter_mut().filter(|row| row.by_name);
    for row in by_name.filter(|row| row.active_job_id.is_none()) {
        let class = known.get(&row.class_name);
        if let Some(class) = class {
            fill_in(row, class);
        }
        if let Some(reason) = wrong_for(row, class) {
            let class = row.class_name.clone();
            return Err(Error::InvalidJob { class, reason });
        }
        if row.follows.is_none() && row.quota.is_none() {
            row.quota = class.and_then(|class| NewQuota::of_column(class.quota.as_deref()));
        }
    }
    Ok(())
}

/// Gives a job what its class says and the enqueue left out.
fn fill_in(row: &mut NewRow, class: &NamedClass) {
    if let (true, Some(queue)) = (row.left_out.queue, &class.queue_name) {
        row.queue_name.clone_from(queue);
    }
    if let (true, Some(priority)) = (row.left_out.priority, class.priority) {
        row.priority = priority;
    }
    row.at_most_once |= row.left_out.delivery && class.at_most_once;
    row.max_crashes = row.max_crashes.or(class.max_crashes);
    if row.left_out.rates && row.rates.is_empty() {
        row.rates = class.rates();
    }
    if !row.at_most_once {
        row.max_attempts = row.max_attempts.or(class.max_attempts);
    }
    if class.policy.is_some() {
        fill_in_policy(row, class.policy.as_deref());
    }
}

/// Gives a job what the policy of its class says beside that.
fn fill_in_policy(row: &mut NewRow, of_class: Option<&str>) {
    let own = Policy::of_columns(row.policy.as_deref(), None, row.at_most_once);
    let mut of_class = Policy::of_columns(of_class, None, true);
    of_class.delivery = of_class
        .delivery
        .filter(|delivery| row.left_out.delivery && *delivery == Delivery::AfterKnownOutcome);
    row.at_most_once |= of_class.delivery.is_some();
    let both = own.or(&of_class);
    row.expiry = row.expiry.or(both.expiry.map(Expiry::to_store));
    row.policy = both.to_column();
    row.unique_scope = both.unique_scope.unwrap_or_default();
}

/// Returns what is wrong with a job of a class, which may be unknown.
fn wrong_for(row: &NewRow, class: Option<&NamedClass>) -> Option<String> {
    let most = class.and_then(|class| class.max_arguments);
    let most = most.map_or(MAX_ARGUMENTS, |most| usize::try_from(most).unwrap_or(0));
    let is_too_large = row
        .left_out
        .maximum_of
        .and_then(|size| beyond_maximum(size, most));
    let runs_once = class.is_some_and(|class| class.at_most_once);
    let is_once = row.left_out.delivery && runs_once && row.max_attempts > Some(1);
    is_too_large.or_else(|| is_once.then(|| ONE_ATTEMPT.to_owned()))
}

/// Refuses classes that a worker has stored as internal and, if unknown classes are refused, those
/// that no worker has stored.
pub(crate) fn refuse_classes(conn: &mut Conn<'_>, names: &[&str]) -> Result<()> {
    checked(conn, names).map(drop)
}

/// Does the same, and returns the others that a worker has stored.
fn checked(conn: &mut Conn<'_>, names: &[&str]) -> Result<BTreeMap<String, NamedClass>> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut known = BTreeMap::new();
    for found in classes::named(conn, names).during("look the class up")? {
        let class = found.class_name.clone();
        if found.internal {
            return Err(Error::InternalClass { class });
        } else if !found.is_known {
            return Err(Error::UnknownClass { class });
        }
        known.insert(class, found);
    }
    Ok(known)
}

// --- Enqueues that have waited for another transaction with the same name ---

/// The most names in an error.
const FIRST: usize = 5;

/// Says which unique ids and idempotency keys the jobs have, if a lock was not free in time: another transaction with one
/// of them has not ended.
pub(crate) fn name_locked<T>(rows: &[NewRow], enqueued: Result<T>) -> Result<T> {
    let named = rows.iter().find(|row| row.is_named());
    match (enqueued, named) {
        (Err(Error::Query { source, .. }), Some(row)) if Refusal::is_lock_timeout(&source) => {
            Err(Error::NamesLocked {
                class: row.class_name.clone(),
                names: names(rows),
                source,
            })
        }
        (enqueued, _) => enqueued,
    }
}

fn names(rows: &[NewRow]) -> String {
    let of_row = |row: &NewRow| {
        let unique = row
            .unique_id
            .as_ref()
            .map(|id| format!("the unique id `{id}`"));
        let key = row
            .idempotency_key
            .as_ref()
            .map(|key| format!("the idempotency key `{key}`"));
        unique.into_iter().chain(key)
    };
    let mut names: Vec<String> = rows.iter().flat_map(of_row).take(FIRST + 1).collect();
    if names.len() > FIRST {
        names[FIRST] = "another name of the list".to_owned();
    }
    names.join(" or ")
}

// --- Refusing jobs that wait for what is not stored ---

/// Refuses jobs that wait for a job or a batch that is not stored.
pub(crate) fn refuse_unknown(conn: &mut Conn<'_>, rows: &[NewRow]) -> Result<()> {
    refuse_unknown_of(conn, all_of(rows))
}

/// Returns the classes of jobs that wait, with what they wait for.
pub(crate) fn all_of(rows: &[NewRow]) -> impl Iterator<Item = (&str, &Follows)> {
    let all = rows.iter();
    all.filter_map(|row| Some((&*row.class_name, &**row.follows.as_ref()?)))
}

/// Says what a job waits for that is not stored, if that is why it could not be connected: it was deleted after the look
/// above.
pub(crate) fn explain_missing<'r, T>(
    conn: &mut Conn<'_>,
    all: impl Iterator<Item = (&'r str, &'r Follows)>,
    connected: Result<T>,
) -> Result<T> {
    if let Err(Error::Query {
        source: diesel::result::Error::NotFound,
        ..
    }) = &connected
    {
        refuse_unknown_of(conn, all)?;
    }
    connected
}

/// Does the same as [`refuse_unknown`], by the classes of the jobs.
pub(crate) fn refuse_unknown_of<'r>(
    conn: &mut Conn<'_>,
    all: impl Iterator<Item = (&'r str, &'r Follows)>,
) -> Result<()> {
    let (mut jobs, mut of_batches) = (BTreeMap::new(), BTreeSet::new());
    for (class, follows) in all {
        for (parent, _) in &follows.parents {
            jobs.extend(parent.job().map(|job| (job, class)));
            of_batches.extend(parent.batch());
        }
    }
    if !jobs.is_empty() {
        let ids: Vec<i64> = jobs.keys().copied().collect();
        let unknown = parents::first_unknown(conn, &ids).during("look up what a job waits for")?;
        if let Some(parent) = unknown {
            let class = jobs.get(&parent).copied().unwrap_or_default().to_owned();
            return Err(Error::NoSuchParent { class, parent });
        }
    }
    if !of_batches.is_empty() {
        let of_batches: Vec<i64> = of_batches.into_iter().collect();
        let unknown = batches::first_unknown(conn, &of_batches);
        if let Some(id) = unknown.during("look up what a job waits for")? {
            return Err(Error::NoSuchBatch { id });
        }
    }
    Ok(())
}
