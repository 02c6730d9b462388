//! The systems that this program drives itself, and not another package of its own.

pub(crate) mod apalis_postgres;
pub(crate) mod apalis_sqlite;
pub(crate) mod fang;
pub(crate) mod graphile;

/// Connections for the inserts of a peer's jobs: one for each of 16 workers.
pub(crate) const JOB_CONNECTIONS: u32 = 16;

diesel::table! {
    /// The table into which the jobs of [`Work::Insert`](windlass_peers_driver::Work::Insert) insert.
    effects (number) {
        number -> BigInt,
    }
}
