//! Commands that pause classes, and refuse unknown ones.

use crate::cli::config::CommandError;
use crate::cli::listed::{ChangedBy, provenance};
use crate::cli::select::connect;
use crate::read::sql::named::named;
use crate::terminal::{self, Report, printable};
use serde::Serialize;
use std::process::ExitCode;
use windlass::classes::PausedClass;
use windlass::internal::db::own;
use windlass::internal::error::ErrorContext as _;
use windlass::{Database, DbConnection, Result, classes};

// --- `windlass classes ...` ---

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
                terminal::show(&list.run(&db.clone().read_only())?, list.json)
            }
            ClassesCommand::Pause(pause) => terminal::show(&pause.run(db)?, pause.json),
            ClassesCommand::Resume(resume) => terminal::show(&resume.run(db)?, resume.json),
            ClassesCommand::Strict(strict) => terminal::show(&strict.run(db)?, strict.json),
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
    changed_by: ChangedBy,

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
    changed_by: ChangedBy,

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
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct StrictSetting {
    strict: bool,
    /// True if the setting changed.
    changed: bool,
}

impl StrictClasses {
    fn run(&self, database: &Database) -> Result<StrictSetting> {
        let conn = &mut connect(database)?;
        let Some(setting) = &self.setting else {
            let strict = classes::strict(conn)?;
            return Ok(StrictSetting {
                strict,
                changed: false,
            });
        };
        let strict = setting == "on";
        let changed = self.changed_by.actor().set_strict_classes(conn, strict)?;
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
        let paused = classes::paused(&mut connect(database)?)?;
        Ok(ListedClasses { paused })
    }
}

impl PauseClass {
    fn run(&self, database: &Database) -> Result<Turned> {
        let mut connection = connect(database)?;
        let known = is_known(&mut connection, &self.class)?;
        let actor = self.changed_by.actor();
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
                .changed_by
                .actor()
                .resume_class(&mut connect(database)?, &self.class)?,
            known: true,
        })
    }
}

/// Returns whether a worker has stored the class, or a recent job has it.
fn is_known(connection: &mut DbConnection, class: &str) -> Result<bool> {
    let found = named(&mut own(connection), class).during("look for the class")?;
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

// --- The output of `pause` and `resume`, of queues and of classes ---

/// The result of pausing or resuming.
#[derive(Debug, Serialize)]
pub(crate) struct Turned {
    #[serde(flatten)]
    pub(crate) what: Pausable,
    pub(crate) paused: bool,
    /// True if the state changed.
    pub(crate) changed: bool,
    /// True if a job, a class or a pause had the name.
    #[serde(skip_serializing_if = "std::clone::Clone::clone")]
    pub(crate) known: bool,
}

/// A queue or a class, which can be paused by its name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pausable {
    QueueName(String),
    ClassName(String),
}

impl Report for Turned {
    fn text(&self, _width: Option<usize>) -> String {
        let (name, command) = match &self.what {
            Pausable::QueueName(name) => (name, "queues"),
            Pausable::ClassName(name) => (name, "classes"),
        };
        let name = printable(name);
        let text = match (self.paused, self.changed) {
            (true, true) => {
                format!("{name} is paused; `windlass {command} resume {name}` resumes it.\n")
            }
            (true, false) => format!("{name} is already paused.\n"),
            (false, true) => format!("{name} goes on.\n"),
            (false, false) => format!("{name} was not paused.\n"),
        };
        match (self.known, &self.what) {
            (true, _) => text,
            (false, Pausable::QueueName(_)) => format!("{text}{}", unknown_queue(&name)),
            (false, Pausable::ClassName(_)) => format!(
                "{text}No worker has stored the class {name}, and no recent job has it: is the name right?\n"
            ),
        }
    }
}

/// Returns the warning about the name of a queue that nothing has.
pub(crate) fn unknown_queue(name: &str) -> String {
    format!("No class has the queue {name}, and no recent job is on it: is the name right?\n")
}

/// Returns `mail was paused 3m ago by ada: the provider is down`, as far as it is known.
pub(crate) fn paused_line(
    name: &str,
    seconds: Option<f64>,
    by: Option<&str>,
    reason: Option<&str>,
) -> String {
    let said = provenance(seconds, by, reason);
    format!("{} was paused{said}\n", printable(name))
}
