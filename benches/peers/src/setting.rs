//! The columns of the table: a system with its settings.

use crate::Options;
use crate::row::Row;
use crate::systems::apalis_postgres::ApalisPostgres;
use crate::systems::apalis_sqlite::ApalisSqlite;
use crate::systems::fang::Fang;
use crate::systems::graphile::Graphile;
use crate::systems::river::River;
use windlass_peers_driver::{System, Work};

/// A system that can be asked for by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Name {
    Windlass,
    #[value(name = "graphile_worker")]
    GraphileWorker,
    Awa,
    Fang,
    Apalis,
    River,
    Effectum,
}

const RIVER: &str = "riverqueue";

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Setting {
    Windlass,
    WindlassDeleting,
    GraphileWorker,
    Awa,
    Fang,
    Apalis,
    River,
    RiverDefaults,
    WindlassSqlite,
    ApalisSqlite,
    Effectum,
    RiverSqlite,
    RiverDefaultsSqlite,
}

/// The kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Sqlite,
}

impl Setting {
    /// In the order of the tables.
    pub(crate) const ALL: [Setting; 13] = [
        Setting::Windlass,
        Setting::WindlassDeleting,
        Setting::GraphileWorker,
        Setting::Awa,
        Setting::Fang,
        Setting::Apalis,
        Setting::River,
        Setting::RiverDefaults,
        Setting::WindlassSqlite,
        Setting::ApalisSqlite,
        Setting::Effectum,
        Setting::RiverSqlite,
        Setting::RiverDefaultsSqlite,
    ];

    pub(crate) fn name(self) -> Name {
        match self {
            Setting::Windlass | Setting::WindlassDeleting | Setting::WindlassSqlite => {
                Name::Windlass
            }
            Setting::GraphileWorker => Name::GraphileWorker,
            Setting::Awa => Name::Awa,
            Setting::Fang => Name::Fang,
            Setting::Apalis | Setting::ApalisSqlite => Name::Apalis,
            Setting::Effectum => Name::Effectum,
            Setting::River
            | Setting::RiverDefaults
            | Setting::RiverSqlite
            | Setting::RiverDefaultsSqlite => Name::River,
        }
    }

    pub(crate) fn database(self) -> Kind {
        match self {
            Setting::WindlassSqlite
            | Setting::ApalisSqlite
            | Setting::Effectum
            | Setting::RiverSqlite
            | Setting::RiverDefaultsSqlite => Kind::Sqlite,
            _ => Kind::Postgres,
        }
    }

    /// Returns true if these options ask for it.
    pub(crate) fn wanted(self, options: &Options) -> bool {
        let has_database = match self.database() {
            Kind::Postgres => options.postgres.is_some(),
            Kind::Sqlite => options.sqlite.is_some(),
        };
        has_database && (options.only.is_empty() || options.only.contains(&self.name()))
    }

    /// The system, if this program drives it.
    pub(crate) fn system(self) -> Option<Box<dyn System>> {
        Some(match self {
            Setting::GraphileWorker => Box::new(Graphile),
            Setting::Fang => Box::new(Fang),
            Setting::Apalis => Box::new(ApalisPostgres),
            Setting::ApalisSqlite => Box::new(ApalisSqlite),
            Setting::River | Setting::RiverSqlite => Box::new(River::Benchmark),
            Setting::RiverDefaults | Setting::RiverDefaultsSqlite => Box::new(River::Defaults),
            _ => return None,
        })
    }

