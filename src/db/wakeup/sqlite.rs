//! `PRAGMA data_version` changes with every commit of another connection, in
//! whatever process. One look costs about 4 us.

use crate::clock;
use diesel::prelude::*;
use diesel::sql_types::Integer;
use std::time::Duration;

/// Between two looks; the median of the delay it causes is half of it.
const NAP: Duration = Duration::from_millis(3);

pub(crate) struct Listener {
    conn: SqliteConnection,
    seen: i32,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Integer)]
    data_version: i32,
}

impl Listener {
    pub(crate) fn new(mut conn: SqliteConnection) -> Result<Self, String> {
        let seen = look(&mut conn)?;
        Ok(Listener { conn, seen })
    }

    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, String> {
        let start = clock::instant();
        loop {
            let version = look(&mut self.conn)?;
            if version != self.seen {
                self.seen = version;
                return Ok(true);
            }
            if start.elapsed() >= timeout {
                return Ok(false);
            }
            clock::nap(NAP.min(timeout));
        }
    }
}

fn look(conn: &mut SqliteConnection) -> Result<i32, String> {
    super::super::sql::cached(diesel::sql_query("PRAGMA data_version"))
        .get_result::<Version>(conn)
        .map(|row| row.data_version)
        .map_err(|error| error.to_string())
}
