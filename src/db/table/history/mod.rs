//! `windlass_stats_*`: the tables of the history.

pub mod deltas;
pub(crate) mod series;

use crate::db::conn::dialect::Dialect;

/// Returns an expression for the whole seconds from 1970 to a time.
pub(crate) fn epoch(dialect: Dialect, time: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("CAST(floor(extract(epoch FROM {time})) AS bigint)"),
        Dialect::Sqlite => format!("CAST(strftime('%s', {time}) AS integer)"),
    }
}
