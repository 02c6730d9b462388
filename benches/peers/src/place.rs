//! Where a system works: a schema of its own, which is gone when the run
//! ends, however it ends.

use anyhow::{Context as _, Result};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A schema in a database, as a system is told of it.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    /// Of the database.
    pub(crate) url: String,
    pub(crate) schema: String,
}

#[derive(QueryableByName)]
struct Table {
    #[diesel(sql_type = Text)]
    name: String,
}

impl Address {
    /// The address of the database for those who are to see this schema
    /// alone: whose tables stand in `public` are not to be worked on.
    pub(crate) fn url_of_schema(&self) -> String {
        self.url_with_path(&self.schema)
    }

    /// The address for those who need an extension that may have been
    /// installed into `public`. They see this schema first.
    pub(crate) fn url_with_extensions(&self) -> String {
        self.url_with_path(&format!("{}%2Cpublic", self.schema))
    }

    fn url_with_path(&self, path: &str) -> String {
        let url = &self.url;
        let joiner = if url.contains('?') { '&' } else { '?' };
        format!("{url}{joiner}options=-csearch_path%3D{path}")
    }

    /// A connection that sees this schema alone.
    pub(crate) fn connect(&self) -> Result<PgConnection> {
        PgConnection::establish(&self.url_of_schema()).context("connect to the database")
    }

    /// Lets the planner know what is in the tables, for every system alike.
    pub(crate) fn analyze(&self) -> Result<()> {
        let mut conn = self.connect()?;
        let tables = "SELECT tablename::text AS name FROM pg_tables WHERE schemaname = $1";
        let tables: Vec<Table> = diesel::sql_query(tables)
            .bind::<Text, _>(&self.schema)
            .load(&mut conn)?;
        for Table { name } in tables {
            conn.batch_execute(&format!("ANALYZE {}.\"{name}\"", self.schema))?;
        }
        Ok(())
    }
}

/// The answer to a question, an SQL expression.
pub(crate) fn ask(conn: &mut PgConnection, question: &str) -> Result<bool> {
    Ok(diesel::select(diesel::dsl::sql::<Bool>(question)).get_result(conn)?)
}

/// An empty schema; removed, with all that is in it, when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    address: Address,
}

impl Place {
    /// Creates one in this database.
    pub(crate) fn create(url: &str) -> Result<Place> {
        let schema = format!("windlass_peers_{:012x}", fastrand::u64(..1 << 48));
        // Held until it is noted: an interrupt in between would leave it there.
        let mut remains = remains();
        let mut conn = PgConnection::establish(url).context("connect to the database")?;
        conn.batch_execute(&format!("CREATE SCHEMA {schema}"))?;
        let url = url.to_owned();
        let address = Address { url, schema };
        remains.schemas.push(address.clone());
        Ok(Place { address })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut remains = remains();
        remove(&self.address);
        let schema = &self.address.schema;
        remains.schemas.retain(|other| other.schema != *schema);
    }
}

/// Whoever interrupts the run wants no remains of it.
#[derive(Debug)]
pub(crate) struct Remains {
    schemas: Vec<Address>,
    /// Workers, which would only hold up the removal.
    pub(crate) processes: Vec<Pid>,
}

static REMAINS: Mutex<Remains> = Mutex::new(Remains {
    schemas: Vec::new(),
    processes: Vec::new(),
});

/// What an interrupt has to remove. Who holds this delays it.
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
        remains.schemas.iter().for_each(remove);
        std::process::exit(130);
    })
    .context("handle signals")
}

fn remove(address: &Address) {
    let Address { url, schema } = address;
    let text = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
    let removed = PgConnection::establish(url)
        .context("connect")
        .and_then(|mut conn| Ok(conn.batch_execute(&text)?));
    if let Err(error) = removed {
        eprintln!("the schema {schema} could not be removed: {error:#}");
    }
}
