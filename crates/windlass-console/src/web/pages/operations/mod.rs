//! Changes of many jobs: starting them, how far they are, and stopping them.

pub(crate) mod preview;
pub(crate) mod selection;

use crate::web::http::{self, PageError, Pairs, Response};
use crate::web::pages::words::{self, conditions};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, count, filters, state};
use crate::web::site::Section;
use askama::Template;
use windlass::internal::admin::change::PacedChange;
use windlass::jobs::Change;
use windlass::operations;
use windlass::operations::{NewOperation, Operation, OperationState, Preview};

// --- The list of operations ---

/// The most operations on a page.
const ROWS: u32 = 50;

#[derive(Template)]
#[template(path = "operations/list.html")]
struct OperationsPage {
    shell: Shell,
    rows: Panel<Vec<OperationView>>,
    /// The addresses of the pages with the newest and the older ones; empty if there are none.
    newest: String,
    older: String,
}

/// Shows the operations, the newest first.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let before = cx.query().number("before");
    let shell = cx.shell("Operations", Section::Operations)?;
    let found = cx.panel("the operations", |conn| {
        operations::list(conn, before, ROWS + 1)
    });
    let has_older = found
        .ready()
        .is_some_and(|found| found.len() > ROWS as usize);
    let rows = found.map(|found| {
        let rows = found.iter().take(ROWS as usize);
        rows.map(|one| OperationView::of(one, &shell))
            .collect::<Vec<_>>()
    });
    let last = rows.ready().and_then(|rows| rows.last());
    let older = last
        .filter(|_| has_older)
        .map(|last| shell.find("/operations", [("before", &*last.id.to_string())]));
    cx.render(&OperationsPage {
        newest: before.map_or_else(String::new, |_| shell.link("/operations")),
        older: older.unwrap_or_default(),
        rows,
        shell,
    })
}

// --- One operation: its progress, and stopping it ---

/// After this time without a batch, no process seems to run it.
const STILL: f64 = 15.0;

#[derive(Template)]
#[template(path = "operations/one.html")]
struct OperationPage {
    shell: Shell,
    view: OperationView,
    operation: Operation,
    selected: Vec<(String, String)>,
    counts: Vec<CountRow>,
    is_still: bool,
}

fn find(cx: &mut Cx<'_>) -> Result<Operation, PageError> {
    let source = cx.site.sources.get(cx.request.database);
    let late = match source.is_some_and(|source| source.replica.is_some()) {
        true => {
            " If it was started just now, reload: pages are read from a replica, which is a little late."
        }
        false => "",
    };
    let missing = |id: &str| {
        PageError::NotFound(format!(
            "There is no operation {id}: it never existed, or its row was deleted some time after its end.{late}"
        ))
    };
    let text = cx.param("id").to_owned();
    let id: i64 = text.parse().map_err(|_| missing(&text))?;
    cx.read(|conn| operations::find(conn, id))?
        .ok_or_else(|| missing(&text))
}

/// Shows an operation.
pub(crate) fn show_one(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let operation = find(cx)?;
    let shell = cx.shell(&format!("Operation {}", operation.id), Section::Operations)?;
    cx.render(&OperationPage {
        view: OperationView::of(&operation, &shell),
        selected: selected(&operation),
        counts: counts(&operation),
        is_still: !operation.state.has_ended() && operation.still_seconds > STILL,
        operation,
        shell,
    })
}

/// Stops an operation.
pub(crate) fn stop(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let id = find(cx)?.id;
    let actor = words::page_actor(cx, cx.form().get("reason"));
    let stopped = cx.write(|conn| actor.stop_operation(conn, id))?;
    let message = match stopped {
        true => "Stopped. The jobs that were changed stay as they are now.",
        false => "Nothing was stopped: the operation had ended.",
    };
    Ok(cx.done(&http::path(&["operations", &id.to_string()]), message))
}

impl OperationPage {
    fn stop_path(&self) -> String {
        let id = self.operation.id.to_string();
        self.shell.to(["operations", &id, "stop"])
    }

    fn audit_path(&self) -> String {
        let id = self.operation.id.to_string();
        self.shell.find("/audit", [("operation", &id)])
    }
}

// --- Starting an operation that was confirmed ---

/// Returns the preview that a form confirms, and the id of its request: the same form sent again leads to the same
/// operation. `None` if it has none.
pub(crate) fn confirmed(form: &Pairs) -> Option<(Preview, String)> {
    let preview = serde_json::from_str(form.get("preview")?).ok()?;
    Some((preview, form.get("request")?.to_owned()))
}

