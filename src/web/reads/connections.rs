//! The connections of one thread: for each database one to read, and one to change.

use crate::clock;
use crate::db::conn::reading::{ReadConnection, ReadFailure};
use crate::db::schema::migrate;
use crate::db::{Conn, Database, DbConnection, FileId, Refusal};
use crate::deadline::no_answer;
use crate::error::{Error, Result};
use crate::web::site::{Site, Source};
use std::sync::Arc;
use std::time::Duration;

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(2);

/// The time limit for each statement of a change.
const CHANGE: Duration = Duration::from_secs(5);

/// A connection to change, which is kept from one use to the next.
#[derive(Debug)]
pub(crate) struct ChangeConnection {
    pub(crate) connection: DbConnection,
    /// What was at the path of a SQLite file when it was opened.
    file: Option<FileId>,
}

impl ChangeConnection {
    /// Opens one, with a limit for connecting and for each statement.
    pub(crate) fn open(database: &Database, limit: Duration) -> Result<Self> {
        let file = database.file();
        let connection = database.connect_within(limit)?;
        Ok(ChangeConnection { connection, file })
    }

    /// Returns `false` if its file was removed or replaced: SQLite itself would go on writing it, and
    /// no other process would find what was written.
    pub(crate) fn is_current(&self) -> bool {
        self.file.as_ref().and_then(FileId::gone).is_none()
    }
}

/// The connections to read. They cannot write.
#[derive(Debug)]
pub(crate) struct Readers {
    site: Arc<Site>,
    open: Vec<Option<ReadConnection>>,
}

/// The connections to change, which no request of a viewer gets.
#[derive(Debug)]
pub(crate) struct Writers {
    site: Arc<Site>,
    open: Vec<Option<ChangeConnection>>,
}

impl Readers {
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        Readers {
            site: Arc::clone(site),
            open: site.sources.iter().map(|_| None).collect(),
        }
    }

    /// Runs `work` in a read-only transaction of this database, for up to `limit`.
    ///
    /// While the database is away, only one attempt a second is made; the others fail at once.
    pub(crate) fn read<T>(
        &mut self,
        database: usize,
        limit: Duration,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        let site = Arc::clone(&self.site);
        let (Some(source), Some(place)) = (site.sources.get(database), self.open.get_mut(database))
        else {
            return Err(ReadFailure::Lost("there is no such database".to_owned()));
        };
        let attempt = source.outage.attempt(clock::instant());
        let Some(attempt) = attempt else {
            return Err(ReadFailure::Lost(source.outage.reason()));
        };
        // It is put back only in order: not after a panic either.
        let begun = begin(source, place.take(), limit);
        let result = begun.and_then(|mut connection| {
            let result = connection.finish(work);
            if matches!(result, Ok(_) | Err(ReadFailure::Late)) {
                *place = Some(connection);
            }
            result
        });
        match &result {
            Err(ReadFailure::Lost(reason)) => attempt.failed(reason, clock::instant()),
            // It answered the first statement.
            _ => attempt.succeeded(),
        }
        result
    }
}

/// Starts to read. A connection that was kept may have broken, or lead to a server that is no more:
/// whether the database is away, only a new one shows.
fn begin(
    source: &Source,
    kept: Option<ReadConnection>,
    limit: Duration,
) -> Result<ReadConnection, ReadFailure> {
    if let Some(mut connection) = kept {
        match connection.begin(limit) {
            Ok(()) => return Ok(connection),
            Err(ReadFailure::Lost(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    let mut connection = open(source)?;
    connection.begin(limit)?;
    Ok(connection)
}

fn open(source: &Source) -> Result<ReadConnection, ReadFailure> {
    let database = source.to_read();
    let mut connection = database
        .connect_to_read(CONNECT)
        .map_err(|error| match error {
            Error::Connect { reason, .. } => ReadFailure::Lost(reason),
            other => ReadFailure::Failed(other),
        })?;
    if !source.tables.get() {
        connection.read(CONNECT, |conn| migrate::check(conn, database))?;
        source.tables.set();
    }
    Ok(connection)
}

impl Writers {
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        Writers {
            site: Arc::clone(site),
            open: site.sources.iter().map(|_| None).collect(),
        }
    }

    /// Runs `work`, which only reads, where changes go: a replica may lag. It is run once more on a new
    /// connection if a kept one has broken.
    pub(crate) fn look<T>(
        &mut self,
        database: usize,
        mut work: impl FnMut(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T> {
        let is_kept = self.open.get(database).is_some_and(Option::is_some);
        let looked = self.run(database, |connection| connection.with_connection(&mut work));
        match looked {
            Err(Error::Query { ref source, .. })
                if is_kept && Refusal::of(source) == Refusal::Trouble =>
            {
                self.run(database, |connection| connection.with_connection(work))
            }
            looked => looked,
        }
    }

    /// Runs `work` on a connection that may write.
    pub(crate) fn write<T>(
        &mut self,
        database: usize,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T> {
        self.run(database, |connection| connection.with_write_lock(work))
    }

    fn run<T>(
        &mut self,
        database: usize,
        work: impl FnOnce(&mut DbConnection) -> Result<T>,
    ) -> Result<T> {
        let (Some(source), Some(place)) =
            (self.site.sources.get(database), self.open.get_mut(database))
        else {
            return Err(Error::Settings("there is no such database".to_owned()));
        };
        let away = |reason: String| source.database.refused(&source.database.target(), reason);
        let outage = source.primary_outage();
        let Some(attempt) = outage.attempt(clock::instant()) else {
            return Err(away(outage.reason()));
        };
        let opened = match place.take().filter(ChangeConnection::is_current) {
            Some(kept) => Ok(kept),
            None => ChangeConnection::open(&source.database, CHANGE),
        };
        let mut kept = match opened {
            Ok(kept) => kept,
            Err(error) => {
                attempt.failed(&error.to_string(), clock::instant());
                return Err(error);
            }
        };
        let result = work(&mut kept.connection);
        // Whether the database is away, the next attempt shows: a lock may have been waited for.
        if let Some(limit) = kept.connection.missed() {
            return Err(away(no_answer(limit)));
        }
        attempt.succeeded();
        // After an error, the connection may lead to a server that has become a replica.
        if result.is_ok() {
            *place = Some(kept);
        }
        result
    }
}
