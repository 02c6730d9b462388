//! Classes whose jobs are not enqueued by name.

use crate::db::Conn;
use crate::db::model::new_row::{NewQuota, NewRow};
use crate::db::table::classes;
use crate::error::{Doing, Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Refuses the classes of jobs that were given by name, and gives the others the quota of their class. Those of Ruby are
/// known to no worker of Rust, and jobs that wait for others have no quota.
pub(crate) fn refuse_named(conn: &mut Conn<'_>, rows: &mut [NewRow]) -> Result<()> {
    let (mut names, mut of_ruby) = (BTreeSet::new(), BTreeSet::new());
    for row in rows.iter().filter(|row| row.by_name) {
        match row.active_job_id {
            Some(_) => of_ruby.insert(&*row.class_name),
            None => names.insert(&*row.class_name),
        };
    }
    let quotas = checked(conn, &names.into_iter().collect::<Vec<_>>())?;
    for name in of_ruby {
        match refuse_classes(conn, &[name]) {
            Err(Error::UnknownClass { .. }) => {}
            refused => refused?,
        }
    }
    let by_name = rows.iter_mut().filter(|row| row.by_name);
    for row in by_name.filter(|row| row.active_job_id.is_none() && row.follows.is_none()) {
        let quota = quotas.get(&row.class_name);
        row.quota = row.quota.take().or_else(|| quota.cloned());
    }
    Ok(())
}

/// Refuses classes that a worker has stored as internal and, if unknown classes are refused, those
/// that no worker has stored.
pub(crate) fn refuse_classes(conn: &mut Conn<'_>, names: &[&str]) -> Result<()> {
    checked(conn, names).map(drop)
}

/// Does the same, and returns the quotas that the others have.
fn checked(conn: &mut Conn<'_>, names: &[&str]) -> Result<BTreeMap<String, NewQuota>> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut quotas = BTreeMap::new();
    for found in classes::with_rules(conn, names).doing("look the class up")? {
        let class = found.class_name;
        if found.internal {
            return Err(Error::InternalClass { class });
        } else if !found.is_known {
            return Err(Error::UnknownClass { class });
        }
        let quota = NewQuota::of_column(found.quota.as_deref());
        quotas.extend(quota.map(|quota| (class, quota)));
    }
    Ok(quotas)
}
