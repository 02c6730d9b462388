//! The systems that this program drives itself, and not another package of its own.

pub(crate) mod apalis_postgres;
pub(crate) mod apalis_sqlite;
pub(crate) mod fang;
pub(crate) mod graphile;
pub(crate) mod river;

use anyhow::Result;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// Connections for the inserts of a peer's jobs: one for each of 16 workers.
pub(crate) const JOB_CONNECTIONS: u32 = 16;

diesel::table! {
    /// The table into which the jobs of [`Work::Insert`](windlass_peers_driver::Work::Insert) insert.
    effects (number) {
        number -> BigInt,
    }
}

/// With so many connections open, so that none is opened later, which are not asked before each
/// use whether they are well.
pub(crate) async fn postgres(url: &str, connections: u32, at_most: u32) -> Result<PgPool> {
    let pool = PgPoolOptions::new()
        .max_connections(at_most)
        .test_before_acquire(false)
        .connect(url)
        .await?;
    let mut held = Vec::new();
    for _ in 0..connections {
        held.push(pool.acquire().await?);
    }
    drop(held);
    Ok(pool)
}
