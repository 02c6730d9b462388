//! Triggers for a database that a Rails app shares, made only where they were asked for.
//!
//! Each option that was asked for is a row of `windlass_settings`. [`migrate`](crate::migrate) makes the triggers that
//! are wanted and missing, also after Rails has made its tables again, and drops those that are not wanted any more.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::listening;
use crate::db::conn::statement::Statement;
use crate::db::schema::functions::close_functions;
use crate::db::schema::items::Catalog;
use crate::db::schema::plan::{Action, PlanStep};
use diesel::prelude::*;
use diesel::sql_types::Text;

/// An option for a database that a Rails app shares. See [`set_rails_option`](crate::schema::set_rails_option).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RailsOption {
    /// Jobs that Ruby makes ready wake idle workers at once. Without it, a worker on Postgres finds them when it polls.
    /// On SQLite, workers notice every commit anyway, so that the option changes nothing.
    ///
    /// The price is a look at its rows for each statement that makes jobs ready, and a NOTIFY for those of Ruby.
    WakeFromRuby,
    /// Jobs that are enqueued from now on carry Active Job's envelope and an `active_job_id`, whichever program enqueues
    /// them, so that Mission Control lists, shows, retries and discards them. Workers and pages of Windlass see the
    /// arguments without it.
    ActiveJobEnvelopes,
}

impl RailsOption {
    pub(crate) const ALL: [RailsOption; 2] =
        [RailsOption::WakeFromRuby, RailsOption::ActiveJobEnvelopes];

    /// The name of its setting.
    pub(crate) fn setting(self) -> &'static str {
        match self {
            RailsOption::WakeFromRuby => "wake_from_ruby",
            RailsOption::ActiveJobEnvelopes => "active_job_envelopes",
        }
    }

    /// The table of its triggers.
    fn table(self) -> &'static str {
        match self {
            RailsOption::WakeFromRuby => "solid_queue_ready_executions",
            RailsOption::ActiveJobEnvelopes => "solid_queue_jobs",
        }
    }

    /// Returns the names of its triggers, each with the statements that make it.
    fn triggers(self, dialect: Dialect) -> Vec<(&'static str, Vec<String>)> {
        match (self, dialect) {
            (RailsOption::WakeFromRuby, Dialect::Postgres) => vec![(
                "windlass_wake_from_ruby",
                vec![wake_function(), WAKE_TRIGGER.to_owned()],
            )],
            (RailsOption::WakeFromRuby, Dialect::Sqlite) => Vec::new(),
            (RailsOption::ActiveJobEnvelopes, Dialect::Postgres) => vec![(
                "windlass_envelope",
                vec![ENVELOPE_FUNCTION.to_owned(), ENVELOPE_TRIGGER.to_owned()],
            )],
            (RailsOption::ActiveJobEnvelopes, Dialect::Sqlite) => vec![
                (
                    "windlass_envelope",
                    vec![sqlite_envelope("windlass_envelope", "INSERT")],
                ),
                (
                    "windlass_envelope_again",
                    vec![sqlite_envelope(
                        "windlass_envelope_again",
                        "UPDATE OF arguments",
                    )],
                ),
            ],
        }
    }
}

