//! What a database does only where a Rails app shares it.

use crate::db::AsConn;
use crate::db::schema::beside_rails::RailsOption;
use crate::db::schema::compare::Migrated;
use crate::db::schema::migrate::migrate;
use crate::db::table::run_time::settings;
use crate::error::{Doing, Result};

/// Turns an option on or off, and returns what was done. Setting it to what it is does nothing.
///
/// It needs the rights that [`migrate`](crate::migrate) needs, and completes the tables as that does. In `windlass`, it is
/// `migrate --wake-from-ruby on`, and `migrate --active-job-envelopes on`.
///
/// # Errors
/// As for [`migrate`](crate::migrate).
pub fn set_rails_option<C: AsConn + ?Sized>(
    conn: &mut C,
    option: RailsOption,
    on: bool,
) -> Result<Migrated> {
    // The settings may have no table yet.
    let mut migrated = migrate(conn)?;
    settings::set(&mut conn.as_conn(), option.setting(), on).doing("change the settings")?;
    let more = migrate(conn)?;
    migrated.completed.extend(more.completed);
    Ok(migrated)
}
