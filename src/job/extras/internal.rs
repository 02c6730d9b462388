//! Classes whose jobs are not enqueued by name.

use crate::db::Conn;
use crate::db::model::new_row::NewRow;
use crate::db::table::classes;
use crate::error::{Doing, Error, Result};
use std::collections::BTreeSet;

/// Refuses the classes of jobs that were given by name. Those of Ruby are known to no worker of Rust.
pub(crate) fn refuse_named<'r>(
    conn: &mut Conn<'_>,
    rows: impl IntoIterator<Item = &'r NewRow>,
) -> Result<()> {
    let (mut names, mut of_ruby) = (BTreeSet::new(), BTreeSet::new());
    for row in rows.into_iter().filter(|row| row.by_name) {
        match row.active_job_id {
            Some(_) => of_ruby.insert(&*row.class_name),
            None => names.insert(&*row.class_name),
        };
    }
    refuse_classes(conn, &names.into_iter().collect::<Vec<_>>())?;
    for name in of_ruby {
        match refuse_classes(conn, &[name]) {
            Err(Error::UnknownClass { .. }) => {}
            refused => refused?,
        }
    }
    Ok(())
}

/// Refuses classes that a worker has stored as internal and, if unknown classes are refused, those
/// that no worker has stored.
pub(crate) fn refuse_classes(conn: &mut Conn<'_>, names: &[&str]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let refused = classes::first_refused(conn, names).doing("look the class up")?;
    refused.map_or(Ok(()), |refused| {
        let class = refused.class_name;
        Err(match refused.internal {
            true => Error::InternalClass { class },
            false => Error::UnknownClass { class },
        })
    })
}
