//! The thread that renders what is open.

use crate::clock;
use crate::db::table::web::{sessions, tokens};
use crate::db::{Database, own};
use crate::error::{Doing as _, Result};
use crate::operation::{OperationTurns, pause_after};
use crate::process::base::stop;
use crate::web::access::viewer::{Need, Proof};
use crate::web::api::{self, enqueue, job_request, outcome};
use crate::web::dispatch::queue::PageDispatcher;
use crate::web::http::PageError;
use crate::web::live::{self, RenderedTopic, Topic};
use crate::web::pages::job::{self, change, confirm};
use crate::web::pages::{
    audit, batches, bulk, doctor, failed, flow, jobs, limits, login, operations, overview,
    processes, queue, queues, recurring,
};
use crate::web::reads::ChangeConnection;
use crate::web::request::route::{self, Route};
use crate::web::site::Site;
use crate::web::{entry, metrics, readiness};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time between two renderings of a page.
const TICK: Duration = Duration::from_secs(2);

/// How often it is checked whether viewers may still see what they see.
const VERIFY: Duration = Duration::from_secs(5);

/// Renders what is open, until the server stops.
pub(crate) fn run(mut dispatcher: PageDispatcher) {
    let site = Arc::clone(&dispatcher.site);
    let mut verified_at: Option<Instant> = None;
    while site.hub.wait_for_viewers() {
        let start = clock::instant();
        for topic in site.hub.topics() {
            let now = clock::instant();
            let is_due = |at: Instant| now.saturating_duration_since(at) >= VERIFY;
            if verified_at.is_none_or(is_due) {
                verify(&mut dispatcher);
                verified_at = Some(now);
            }
            if site.hub.is_stopped() {
                return;
            }
            let read_from = clock::instant();
            let rendered = render(&mut dispatcher, &topic);
            site.hub.publish(&topic, read_from, rendered);
        }
        // However slow the database is, it has at least half of the time for others.
        let took = start.elapsed();
        if !site.hub.pause(TICK.saturating_sub(took).max(took)) {
            break;
        }
    }
}

fn render(dispatcher: &mut PageDispatcher, topic: &Topic) -> RenderedTopic {
    match dispatcher.render(topic) {
        Ok(html) => RenderedTopic::Fragments(live::of_page(&html)),
        Err(PageError::Away) => {
            let source = dispatcher.site.sources.get(topic.database);
            let away = source.and_then(|source| source.outage.age());
            RenderedTopic::Away(away.unwrap_or_default())
        }
        Err(error) => {
            let page = &topic.address;
            log::debug!("web: cannot update {page}: {error:?}");
            RenderedTopic::Nothing
        }
    }
}

/// Drops the viewers whose session or token has ended.
fn verify(dispatcher: &mut PageDispatcher) {
    let site = Arc::clone(&dispatcher.site);
    let proofs = site.hub.proofs();
    let (mut session_ids, mut token_ids) = (Vec::new(), Vec::new());
    let (mut has_local, mut has_recalled) = (false, false);
    for proof in proofs {
        match proof {
            Proof::Session(id) => session_ids.push(id),
            Proof::Token(id) => token_ids.push(id),
            Proof::Local => has_local = true,
            Proof::Recalled => has_recalled = true,
            Proof::Nothing | Proof::Proxy => {}
        }
    }
    if has_local && let Ok(true) = entry::tokens_exist(&site, &mut dispatcher.readers) {
        site.hub.keep(|proof| proof != Proof::Local);
    }
    if session_ids.is_empty() && token_ids.is_empty() && !has_recalled {
        return;
    }
    let idle = site.access.settings.session_idle;
    let active: Result<(BTreeSet<i64>, BTreeSet<i64>)> = dispatcher.writers.look(0, |conn| {
        let sessions = sessions::active(conn, &session_ids, idle).doing("check the sessions")?;
        let tokens = tokens::active(conn, &token_ids).doing("check the tokens")?;
        Ok((sessions.into_iter().collect(), tokens.into_iter().collect()))
    });
    // While the database is away, they see what was last seen.
    if let Ok((sessions, tokens)) = active {
        site.hub.keep(|proof| match proof {
            // One that was opened meanwhile was proven when it was.
            Proof::Session(id) => sessions.contains(&id) || !session_ids.contains(&id),
            Proof::Token(id) => tokens.contains(&id) || !token_ids.contains(&id),
            // Now they can be proven: their browsers connect again.
            Proof::Recalled => false,
            _ => true,
        });
    }
}