#[derive(QueryableByName)]
struct SettingOn {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Returns the steps to make the triggers that are wanted, and to drop the others.
pub(crate) fn steps(conn: &mut Conn<'_>, catalog: &Catalog) -> QueryResult<Vec<PlanStep>> {
    let mut steps = Vec::new();
    if !catalog.has_table("windlass_settings") {
        return Ok(steps);
    }
    let dialect = conn.dialect();
    let text = "SELECT name FROM windlass_settings WHERE value = 'on'";
    let on: Vec<SettingOn> = Statement::new(text).uncached().load(conn)?;
    for option in RailsOption::ALL {
        let is_on = on.iter().any(|one| one.name == option.setting());
        for (name, making) in option.triggers(dialect) {
            let is_there = catalog.other("trigger", name).is_some();
            if is_on != is_there && catalog.has_table(option.table()) {
                steps.push(step(option, dialect, name, making, is_on));
            }
        }
    }
    Ok(steps)
}

fn step(
    option: RailsOption,
    dialect: Dialect,
    name: &str,
    making: Vec<String>,
    is_on: bool,
) -> PlanStep {
    let table = option.table();
    let acts = match (is_on, dialect) {
        (true, Dialect::Postgres) => making.into_iter().chain([close_functions()]).collect(),
        (true, Dialect::Sqlite) => making,
        (false, Dialect::Postgres) => vec![format!("DROP TRIGGER {name} ON {table}")],
        (false, Dialect::Sqlite) => vec![format!("DROP TRIGGER {name}")],
    };
    PlanStep {
        what: Some(format!("trigger {name} of {table}")),
        fault: if is_on { "is missing" } else { "is not wanted" }.to_owned(),
        version: option.setting().to_owned(),
        table: Some(table.to_owned()),
        acts: acts.into_iter().map(Action::Run).collect(),
        is_vital: false,
    }
}

/// Ruby names no class in the ready executions that it makes.
fn wake_function() -> String {
    let wake =
        listening::wake("of_ruby").replace("{now}", "(statement_timestamp() AT TIME ZONE 'UTC')");
    format!(
        "CREATE OR REPLACE FUNCTION windlass_wake_from_ruby() RETURNS trigger LANGUAGE plpgsql AS $$ \
         DECLARE of_ruby bigint; \
         BEGIN \
           SELECT count(*) INTO of_ruby FROM made WHERE class_name IS NULL; \
           IF of_ruby > 0 THEN PERFORM {wake}; END IF; \
           RETURN NULL; \
         END $$"
    )
}

const WAKE_TRIGGER: &str = "CREATE TRIGGER windlass_wake_from_ruby AFTER INSERT ON solid_queue_ready_executions \
     REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION windlass_wake_from_ruby()";

/// Puts the envelope of Active Job around the arguments, and sets the time that Solid Queue stores for a job that is
/// due at once. Mission Control cannot show a finished job without that time. Workers remove an envelope that has the
/// last field, `windlass`. Arguments that already have their envelope, and were changed by Ruby, stay as they are.
const ENVELOPE_FUNCTION: &str = "\
CREATE OR REPLACE FUNCTION windlass_envelope() RETURNS trigger LANGUAGE plpgsql AS $$ \
BEGIN \
  NEW.active_job_id := concat('windlass-', NEW.id); \
  NEW.arguments := concat('{\"job_class\":', to_json(NEW.class_name), ',\"job_id\":\"', NEW.active_job_id, \
    '\",\"provider_job_id\":null,\"queue_name\":', to_json(NEW.queue_name), ',\"priority\":', NEW.priority, \
    ',\"arguments\":[', coalesce(NEW.arguments, 'null'), '],\"executions\":0,\"exception_executions\":{},\"locale\":\"en\",\"timezone\":\"UTC\"', \
    ',\"enqueued_at\":\"', to_char(NEW.created_at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), '\",\"scheduled_at\":', \
    coalesce('\"' || to_char(NEW.scheduled_at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') || '\"', 'null'), ',\"windlass\":true}'); \
  NEW.scheduled_at := coalesce(NEW.scheduled_at, NEW.created_at); \
  RETURN NEW; \
END $$";

const ENVELOPE_TRIGGER: &str = "\
CREATE TRIGGER windlass_envelope BEFORE INSERT OR UPDATE OF arguments ON solid_queue_jobs FOR EACH ROW \
WHEN ((NEW.active_job_id IS NULL OR NEW.active_job_id LIKE 'windlass-%') \
  AND coalesce(NEW.arguments, '') NOT LIKE '{\"job_class\":%,\"windlass\":true}') \
EXECUTE FUNCTION windlass_envelope()";

fn sqlite_envelope(name: &str, on: &str) -> String {
    let moment = |column: &str| format!("replace(NEW.{column}, ' ', 'T') || 'Z'");
    format!(
        "CREATE TRIGGER {name} AFTER {on} ON solid_queue_jobs \
         WHEN (NEW.active_job_id IS NULL OR NEW.active_job_id LIKE 'windlass-%') \
           AND coalesce(NEW.arguments, '') NOT LIKE '{{\"job_class\":%,\"windlass\":true}}' \
         BEGIN \
           UPDATE solid_queue_jobs SET active_job_id = 'windlass-' || NEW.id, scheduled_at = coalesce(NEW.scheduled_at, NEW.created_at), \
             arguments = '{{\"job_class\":' || json_quote(NEW.class_name) || ',\"job_id\":\"windlass-' || NEW.id \
               || '\",\"provider_job_id\":null,\"queue_name\":' || json_quote(NEW.queue_name) || ',\"priority\":' || NEW.priority \
               || ',\"arguments\":[' || coalesce(NEW.arguments, 'null') \
               || '],\"executions\":0,\"exception_executions\":{{}},\"locale\":\"en\",\"timezone\":\"UTC\"' \
               || ',\"enqueued_at\":\"' || {enqueued} || '\",\"scheduled_at\":' || coalesce('\"' || {scheduled} || '\"', 'null') \
               || ',\"windlass\":true}}' \
           WHERE id = NEW.id; \
         END",
        enqueued = moment("created_at"),
        scheduled = moment("scheduled_at"),
    )
}
