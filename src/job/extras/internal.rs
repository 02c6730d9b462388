//! Classes whose jobs are not enqueued by name.

use crate::db::Conn;
use crate::db::table::classes;
use crate::error::{Doing, Error, Result};

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