// --- The table of all pages, changes and requests of programs ---

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
    Route::get("/jobs", jobs::show),
    Route::get("/metrics", metrics::show).needs(Need::Nothing),
    Route::get("/readyz", readiness::ready).needs(Need::Nothing),
    Route::get("/jobs/{id}", job::show).live(),
    Route::get("/jobs/{id}/flow", flow::of_job).live(),
    Route::get("/jobs/{id}/cancel", confirm::cancel),
    Route::get("/jobs/{id}/discard", confirm::discard),
    Route::get("/jobs/{id}/retry", confirm::retry),
    Route::post("/jobs/{id}/cancel", change::cancel),
    Route::post("/jobs/{id}/discard", change::discard),
    Route::post("/jobs/{id}/retry", change::retry),
    Route::post("/jobs/{id}/run", change::run),
    Route::post("/jobs/{id}/change", change::change),
    Route::get("/preview", bulk::preview::show),
    Route::post("/preview", bulk::preview::start),
    Route::get("/failed", failed::show),
    Route::get("/batches", batches::show).live(),
    Route::get("/batches/{id}", batches::one::show).live(),
    Route::get("/batches/{id}/flow", flow::of_batch).live(),
    Route::get("/batches/{id}/cancel", batches::confirm::cancel),
    Route::get("/batches/{id}/retry", batches::confirm::retry),
    Route::post("/batches/{id}/cancel", batches::cancel),
    Route::post("/batches/{id}/retry", batches::retry),
    Route::get("/operations", operations::show).live(),
    Route::get("/operations/{id}", operations::one::show).live(),
    Route::post("/operations/{id}/stop", operations::one::stop),
    Route::get("/audit", audit::show),
    Route::get("/queues", queues::show).live(),
    Route::get("/queues/{name}", queue::show).live(),
    Route::post("/queues/{name}/pause", queues::pause),
    Route::post("/queues/{name}/resume", queues::resume),
    Route::get("/recurring", recurring::show).live(),
    Route::post("/recurring/{key}/run", recurring::run),
    Route::post("/recurring/{key}/pause", recurring::pause),
    Route::post("/recurring/{key}/resume", recurring::resume),
    Route::get("/processes", processes::show).live(),
    Route::get("/limits", limits::show).live(),
    Route::post("/limits/set", limits::set),
    Route::post("/limits/clear", limits::clear),
    Route::get("/doctor", doctor::show).live(),
    Route::post("/classes/pause", queues::pause_class),
    Route::post("/classes/{name}/resume", queues::resume_class),
    Route::post("/v1/jobs", enqueue::one).needs(Need::Enqueuer),
    Route::post(enqueue::LIST, enqueue::many).needs(Need::Enqueuer),
    Route::get("/v1/jobs/{id}", outcome::show).needs(Need::Anyone),
    Route::get(job_request::PATH, job_request::show).needs(Need::Anyone),
    Route::get("/v1/openapi.json", api::show).needs(Need::Nothing),
    Route::get("/login", login::show).needs(Need::Nothing),
    Route::post("/theme", route::change).needs(Need::Nothing),
];

// --- The thread that runs operations: changes of many jobs, a batch at a time ---

/// How often operations are looked for that other processes have started.
const LOOK: Duration = Duration::from_secs(2);

/// How long one database is worked on before the next.
const TURN: Duration = Duration::from_millis(500);

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(2);

/// How long to wait after a failure.
const REST: Duration = Duration::from_secs(5);

/// One database, and what is known of it.
struct Operated {
    database: Database,
    connection: Option<ChangeConnection>,
    turns: OperationTurns,
    /// After a failure: until when it is left alone.
    rests_until: Option<Instant>,
}

/// Starts the thread; it ends when `stop` becomes `true`.
pub(crate) fn start(
    site: &Arc<Site>,
    woken: Receiver<()>,
    stop: watch::Receiver<bool>,
) -> Result<JoinHandle<()>> {
    let sources = site.sources.iter();
    let mut databases: Vec<Operated> = sources
        .map(|source| Operated {
            database: source.database.clone(),
            connection: None,
            turns: OperationTurns::default(),
            rests_until: None,
        })
        .collect();
    let site = Arc::clone(site);
    stop::spawn("web-operations", move || {
        while !*stop.borrow() {
            let mut has_more = false;
            for (operated, source) in databases.iter_mut().zip(&site.sources) {
                if *stop.borrow() {
                    break;
                }
                let run = operated.turn(&woken);
                if run.batches > 0 {
                    source.forget();
                }
                has_more |= run.has_more;
            }
            if !has_more {
                match woken.recv_timeout(LOOK) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        }
    })
}

/// What came of the turn of a database.
#[derive(Debug, Default)]
struct TurnResult {
    batches: u64,
    /// Whether there may be more to run at once.
    has_more: bool,
}

impl Operated {
    /// Runs up to one batch of each open operation.
    fn turn(&mut self, woken: &Receiver<()>) -> TurnResult {
        let now = clock::instant();
        if self.rests_until.is_some_and(|until| now < until) {
            return TurnResult::default();
        }
        match self.run(woken) {
            Ok(run) => {
                self.rests_until = None;
                run
            }
            Err(error) => {
                // Once for each outage: the pages report it to viewers.
                let level = match self.rests_until {
                    None => log::Level::Warn,
                    Some(_) => log::Level::Debug,
                };
                log::log!(level, "web: cannot run operations, trying again: {error}");
                self.connection = None;
                self.rests_until = now.checked_add(REST);
                TurnResult::default()
            }
        }
    }

    fn run(&mut self, woken: &Receiver<()>) -> Result<TurnResult> {
        let kept = match self.connection.take().filter(ChangeConnection::is_current) {
            Some(kept) => kept,
            None => ChangeConnection::open(&self.database, CONNECT)?,
        };
        let connection = &mut self.connection.insert(kept).connection;
        let (start, turns) = (clock::instant(), &mut self.turns);
        let passed_over = turns.passed_over();
        let open = turns
            .open(&mut own(connection))
            .doing("look for operations")?;
        let mut batches = 0;
        for id in open {
            let batch_start = clock::instant();
            let write_turn = connection.write_turn();
            let advance = turns
                .step(&mut own(connection), id)
                .doing("run an operation")?;
            drop(write_turn);
            batches += u64::from(advance.is_some());
            // Otherwise other writers of a SQLite file, such as a stop of the operation, would wait
            // until it has ended. A wake ends the pause, also that of a stop.
            let _ = woken.recv_timeout(pause_after(batch_start.elapsed()));
            if start.elapsed() >= TURN {
                return Ok(TurnResult {
                    batches,
                    has_more: true,
                });
            }
        }
        // Behind those that are passed over from now on, there may be others.
        let has_more = batches > 0 || turns.passed_over() != passed_over;
        Ok(TurnResult { batches, has_more })
    }
}
