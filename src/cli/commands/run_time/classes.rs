//! `windlass classes ...`.

use crate::admin::classes::{paused_classes, strict_classes};
use crate::cli::commands::run_time::turned::{Pausable, Turned, paused_line};
use crate::cli::failure::CommandError;
use crate::cli::said_by::SaidBy;
use crate::cli::select::connect;
use crate::db::query::named::named;
use crate::db::table::run_time::class_pauses::PausedClass;
use crate::db::{Database, DbConnection, own};
use crate::error::{Doing as _, Result};
use crate::terminal::output::{self, Report};
use serde::Serialize;
use std::process::ExitCode;

/// Pause and resume classes of jobs, and refuse unknown ones
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ClassesCommand {
    List(ListClasses),
    Pause(PauseClass),
    Resume(ResumeClass),
    Strict(StrictClasses),
}

impl ClassesCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        Ok(match self {
            ClassesCommand::List(list) => {
                output::show(&list.run(&db.clone().read_only())?, list.json)
            }
            ClassesCommand::Pause(pause) => output::show(&pause.run(db)?, pause.json),
            ClassesCommand::Resume(resume) => output::show(&resume.run(db)?, resume.json),
            ClassesCommand::Strict(strict) => output::show(&strict.run(db)?, strict.json),
        })
    }
}

/// List the paused classes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass classes list")]
pub(crate) struct ListClasses {
    /// Print JSON; ages are in seconds
    #[arg(long)]
    json: bool,
}

/// Pause a class: workers start none of its jobs, and running jobs continue
///
/// Workers apply this within a second. Jobs of other classes are not held up.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass classes pause send_invoice --reason 'wrong amounts'")]
pub(crate) struct PauseClass {
    /// The name of the class; no worker need know it yet
    #[arg(value_name = "CLASS")]
    class: String,

    #[command(flatten)]
    said_by: SaidBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Resume a class: workers start its jobs again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass classes resume send_invoice")]
pub(crate) struct ResumeClass {
    /// The name of the class
    #[arg(value_name = "CLASS")]
    class: String,

    #[command(flatten)]
    said_by: SaidBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show or set whether unknown classes are refused
///
/// If it is on, an enqueue by SQL, or by this program, is refused if no worker has stored its class. A
/// worker stores its classes when it starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass classes strict
  windlass classes strict on --reason 'typing errors'")]
pub(crate) struct StrictClasses {
    /// `on` or `off`; without it, what is set is shown
    #[arg(value_name = "SETTING", value_parser = ["on", "off"])]
    setting: Option<String>,

    #[command(flatten)]
    said_by: SaidBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct StrictSetting {
    strict: bool,
    /// Whether the setting changed.
    changed: bool,
}

impl StrictClasses {
    fn run(&self, database: &Database) -> Result<StrictSetting> {
        let conn = &mut connect(database)?;
        let Some(setting) = &self.setting else {
            let strict = strict_classes(conn)?;
            return Ok(StrictSetting {
                strict,
                changed: false,
            });
        };
        let strict = setting == "on";
        let changed = self.said_by.actor().set_strict_classes(conn, strict)?;
        Ok(StrictSetting { strict, changed })
    }
}

impl Report for StrictSetting {
    fn text(&self, _width: Option<usize>) -> String {
        match self.strict {
            true => "Unknown classes are refused.\n".to_owned(),
            false => "Unknown classes are accepted.\n".to_owned(),
        }
    }
}

#[derive(Debug, Serialize)]
struct ListedClasses {
    paused: Vec<PausedClass>,
}

impl ListClasses {
    fn run(&self, database: &Database) -> Result<ListedClasses> {
        let paused = paused_classes(&mut connect(database)?)?;
        Ok(ListedClasses { paused })
    }
}

impl PauseClass {
    fn run(&self, database: &Database) -> Result<Turned> {
        let mut connection = connect(database)?;
        let known = is_known(&mut connection, &self.class)?;
        let actor = self.said_by.actor();
        let changed = actor.pause_class(&mut connection, &self.class)?;
        Ok(Turned {
            what: Pausable::ClassName(self.class.clone()),
            paused: true,
            changed,
            known,
        })
    }
}

impl ResumeClass {
    fn run(&self, database: &Database) -> Result<Turned> {
        Ok(Turned {
            what: Pausable::ClassName(self.class.clone()),
            paused: false,
            changed: self
                .said_by
                .actor()
                .resume_class(&mut connect(database)?, &self.class)?,
            known: true,
        })
    }
}

/// Returns whether a worker has stored the class, or a recent job has it.
fn is_known(connection: &mut DbConnection, class: &str) -> Result<bool> {
    let found = named(&mut own(connection), class).doing("look for the class")?;
    Ok(found.is_class)
}

/// Returns the line about a paused class.
pub(crate) fn line(class: &PausedClass) -> String {
    let (by, reason) = (class.paused_by.as_deref(), class.pause_reason.as_deref());
    paused_line(&class.class_name, Some(class.paused_seconds), by, reason)
}

impl Report for ListedClasses {
    fn text(&self, _width: Option<usize>) -> String {
        if self.paused.is_empty() {
            return "No class is paused.\n".to_owned();
        }
        self.paused.iter().map(line).collect()
    }
}
