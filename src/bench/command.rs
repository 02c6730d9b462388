//! `windlass bench`: measures how fast this database moves jobs, and how fast it could.

use crate::bench::comparison::Comparison;
use crate::bench::figures::Figures;
use crate::bench::kind::Kind;
use crate::bench::kinds;
use crate::bench::plain::tables;
use crate::bench::results::Results;
use crate::bench::run::{Bench, BenchRun, Places, interrupted};
use crate::db::AsConn as _;
use crate::db::Database;
use crate::error::{Doing as _, Error, Result};
use crate::terminal::output;
use clap::ValueEnum as _;
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
        let run = BenchRun {
            settings: self.clone(),
            url: url.to_owned(),
            is_postgres: Database::open(url)?.listens_by_notification(),
            places: Arc::clone(&places),
            progress: output::ProgressReport::of_something(),
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

impl BenchRun {
    fn measure(self) -> Result<Results> {
        let place = self.place()?;
        let version = tables::version(&mut place.migrated()?.connect()?.as_conn())
            .doing("ask the database for its version")?;
        drop(place);
        let mut figures = Figures::default();
        let only = &self.settings.only;
        for kind in Kind::value_variants() {
            if only.is_empty() || only.contains(kind) {
                for comparison in kinds::comparisons(*kind, &self) {
                    self.compare(&kind.name(), &comparison, &mut figures)?;
                }
            }
        }
        self.progress.end();
        let rounds = self.settings.rounds;
        Ok(Results::new(version, rounds, figures.rows()))
    }

    /// Measures Windlass and its ceilings in turn, so that a disturbance hits all of them.
    fn compare(&self, kind: &str, comparison: &Comparison, figures: &mut Figures) -> Result<()> {
        let (figure, rounds) = (&comparison.figure, self.settings.rounds);
        for round in 1..=rounds {
            self.progress
                .say(format!("{kind}, {figure}: round {round} of {rounds}"));
            figures.note(kind, figure, &(comparison.windlass)(self)?);
            for ceiling in &comparison.ceilings {
                for (variant, measure) in &ceiling.variants {
                    self.progress.say(format!(
                        "{kind}, {figure}: round {round} of {rounds}, {} {variant}",
                        ceiling.name
                    ));
                    let values = measure(self)?;
                    figures.note_ceiling((kind, figure), (ceiling.name, variant), &values);
                }
            }
        }
        Ok(())
    }
}
