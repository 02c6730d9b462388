//! Refusing jobs that wait for what is not stored.

use crate::db::Conn;
use crate::db::model::extras::Follows;
use crate::db::model::new_row::NewRow;
use crate::db::table::flows::{batches, parents};
use crate::error::{Doing, Error, Result};
use std::collections::{BTreeMap, BTreeSet};

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
pub(crate) fn name_unknown<'r, T>(
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
        let unknown = parents::first_unknown(conn, &ids).doing("look up what a job waits for")?;
        if let Some(parent) = unknown {
            let class = jobs.get(&parent).copied().unwrap_or_default().to_owned();
            return Err(Error::NoSuchParent { class, parent });
        }
    }
    if !of_batches.is_empty() {
        let of_batches: Vec<i64> = of_batches.into_iter().collect();
        let unknown = batches::first_unknown(conn, &of_batches);
        if let Some(id) = unknown.doing("look up what a job waits for")? {
            return Err(Error::NoSuchBatch { id });
        }
    }
    Ok(())
}
