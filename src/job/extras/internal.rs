//! Classes that only the program's own code may enqueue.

use crate::db::Conn;
use crate::db::table::classes;
use crate::error::{Doing, Error, Result};

/// Refuses classes that a worker has stored as internal.
pub(crate) fn refuse_internal(conn: &mut Conn<'_>, classes: &[&str]) -> Result<()> {
    if classes.is_empty() {
        return Ok(());
    }
    let internal = classes::first_internal(conn, classes).doing("look the class up")?;
    internal.map_or(Ok(()), |class| Err(Error::InternalClass { class }))
}
