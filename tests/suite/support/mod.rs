//! Parts that all tests share: a database each, jobs, and waiting with a deadline.

#[cfg(feature = "postgres")]
pub mod bouncer;
pub mod catalog;
pub mod chance;
pub mod db;
pub mod dispositions;
pub mod enqueue_by_sql;
pub mod enqueue_rows;
pub mod events;
pub mod example;
pub mod jobs;
pub mod process;
pub mod program;
#[cfg(feature = "postgres")]
pub mod proxy;
#[cfg(feature = "postgres")]
pub mod server;
pub mod solid_queue;
#[path = "../../template.rs"]
pub mod template;
pub mod terminal;
pub mod thread;
pub mod wait;

pub use db::TestDb;

/// The same for tests about crashes and locks: as durable as in production.
#[macro_export]
macro_rules! on_each_durable_database {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {$(
        mod $name {
            $(#[$meta])*
            #[test]
            fn sqlite() {
                super::$name(&$crate::support::TestDb::durable_sqlite());
            }

            $(#[$meta])*
            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                super::$name(&$crate::support::TestDb::durable_postgres());
            }
        }
    )+};
}

/// The same for tests that begin without any table.
#[macro_export]
macro_rules! on_each_empty_database {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {$(
        mod $name {
            $(#[$meta])*
            #[test]
            fn sqlite() {
                super::$name(&$crate::support::TestDb::empty_sqlite());
            }

            $(#[$meta])*
            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                super::$name(&$crate::support::TestDb::empty_postgres());
            }
        }
    )+};
}

/// Runs functions of the form `fn name(db: &TestDb)` on both databases, each
/// in its own file or database: `name::sqlite` and `name::postgres`.
#[macro_export]
macro_rules! on_each_database {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {$(
        mod $name {
            $(#[$meta])*
            #[test]
            fn sqlite() {
                super::$name(&$crate::support::TestDb::sqlite());
            }

            $(#[$meta])*
            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                super::$name(&$crate::support::TestDb::postgres());
            }
        }
    )+};
}

/// Runs functions of the form `fn name(db: &TestDb)` through `PgBouncer` in transaction mode as well:
/// `through_a_pooler::name`.
#[macro_export]
macro_rules! through_a_pooler {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        #[cfg(feature = "postgres")]
        mod through_a_pooler {
            $(
                $(#[$meta])*
                #[test]
                fn $name() {
                    if let Some(db) = $crate::support::TestDb::pooled() {
                        super::$name(&db);
                    }
                }
            )+
        }
    };
}

/// The same in `bin/test all` only: `through_a_pooler_in_all::name`.
#[macro_export]
macro_rules! through_a_pooler_in_all {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        #[cfg(feature = "postgres")]
        mod through_a_pooler_in_all {
            $(
                $(#[$meta])*
                #[test]
                fn $name() {
                    if let Some(db) = $crate::support::TestDb::pooled() {
                        super::$name(&db);
                    }
                }
            )+
        }
    };
}
