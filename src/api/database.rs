//! Kinds of databases and connections, beside [`Database`](crate::Database) and [`AsConn`](crate::AsConn).
//!
//! ```
//! use windlass::Database;
//! use windlass::database::Pooling;
//!
//! /// Returns the kind of pooler that an address names.
//! fn pooler(is_pooled: bool) -> Pooling {
//!     if is_pooled { Pooling::Transaction } else { Pooling::Auto }
//! }
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("jobs.db");
//! let database = Database::open(&format!("sqlite://{}", path.display()))?.pooling(pooler(false));
//! database.migrate()?;
//! assert!(database.connect()?.sqlite().is_ok());
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::db::conn::dialect::Dialect;
pub use crate::db::conn::pooling::pooler::Pooling;
#[cfg(feature = "postgres")]
pub use crate::db::conn::typed::TypedPostgres;
#[cfg(feature = "sqlite")]
pub use crate::db::conn::typed::TypedSqlite;
pub use crate::db::conn::typed::{Backend, Typed};