    /// The program beside this one that drives it, if it is not this one.
    pub(crate) fn program(self) -> Option<&'static str> {
        match self.name() {
            Name::Windlass => Some("windlass-peers-windlass"),
            Name::Awa => Some("windlass-peers-awa"),
            Name::Effectum => Some("windlass-peers-effectum"),
            _ => None,
        }
    }

    /// Returns the heading of its column, with the version of a peer.
    pub(crate) fn heading(self) -> String {
        match self.name() {
            Name::Windlass => self.label().to_owned(),
            Name::River if self.label() != RIVER => {
                format!("{RIVER} {}, README", self.version())
            }
            _ => format!("{} {}", self.label(), self.version()),
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Setting::Windlass | Setting::WindlassSqlite => "Windlass",
            Setting::WindlassDeleting => "Windlass, deleting",
            Setting::GraphileWorker => "graphile_worker",
            Setting::Awa => "awa",
            Setting::Fang => "fang",
            Setting::Apalis => "apalis-postgres",
            Setting::ApalisSqlite => "apalis-sqlite",
            Setting::Effectum => "effectum",
            Setting::River | Setting::RiverSqlite => RIVER,
            Setting::RiverDefaults | Setting::RiverDefaultsSqlite => "riverqueue, README",
        }
    }

    /// The version of its crate, as Cargo.lock has it.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Setting::Awa => version_of("awa", include_str!("../awa/Cargo.lock")),
            Setting::Effectum => version_of("effectum", include_str!("../effectum/Cargo.lock")),
            Setting::Windlass | Setting::WindlassDeleting | Setting::WindlassSqlite => {
                version_of("windlass", include_str!("../windlass/Cargo.lock"))
            }
            Setting::RiverDefaults | Setting::RiverDefaultsSqlite => Setting::River.version(),
            _ => version_of(self.label(), include_str!("../Cargo.lock")),
        }
    }

    /// Returns true if the row can differ from the one in the column before.
    pub(crate) fn measures(self, row: Row) -> bool {
        self != Setting::WindlassDeleting
            || matches!(row, Row::Drain(Work::Nothing, _) | Row::Cost(_))
    }

    /// Returns true if its workers notice at once only jobs that their own process enqueues.
    pub(crate) fn wakes_only_itself(self) -> bool {
        matches!(self, Setting::ApalisSqlite | Setting::Effectum)
    }

    /// Returns true if its SQLite file is in WAL mode. effectum does not turn it on, and with its
    /// `synchronous=NORMAL` a commit would then not wait for the disk, as those of the others do.
    pub(crate) fn wants_wal(self) -> bool {
        self.database() == Kind::Sqlite && self != Setting::Effectum
    }

    /// An SQL query without its SELECT, with a row for each job that has not ended.
    pub(crate) fn unfinished(self) -> &'static str {
        match self {
            Setting::Windlass | Setting::WindlassDeleting | Setting::WindlassSqlite => {
                "FROM (SELECT job_id FROM solid_queue_ready_executions \
                 UNION ALL SELECT job_id FROM solid_queue_claimed_executions \
                 UNION ALL SELECT job_id FROM solid_queue_scheduled_executions \
                 UNION ALL SELECT job_id FROM solid_queue_blocked_executions \
                 UNION ALL SELECT job_id FROM solid_queue_failed_executions) AS executions"
            }
            Setting::GraphileWorker => "FROM graphile_worker._private_jobs",
            // Its view of all jobs takes seconds. Its tables keep what was ready, and what ended.
            Setting::Awa => {
                "FROM generate_series(1, (SELECT count(*) FROM awa.ready_entries) \
                 - (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches))"
            }
            Setting::Fang => "FROM fang_tasks",
            Setting::Apalis => "FROM apalis.jobs WHERE status <> 'Done'",
            Setting::ApalisSqlite => "FROM Jobs WHERE status <> 'Done'",
            Setting::Effectum => "FROM active_jobs",
            // States by name, so that an index is of use.
            Setting::River
            | Setting::RiverDefaults
            | Setting::RiverSqlite
            | Setting::RiverDefaultsSqlite => {
                "FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', \
                 'pending', 'cancelled', 'discarded')"
            }
        }
    }

    /// The same for the jobs that have ended well, if it keeps them.
    pub(crate) fn ended(self) -> Option<&'static str> {
        Some(match self {
            Setting::Windlass | Setting::WindlassSqlite => {
                "FROM solid_queue_jobs WHERE finished_at IS NOT NULL"
            }
            Setting::Apalis => "FROM apalis.jobs WHERE status = 'Done'",
            Setting::ApalisSqlite => "FROM Jobs WHERE status = 'Done'",
            Setting::River
            | Setting::RiverDefaults
            | Setting::RiverSqlite
            | Setting::RiverDefaultsSqlite => "FROM river_job WHERE state = 'completed'",
            _ => return None,
        })
    }
}

fn version_of<'l>(name: &str, lock: &'l str) -> &'l str {
    let named = format!("name = \"{name}\"");
    let mut lines = lock.lines().skip_while(|line| *line != named).skip(1);
    let version = lines.next().and_then(|line| line.split('"').nth(1));
    version.unwrap_or("of unknown version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_were_built() {
        let lock = "[[package]]\nname = \"fang-derive\"\nversion = \"0.1\"\n\
                    [[package]]\nname = \"fang\"\nversion = \"0.11.0\"\n";
        assert_eq!(version_of("fang", lock), "0.11.0");
        for setting in Setting::ALL {
            let version = setting.version();
            let is_number = version.starts_with(|c: char| c.is_ascii_digit());
            assert!(is_number, "{setting:?}: {version}");
        }
    }

    #[test]
    fn each_system_is_driven_by_one_program() {
        for setting in Setting::ALL {
            assert_ne!(setting.system().is_some(), setting.program().is_some());
        }
    }
}
