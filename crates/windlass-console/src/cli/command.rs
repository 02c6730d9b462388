//! The commands, and how each is run.

use crate::cli::commands::batches::BatchesCommand;
use crate::cli::commands::flows::{self, FlowsCommand};
use crate::cli::commands::web;
use crate::cli::commands::{audit, operations};
use crate::cli::commands::{
    check, doctor, enqueue, failed, health, jobs, limits, migrate, queues, recurring, run_time,
    show, status, supervise, tenants,
};
use crate::cli::config::CommandError;
use crate::cli::mount::At;
use crate::cli::top::TopCommand;
use crate::cli::{done, select};
use crate::terminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use windlass::{Database, Error, Registry, Result};

pub(crate) const EXAMPLES: &str = "\
Examples:
  windlass migrate --database sqlite://jobs.db   create or update the tables
  windlass status --watch                        show queues and processes
  windlass jobs list --state scheduled           list jobs
  windlass explain 4711                          explain why a job is not running
  windlass jobs show 4711                        show everything stored about a job
  windlass failed retry --error 'timed out'      retry failed jobs
  windlass queues pause mail --reason 'no SMTP'  pause a queue
  windlass doctor                                check the database and the processes
  windlass health --kind worker                  check a process, for containers
  windlass check                                 check windlass.toml
  windlass recurring next                        show upcoming runs
  windlass supervise --processes 2 -- ./app worker
                                                 run two workers and a supervisor

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 problem found (doctor),
70 cannot continue (see the log), 75 stopped before all jobs finished.
RUST_LOG sets what is logged on standard error, for example RUST_LOG=debug.";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Migrate(migrate::Migrate),
    #[command(subcommand)]
    Migrations(migrate::Migrations),
    Check(check::Check),
    Supervise(supervise::Supervise),
    Status(status::Status),
    Top(TopCommand),
    Explain(show::Explain),
    #[command(subcommand)]
    Queues(queues::QueuesCommand),
    #[command(subcommand)]
    Classes(run_time::ClassesCommand),
    #[command(subcommand)]
    Limits(limits::LimitsCommand),
    #[command(subcommand)]
    Tenants(tenants::TenantsCommand),
    Quotas(queues::Quotas),
    Processes(supervise::Processes),
    Enqueue(Box<enqueue::Enqueue>),
    #[command(subcommand)]
    Events(flows::EventsCommand),
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    #[command(subcommand)]
    Failed(failed::FailedCommand),
    #[command(subcommand)]
    Batches(BatchesCommand),
    #[command(subcommand)]
    Flows(FlowsCommand),
    #[command(subcommand)]
    Operations(operations::OperationsCommand),
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    Doctor(doctor::Doctor),
    Health(health::HealthCommand),
    #[command(subcommand)]
    Recurring(recurring::RecurringCommand),
    Web(Box<web::Web>),
}

impl Command {
    pub(crate) fn run(&self, at: &At<'_>) -> Result<ExitCode, CommandError> {
        match self {
            Command::Migrate(migrate) => {
                Ok(terminal::show(&migrate.run(&at.database()?)?, migrate.json))
            }
            Command::Migrations(migrate::Migrations::Copy(copy)) => copied(copy, at),
            Command::Check(check) => {
                let checked = check.run(at.url(), at.registry)?;
                let shown = terminal::show(&checked, check.json);
                let is_fine = checked.is_fine();
                Ok(if is_fine { shown } else { ExitCode::FAILURE })
            }
            Command::Supervise(supervise) => Ok(supervise.run(at)?),
            Command::Status(status) => Ok(status.show(&at.database()?.read_only())?),
            Command::Top(top) => Ok(top.run(&at.database()?.read_only())?),
            Command::Explain(explain) => {
                let database = at.database()?.read_only();
                Ok(terminal::show(&explain.run(&database)?, explain.json))
            }
            Command::Queues(command) => command.show(&at.database()?),
            Command::Classes(command) => command.show(&at.database()?),
            Command::Limits(command) => command.show(&at.database()?),
            Command::Tenants(command) => command.show(&at.database()?),
            Command::Batches(command) => command.show(&at.database()?),
            Command::Flows(command) => Ok(command.show(&at.database()?)?),
            Command::Operations(command) => command.show(&at.database()?),
            Command::Audit(command) => command.show(&at.database()?),
            Command::Quotas(quotas) => Ok(terminal::show(
                &quotas.run(&at.database()?.read_only())?,
                quotas.json,
            )),
            Command::Processes(processes) => Ok(terminal::show(
                &processes.run(&at.database()?.read_only())?,
                processes.json,
            )),
            Command::Enqueue(enqueue) => {
                let done = enqueue.run(&at.database()?, at.registry)?;
                Ok(terminal::show(&done, enqueue.json))
            }
            Command::Events(command) => command.show(&at.database()?),
            Command::Jobs(command) => jobs(command, &at.database()?, at.registry),
            Command::Failed(command) => failed(command, &at.database()?),
            Command::Recurring(command) => recurring(command, &at.database()?, at.registry),
            Command::Web(web) => web.run(at),
            Command::Health(health) => health.show(at),
            Command::Doctor(doctor) => Ok(doctor.show(&at.database()?.read_only())?),
        }
    }
}

