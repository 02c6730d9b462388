//! Where a benchmark works: a schema or a directory of its own.

use crate::clock;
use crate::db::Database;
use crate::db::conn::typed::with_conn;
use crate::error::{Doing as _, Error, Result};
use diesel::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// An empty database, which is removed with all its contents when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    url: String,
    kind: PlaceKind,
}

#[derive(Debug)]
enum PlaceKind {
    Schema { server: Database, name: String },
    Directory(PathBuf),
}

impl Place {
    /// Creates a schema in the database, or a directory beside the given file, which need not
    /// exist.
    pub(crate) fn create(url: &str) -> Result<Place> {
        let server = Database::open(url)?;
        let name = format!("windlass_bench_{:012x}", fastrand::u64(..1 << 48));
        if !server.listens_by_notification() {
            let path = PathBuf::from(format!("{}.{name}", server.target()));
            std::fs::create_dir(&path).map_err(|source| Error::Io {
                action: "create",
                path: path.clone(),
                source,
            })?;
            return Ok(Place {
                url: format!("sqlite://{}", path.join("jobs.db").display()),
                kind: PlaceKind::Directory(path),
            });
        }
        let mut connection = server.connect()?;
        with_conn!(&mut connection, |c| diesel::sql_query(format!(
            "CREATE SCHEMA {name}"
        ))
        .execute(c))
        .doing("create the benchmark's own schema")?;
        let joiner = if url.contains('?') { '&' } else { '?' };
        Ok(Place {
            url: format!("{}{joiner}options=-csearch_path%3D{name}", url.trim()),
            kind: PlaceKind::Schema { server, name },
        })
    }

    /// Returns its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the database at its address, with the Windlass tables.
    pub(crate) fn migrated(&self) -> Result<Database> {
        let database = Database::open(&self.url)?;
        database.migrate()?;
        Ok(database)
    }

    /// Removes it, even if it is still in use: what uses it may create something meanwhile, or deadlock with that. Removing
    /// it twice does no harm.
    pub(crate) fn remove(&self) {
        for _ in 0..100 {
            if self.try_remove() {
                return;
            }
            clock::nap(Duration::from_millis(10));
        }
    }

    /// Returns whether nothing is left, or no attempt can help.
    fn try_remove(&self) -> bool {
        match &self.kind {
            PlaceKind::Schema { server, name } => {
                let Ok(mut connection) = server.connect() else {
                    return true;
                };
                let text = format!("DROP SCHEMA IF EXISTS {name} CASCADE");
                with_conn!(&mut connection, |c| diesel::sql_query(text).execute(c)).is_ok()
            }
            PlaceKind::Directory(path) => std::fs::remove_dir_all(path).is_ok() || !path.exists(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}
