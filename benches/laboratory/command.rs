//! Measures how fast a database moves jobs, and how fast it could.

use crate::bench::place::{Places, version};
use crate::db::Database;
use crate::error::Result;
use crate::laboratory::comparison::Comparison;
use crate::laboratory::figures::Figures;
use crate::laboratory::kind::Kind;
use crate::laboratory::results::Results;
use crate::laboratory::role::{ROLE, Role};
use crate::laboratory::run::{BenchRun, Settings};
use crate::laboratory::web::server;
use crate::laboratory::{kinds, worker};
use crate::terminal;
use clap::{Parser as _, ValueEnum as _};
use std::process::ExitCode;

/// The laboratory of Windlass.
#[derive(Debug, clap::Parser)]
#[command(name = "windlass-laboratory")]
pub(crate) struct Line {
    /// The database, as `postgres://USER@HOST/NAME` or `sqlite://PATH`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Measures what the command line asks for, or plays the part of another process in it.
pub fn main() -> ExitCode {
    let done = play().unwrap_or_else(|| {
        let line = match Line::try_parse() {
            Ok(line) => line,
            Err(told) => return Ok(terminal::told(&told)),
        };
        let results = line.settings.run(&line.database)?;
        Ok(terminal::show(&results, line.settings.json))
    });
    done.unwrap_or_else(|error| terminal::failed(&error))
}

/// Plays the part that the program of a measurement gave to this process, if it did.
#[expect(
    clippy::disallowed_methods,
    reason = "the parts of the laboratory come through it"
)]
pub(crate) fn play() -> Option<Result<ExitCode>> {
    let role: Role = serde_json::from_str(&std::env::var(ROLE).ok()?).ok()?;
    let url = std::env::var("DATABASE_URL").ok()?;
    Some(match role {
        Role::Worker(setup) => worker::work(setup, &url),
        Role::Server { slow } => server::serve(slow, &url),
    })
}

impl Settings {
    /// Runs the requested measurements. If a signal interrupts them, their data is first removed
    /// from the database.
    pub(crate) fn run(&self, url: &str) -> Result<Results> {
        let (settings, of) = (self.clone(), url.to_owned());
        Places::with(url, move |places| settings.measure(&of, places))
    }

    /// Does the same with these places of a database.
    pub(crate) fn measure(self, url: &str, places: Places) -> Result<Results> {
        let run = BenchRun {
            settings: self,
            is_postgres: Database::open(url)?.listens_by_notification(),
            places,
            progress: terminal::ProgressReport::of_something(),
        };
        run.measure()
    }
}

impl BenchRun {
    fn measure(self) -> Result<Results> {
        let version = version(&self.place()?.migrated()?)?;
        let mut figures = Figures::default();
        let only = &self.settings.only;
        for kind in Kind::value_variants() {
            if only.is_empty() || only.contains(kind) {
                let mut comparisons = kinds::comparisons(*kind, &self);
                comparisons.retain(|one| one.figure.contains(&self.settings.figure));
                for comparison in comparisons {
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