impl Command {
    /// Returns whether it runs until it is stopped, and so logs what it does.
    pub(crate) fn is_service(&self) -> bool {
        match self {
            Command::Supervise(_) => true,
            Command::Web(web) => web.serves(),
            _ => false,
        }
    }
}

fn copied(copy: &migrate::Copy, at: &At<'_>) -> Result<ExitCode, CommandError> {
    let dialect = match copy.dialect {
        Some(dialect) => dialect,
        None => migrate::dialect_of(&at.database()?),
    };
    Ok(terminal::show(&copy.run(dialect)?, copy.json))
}

/// Shows the result of a change. Returns 1 if not all of the named jobs could be changed.
fn changed(done: &done::Done, how: &select::How) -> ExitCode {
    terminal::show_and_end(done, how.json, done.code())
}

fn jobs(
    command: &jobs::JobsCommand,
    db: &Database,
    registry: Option<&Registry>,
) -> Result<ExitCode, CommandError> {
    use jobs::JobsCommand::{
        Cancel, Discard, Edit, List, Move, Priority, Reschedule, Show, Tag, Untag,
    };
    Ok(match command {
        List(list) => terminal::show(&list.run(&db.clone().read_only())?, list.json),
        Show(show) => terminal::show(&show.run(&db.clone().read_only())?, show.json),
        Cancel(cancel) => changed(&cancel.run(db)?, &cancel.how),
        Discard(discard) => changed(&discard.run(db)?, &discard.how),
        Reschedule(reschedule) => changed(&reschedule.run(db)?, &reschedule.how),
        Edit(edit) => terminal::show(&edit.run(db, registry)?, edit.json),
        Priority(priority) => changed(&priority.run(db)?, &priority.how),
        Move(moved) => changed(&moved.run(db)?, &moved.how),
        Tag(tag) => changed(&tag.add(db)?, &tag.how),
        Untag(untag) => changed(&untag.remove(db)?, &untag.how),
    })
}

fn failed(command: &failed::FailedCommand, db: &Database) -> Result<ExitCode, CommandError> {
    use failed::FailedCommand::{Discard, Groups, List, Retry};
    Ok(match command {
        List(list) => terminal::show(&list.run(&db.clone().read_only())?, list.json),
        Groups(groups) => terminal::show(&groups.run(&db.clone().read_only())?, groups.json),
        Retry(retry) => changed(&retry.run(db)?, &retry.how),
        Discard(discard) => changed(&discard.run(db)?, &discard.how),
    })
}

fn recurring(
    command: &recurring::RecurringCommand,
    db: &Database,
    registry: Option<&Registry>,
) -> Result<ExitCode, CommandError> {
    use recurring::RecurringCommand::{
        Add, Change, History, List, Next, Pause, Remove, Resume, Run,
    };
    Ok(match command {
        List(list) => terminal::show(&list.run(&db.clone().read_only())?, list.json),
        Next(next) => terminal::show(&next.run(&db.clone().read_only())?, next.json),
        History(history) => terminal::show(&history.run(&db.clone().read_only())?, history.json),
        Add(add) => terminal::show(&add.run(db, registry)?, add.json),
        Change(change) => terminal::show(&change.run(db, registry)?, change.json),
        Remove(remove) => terminal::show(&remove.run(db)?, remove.json),
        Run(run) => terminal::show(&run.run(db)?, run.json),
        Pause(pause) => terminal::show(&pause.run(db)?, pause.json),
        Resume(resume) => terminal::show(&resume.run(db)?, resume.json),
    })
}

// --- `windlass completions` and `windlass man` ---

/// Print the completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass completions bash > /etc/bash_completion.d/windlass
  windlass completions zsh > ~/.zfunc/_windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(&self, program: &mut clap::Command) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, program, "windlass", &mut text);
        terminal::print(&text)
    }
}

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass man /usr/local/share/man/man1
  windlass man . && man ./windlass-failed-retry.1")]
pub(crate) struct Man {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, program: clap::Command) -> ExitCode {
        match write(program, &self.directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => terminal::failed(&error),
        }
    }
}

fn write(program: clap::Command, directory: &Path) -> Result<()> {
    let failed = |source| Error::Io {
        action: "write the manual pages to",
        path: directory.to_owned(),
        source,
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(program, directory).map_err(failed)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        crate::cli::run::Cli::command().debug_assert();
    }
}