/// Returns the id of the request of a new form. Two forms with one id would start one operation.
pub(crate) fn new_request() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Starts an operation, and shows it.
pub(crate) fn start(cx: &mut Cx<'_>, operation: NewOperation) -> Result<Response, PageError> {
    let started = cx.write(|conn| operation.start(conn))?;
    let _ = cx.site.operations.try_send(());
    let path = http::path(&["operations", &started.id.to_string()]);
    Ok(Response::see_other(cx.link(&path)))
}

// --- An operation as pages show it ---

/// An operation.
#[derive(Debug)]
pub(crate) struct OperationView {
    pub(crate) id: i64,
    /// The action and its pace: `Retry jobs, 100 a minute`.
    pub(crate) what: String,
    pub(crate) state: Markup,
    pub(crate) has_ended: bool,
    /// From 0 to 100.
    pub(crate) percent: String,
    pub(crate) changed: String,
    /// `1,204` or `10,000+`; empty if they were not counted.
    pub(crate) total: String,
    pub(crate) actor: String,
    pub(crate) since: Markup,
    pub(crate) href: String,
}

impl OperationView {
    pub(crate) fn of(operation: &Operation, shell: &Shell) -> Self {
        let (class, word) = match operation.state {
            OperationState::Waiting => ("ready ink", "waiting"),
            OperationState::Running => ("run ink", "running"),
            OperationState::Stopped => ("disc ink", "stopped"),
            OperationState::Done => ("done ink", "done"),
            OperationState::Failed => ("fail ink", "failed"),
        };
        let total = operation.total.map(|total| {
            let plus = if total.is_exact { "" } else { "+" };
            format!("{}{plus}", count(total.count))
        });
        OperationView {
            id: operation.id,
            what: what(operation),
            state: state(class, word),
            has_ended: operation.state.has_ended(),
            percent: format!("{:.0}", (operation.fraction * 100.0).floor()),
            changed: count(operation.changed),
            total: total.unwrap_or_default(),
            actor: operation.actor.clone(),
            since: shell.time_ago(&operation.created_at.naive_utc()),
            href: shell.to(["operations", &operation.id.to_string()]),
        }
    }
}

/// Returns what an operation does, in words.
fn what(operation: &Operation) -> String {
    let Ok(task) = serde_json::from_value::<PacedChange>(operation.parameters.clone()) else {
        return operation.action.clone();
    };
    let rate = task
        .rate
        .map(|rate| format!(", {rate}"))
        .unwrap_or_default();
    match task.change {
        Change::Retry { even_at_most_once } => {
            let even = if even_at_most_once {
                ", also those that run at most once"
            } else {
                ""
            };
            format!("Retry jobs{rate}{even}")
        }
        Change::Cancel => "Cancel jobs".to_owned(),
        Change::Discard => "Discard jobs".to_owned(),
        Change::RunIn(delay) if delay.is_zero() => "Run jobs now".to_owned(),
        Change::RunAt(_) | Change::RunIn(_) => "Reschedule jobs".to_owned(),
        Change::Priority(priority) => format!("Set the priority of jobs to {priority}"),
        Change::Queue(queue) => format!("Move jobs to the queue {queue}"),
    }
}

/// A selection in words: each condition with its name.
pub(crate) fn selected(operation: &Operation) -> Vec<(String, String)> {
    let known = conditions(&operation.filter);
    let mut words =
        known.unwrap_or_else(|| vec![("selection".to_owned(), operation.filter.to_string())]);
    for (name, _) in &mut words {
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
    }
    words
}

/// A number with what it counts.
#[derive(Debug)]
pub(crate) struct CountRow {
    pub(crate) what: &'static str,
    pub(crate) count: String,
}

/// Returns what became of the jobs: the changed ones, and those that were left, with the reason.
pub(crate) fn counts(operation: &Operation) -> Vec<CountRow> {
    let done = operation.counts.done;
    let is_cancel = operation.action == "jobs.cancel";
    let running = match is_cancel {
        true => "asked to stop, as a process runs them",
        false => "left, as a process runs them",
    };
    let rows = [
        ("changed", done.changed),
        (running, done.running),
        ("left, as a Ruby process runs them", done.in_ruby),
        ("left, as they run at most once", done.at_most_once),
        ("left, as another job holds their unique id", done.id_taken),
        ("moved or ended before they were reached", done.passed_over),
        ("refused by the database", operation.counts.refused),
    ];
    let rows = rows.into_iter().enumerate();
    let shown = rows.filter(|(place, (_, count))| *place == 0 || *count > 0);
    shown
        .map(|(_, (what, number))| CountRow {
            what,
            count: count(number),
        })
        .collect()
}
