//! `windlass bench`: measures how fast this database moves jobs, and how fast it could.

use crate::bench::figures::{Figures, Results};
use crate::bench::run::{Bench, Part, Places, Run, interrupted};
use crate::bench::{enqueues, latency, plain_sql, work};
use crate::db::AsConn as _;
use crate::db::Database;
use crate::error::{Doing as _, Error, Result};
use crate::terminal::output;
use std::sync::{Arc, Mutex, PoisonError};

impl Bench {
    /// Runs the requested measurements. If a signal interrupts them, their data is first removed
    /// from the database.
    pub(crate) fn run(&self, url: &str) -> Result<Results> {
        let signals = signal_hook::iterator::Signals::new([
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
        ]);
        let mut signals = signals.map_err(|source| Error::Io {
            action: "handle",
            path: "signals".into(),
            source,
        })?;
        let places = Places::new(Mutex::new(Some(Vec::new())));
        let (sender, result) = crossbeam_channel::bounded(1);
        let run = Run {
            settings: self.clone(),
            url: url.to_owned(),
            places: Arc::clone(&places),
            figures: Figures::default(),
            progress: output::Progress::of_something(),
        };
        let handle = signals.handle();
        std::thread::scope(|scope| {
            let measured = sender.clone();
            scope.spawn(move || {
                if signals.forever().next().is_some() {
                    let _ = sender.send(None);
                }
            });
            std::thread::spawn(move || measured.send(Some(run.measure())));
            let result = result.recv().ok().flatten();
            handle.close();
            let left = places.lock().unwrap_or_else(PoisonError::into_inner).take();
            left.iter().flatten().for_each(|place| place.remove());
            result.unwrap_or_else(|| Err(interrupted()))
        })
    }
}

impl Run {
    fn measure(mut self) -> Result<Results> {
        let mut connection = Database::open(&self.url)?;
        if !connection.listens_by_notification() {
            connection = self.place()?.migrated()?;
        }
        let version = plain_sql::version(&mut connection.connect()?.as_conn())
            .doing("ask the database for its version")?;
        for round in 1..=self.settings.rounds {
            self.figures.round = round;
            for (part, measure) in [
                (
                    Part::Enqueue,
                    enqueues::measure as fn(&mut Run) -> Result<()>,
                ),
                (Part::Drain, work::drains),
                (Part::Backlog, work::backlogs),
                (Part::Latency, latency::pick_ups),
                (Part::Idle, latency::idle),
            ] {
                let only = &self.settings.only;
                if only.is_empty() || only.contains(&part) {
                    measure(&mut self)?;
                }
            }
        }
        self.progress.end();
        Ok(self.figures.results(version, self.settings.rounds))
    }
}
