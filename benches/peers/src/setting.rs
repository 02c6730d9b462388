//! The rows of the table: a system with its settings; and its columns.

use crate::systems::System;
use crate::systems::fang::Fang;
use crate::systems::graphile::Graphile;
use crate::systems::windlass::Windlass;
use std::time::Duration;

/// What is measured by itself, whether or not others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Name {
    Windlass,
    Fang,
    #[value(name = "graphile_worker")]
    GraphileWorker,
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Setting {
    Windlass,
    WindlassDeleting,
    Fang,
    FangTuned,
    GraphileWorker,
    GraphileWorkerBatched,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// One at a time, by so many callers; jobs a second.
    Enqueue(u32),
    /// Jobs a second.
    Bulk,
    /// By so many workers; jobs a second.
    Drain(u32),
    /// In milliseconds.
    PickUpP50,
    PickUpP99,
}

/// In the order of the table.
pub(crate) const COLUMNS: [Column; 8] = [
    Column::Enqueue(1),
    Column::Enqueue(8),
    Column::Bulk,
    Column::Drain(1),
    Column::Drain(4),
    Column::Drain(16),
    Column::PickUpP50,
    Column::PickUpP99,
];

impl Column {
    /// What stands above it.
    pub(crate) fn heading(self) -> String {
        match self {
            Column::Enqueue(1) => "enqueue, 1 caller".to_owned(),
            Column::Enqueue(callers) => format!("enqueue, {callers} callers"),
            Column::Bulk => "enqueue, bulk".to_owned(),
            Column::Drain(1) => "drain, 1 worker".to_owned(),
            Column::Drain(workers) => format!("drain, {workers} workers"),
            Column::PickUpP50 => "pick-up, p50".to_owned(),
            Column::PickUpP99 => "pick-up, p99".to_owned(),
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Column::PickUpP50 | Column::PickUpP99 => "ms",
            _ => "jobs/s",
        }
    }
}

impl Setting {
    /// In the order of the table.
    pub(crate) const ALL: [Setting; 6] = [
        Setting::Windlass,
        Setting::WindlassDeleting,
        Setting::Fang,
        Setting::FangTuned,
        Setting::GraphileWorker,
        Setting::GraphileWorkerBatched,
    ];

    pub(crate) fn name(self) -> Name {
        match self {
            Setting::Windlass | Setting::WindlassDeleting => Name::Windlass,
            Setting::Fang | Setting::FangTuned => Name::Fang,
            Setting::GraphileWorker | Setting::GraphileWorkerBatched => Name::GraphileWorker,
        }
    }

    pub(crate) fn system(self) -> Box<dyn System> {
        match self {
            Setting::Windlass => Box::new(Windlass { keep: true }),
            Setting::WindlassDeleting => Box::new(Windlass { keep: false }),
            Setting::Fang => Box::new(Fang { tuned: false }),
            Setting::FangTuned => Box::new(Fang { tuned: true }),
            Setting::GraphileWorker => Box::new(Graphile { tuned: false }),
            Setting::GraphileWorkerBatched => Box::new(Graphile { tuned: true }),
        }
    }

    /// What stands in its first column.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Setting::Windlass => "Windlass",
            Setting::WindlassDeleting => "Windlass, deleting",
            Setting::Fang => "fang",
            Setting::FangTuned => "fang, tuned",
            Setting::GraphileWorker => "graphile_worker",
            Setting::GraphileWorkerBatched => "graphile_worker, batched",
        }
    }

    /// How it is set, in words.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Setting::Windlass => "its defaults; finished jobs are kept",
            Setting::WindlassDeleting => "keep_finished(false), otherwise its defaults",
            Setting::Fang => {
                "blocking, its defaults: finished tasks are removed, idle workers sleep 5 to 15 s"
            }
            Setting::FangTuned => {
                "SleepParams of 10 ms throughout; r2d2 does not test connections at each check-out"
            }
            Setting::GraphileWorker => {
                "its defaults: deletes finished jobs; a slot fetches one job at each notification, and \
                 at each poll, every second"
            }
            Setting::GraphileWorkerBatched => {
                "local_queue of 5,000 jobs, complete_job_batch_delay of 5 ms; sqlx does not test \
                 connections at each check-out"
            }
        }
    }

    /// The version of its crate, as Cargo.lock has it.
    pub(crate) fn version(self) -> &'static str {
        let name = match self.name() {
            Name::Windlass => "windlass",
            Name::Fang => "fang",
            Name::GraphileWorker => "graphile_worker",
        };
        version_of(name, include_str!("../Cargo.lock"))
    }

    /// Whether it makes a difference to the row before.
    pub(crate) fn measures(self, column: Column) -> bool {
        self != Setting::WindlassDeleting || matches!(column, Column::Drain(_))
    }

    /// The row of Windlass that does the same: peers delete finished jobs.
    pub(crate) fn beside(self, column: Column) -> Option<Setting> {
        match (self.name(), column) {
            (Name::Windlass, _) => None,
            (_, Column::Drain(_)) => Some(Setting::WindlassDeleting),
            _ => Some(Setting::Windlass),
        }
    }

    /// The longest pause before a job whose pick-up is measured. A worker
    /// that sleeps is to be met at any point of its sleep.
    pub(crate) fn longest_rest(self) -> Duration {
        match self {
            Setting::Fang => Duration::from_secs(5),
            _ => Duration::from_millis(80),
        }
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
            assert!(
                version.starts_with(|c: char| c.is_ascii_digit()),
                "{version}"
            );
        }
    }

    #[test]
    fn every_ratio_is_to_something_measured() {
        for setting in Setting::ALL {
            for column in COLUMNS {
                if let Some(base) = setting.beside(column) {
                    assert!(base.measures(column));
                }
            }
        }
    }
}
