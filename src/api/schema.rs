//! The tables: as `windlass migrate` and `windlass migrations` create them.
//!
//! [`migrate`](crate::migrate()) creates or completes them. A program with migrations of its own copies those of Windlass
//! among them.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! use windlass::database::Dialect;
//! use windlass::schema;
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let migrations = dir.path();
//! let made = schema::copy_migrations(Dialect::Sqlite, migrations)?;
//! assert!(made.iter().all(|directory| directory.join("up.sql").exists()));
//!
//! assert!(!windlass::migrate(&mut conn)?.is_empty()); // or without any files
//! assert!(windlass::migrate(&mut conn)?.is_empty(), "nothing is left to do");
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::queues::set_rails_option;
pub use crate::db::schema::beside_rails::RailsOption;
pub use crate::db::schema::compare::Migrated;
pub use crate::db::schema::migrations::copy as copy_migrations;
