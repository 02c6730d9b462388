//! The database of a system, which is removed when the run ends, however it ends.

use crate::Options;
use crate::database::Database;
use crate::setting::{Kind, Setting};
use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An empty database; removed, with all that is in it, when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// The address of the database.
    pub(crate) url: String,
    name: String,
}

/// A database or directory to remove.
#[derive(Debug, Clone)]
enum Remnant {
    /// A database, by its name, of a server with this address.
    Database {
        server: String,
        name: String,
    },
    Directory {
        path: PathBuf,
        name: String,
    },
}

impl Place {
    /// Creates one, with the table that some jobs insert into.
    pub(crate) fn create(options: &Options, setting: Setting) -> Result<Place> {
        let kind = setting.database();
        let name = format!("windlass_peers_{:012x}", fastrand::u64(..1 << 48));
        // Held until it is noted: an interrupt in between would leave it there.
        let mut remains = remains();
        let url = match kind {
            Kind::Postgres => {
                let server = options.postgres.clone().context("--postgres is missing")?;
                let mut conn = Database::connect(&server)?;
                conn.execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))?;
                let url = with_database(&server, &name);
                let name = name.clone();
                remains.places.push(Remnant::Database { server, name });
                url
            }
            Kind::Sqlite => {
                let parent = options.sqlite.as_ref().context("--sqlite is missing")?;
                let path = std::path::absolute(parent)?.join(&name);
                std::fs::create_dir_all(&path)?;
                let url = format!("sqlite://{}", path.join("jobs.db").display());
                let name = name.clone();
                remains.places.push(Remnant::Directory { path, name });
                url
            }
        };
        drop(remains);
        let place = Place { url, name };
        let mut conn = Database::connect(&place.url)?;
        if setting.wants_wal() {
            conn.execute("PRAGMA journal_mode = WAL")?;
        }
        conn.execute("CREATE TABLE effects (number BIGINT NOT NULL)")?;
        Ok(place)
    }
}

/// The address with another database's name.
fn with_database(server: &str, name: &str) -> String {
    let (address, options) = match server.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (server, String::new()),
    };
    let host = address.find("://").map_or(0, |at| at + 3);
    let end = address[host..]
        .find('/')
        .map_or(address.len(), |at| host + at);
    format!("{}/{name}{options}", &address[..end])
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut remains = remains();
        remains.places.retain(|place| {
            let is_this = place.name() == self.name;
            if is_this {
                place.remove();
            }
            !is_this
        });
    }
}

impl Remnant {
    fn name(&self) -> &str {
        match self {
            Remnant::Database { name, .. } | Remnant::Directory { name, .. } => name,
        }
    }

    fn remove(&self) {
        let removed = match self {
            Remnant::Database { server, name } => Database::connect(server).and_then(|mut conn| {
                conn.execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            }),
            Remnant::Directory { path, .. } => std::fs::remove_dir_all(path).map_err(Into::into),
        };
        if let Err(error) = removed {
            eprintln!("{} could not be removed: {error:#}", self.name());
        }
    }
}

/// All that an interrupt removes.
#[derive(Debug)]
pub(crate) struct Remains {
    places: Vec<Remnant>,
    /// Drivers, which would only hold up the removal.
    pub(crate) processes: Vec<Pid>,
}

static REMAINS: Mutex<Remains> = Mutex::new(Remains {
    places: Vec::new(),
    processes: Vec::new(),
});

/// Returns all that an interrupt has to remove; it waits for this lock.
pub(crate) fn remains() -> MutexGuard<'static, Remains> {
    REMAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, SIGINT, SIGTERM and SIGHUP remove everything, then end.
pub(crate) fn remove_on_interrupt() -> Result<()> {
    ctrlc::set_handler(|| {
        // Never let go, so that nothing new comes into being.
        let remains = remains();
        for process in &remains.processes {
            let _ = kill_process(*process, Signal::KILL);
        }
        remains.places.iter().for_each(Remnant::remove);
        std::process::exit(130);
    })
    .context("handle signals")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn an_address_gets_another_database() {
        for (server, expected) in [
            ("postgres://a:b@host:5432/app", "postgres://a:b@host:5432/x"),
            ("postgres://host", "postgres://host/x"),
            (
                "postgres://host/app?sslmode=disable",
                "postgres://host/x?sslmode=disable",
            ),
        ] {
            assert_eq!(with_database(server, "x"), expected);
        }
    }
}
