//! The place of a benchmark: a schema or a directory of its own, which is removed after it.

use diesel::prelude::*;
use diesel::sql_types::Text;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use windlass::database::Dialect;
use windlass::internal::clock;
use windlass::internal::db::conn::typed::with_conn;
use windlass::internal::error::ErrorContext as _;
use windlass::{AsConn as _, Database, Error, Result};

/// The places of a benchmark, each in use or removed.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    url: String,
    /// `None` after an interruption: nothing more may be created.
    in_use: Arc<Mutex<Option<Vec<Arc<Place>>>>>,
}

impl Places {
    /// Places in a database, of which there are none yet.
    pub(crate) fn of(url: &str) -> Self {
        Places {
            url: url.to_owned(),
            in_use: Arc::new(Mutex::new(Some(Vec::new()))),
        }
    }

    /// Measures with places in a database. A signal ends it, and removes them first.
    pub(crate) fn with<T: Send + 'static>(
        url: &str,
        measure: impl FnOnce(Places) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]);
        let mut signals = signals.map_err(|source| Error::Io {
            action: "handle",
            path: "signals".into(),
            source,
        })?;
        let places = Places::of(url);
        let (sender, result) = crossbeam_channel::bounded(1);
        let (measured, handle, own) = (sender.clone(), signals.handle(), places.clone());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if signals.forever().next().is_some() {
                    let _ = sender.send(None);
                }
            });
            std::thread::spawn(move || measured.send(Some(measure(own))));
            let result = result.recv().ok().flatten();
            handle.close();
            let in_use = &places.in_use;
            let left = in_use.lock().unwrap_or_else(PoisonError::into_inner).take();
            left.iter().flatten().for_each(|place| place.remove());
            result.unwrap_or_else(|| Err(interrupted()))
        })
    }

    /// Creates an empty schema or file.
    pub(crate) fn create(&self) -> Result<Arc<Place>> {
        let mut places = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let places = places.as_mut().ok_or_else(interrupted)?;
        // Keep only those still in use.
        places.retain(|place| Arc::strong_count(place) > 1);
        let place = Arc::new(Place::create(&self.url)?);
        places.push(Arc::clone(&place));
        Ok(place)
    }
}

fn interrupted() -> Error {
    Error::Io {
        action: "finish",
        path: "the benchmark".into(),
        source: std::io::ErrorKind::Interrupted.into(),
    }
}

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
    fn create(url: &str) -> Result<Place> {
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
        .during("create the benchmark's own schema")?;
        let joiner = if url.contains('?') { '&' } else { '?' };
        Ok(Place {
            url: format!("{}{joiner}options=-csearch_path%3D{name}", url.trim()),
            kind: PlaceKind::Schema { server, name },
        })
    }

    /// Returns its address.
    #[cfg(feature = "laboratory")]
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
    fn remove(&self) {
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

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Text)]
    version: String,
}

/// Returns the name and version of a database.
pub(crate) fn version(database: &Database) -> Result<String> {
    let mut connection = database.connect()?;
    let (name, text) = match connection.as_conn().dialect() {
        Dialect::Postgres => (
            "Postgres",
            "SELECT current_setting('server_version') AS version",
        ),
        Dialect::Sqlite => ("SQLite", "SELECT sqlite_version() AS version"),
    };
    let row: Version = with_conn!(&mut connection, |c| diesel::sql_query(text).get_result(c))
        .during("ask the database for its version")?;
    Ok(format!("{name} {}", row.version))
}
