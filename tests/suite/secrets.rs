//! A secret leaves the program nowhere, wherever a job repeats it: neither by a page, the HTTP interface or the
//! command, nor in logs, events, traces, the audit or a drain.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::Gate;
use crate::support::program::windlass;
use crate::support::wait::until;
use crate::traces::exported;
use crate::web::client::{Ask, serve};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use windlass::audit::Actor;
use windlass::testing::drain;
use windlass::{
    Backoff, Context, Handle, Job, JobError, JobId, JobResult, NewJob, Policy, Registry, Worker,
};
use windlass_console::web::RunningServer;

on_each_database!(a_secret_leaves_nowhere, a_drain_shows_no_secret);

const SECRET: &str = "xyzzy-4711-plugh";

const QUEUE: &str = "traced_vault";

/// Repeats its secret in everything that a job can write.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open {
    mode: String,
    token: String,
    card: Value,
}

impl Open {
    fn new(mode: &str) -> Self {
        Open {
            mode: mode.to_owned(),
            token: SECRET.to_owned(),
            card: json!({"number": format!("n-{SECRET}"), "name": "Ada"}),
        }
    }
}

impl Job for Open {
    const NAME: &'static str = "traced_open";
    const QUEUE: &'static str = QUEUE;
    const REDACT: &'static [&'static str] = &["token", "card.number"];
    type State = Gate;
    type Output = Value;

    fn policy() -> Policy {
        Policy::new()
            .backoff(Backoff::Fixed(Duration::from_secs(3600)))
            .keep_result(Duration::from_secs(3600))
    }

    fn perform(self, cx: &Context<'_, Gate>) -> JobResult<Value> {
        let token = &self.token;
        cx.log(format!("opens with {token}, {:?}", self.card));
        cx.progress(50.0, format!("at the door of {token}"));
        let shown = json!({"token": "another", "plain": token, "text": format!("by {token}"), format!("of {token}"): 1});
        // A drain without a database of its own has no connection.
        if let Ok(mut conn) = cx.connection() {
            cx.step(&mut conn, "knock", |_| Ok::<_, JobError>(shown.clone()))?;
            drop(conn);
            cx.memo("listen", || Ok(shown.clone()))?;
        }
        match &*self.mode {
            "run" => {
                cx.pass();
                Ok(shown)
            }
            "finish" => Ok(shown),
            "panic" => panic!("no door for {token}"),
            "discard" => Err(JobError::from(format!("not for {token}")).discard()),
            _ => Err(format!("refused\n{token} is too old: {:?}", self.card).into()),
        }
    }
}

fn job(mode: &str) -> NewJob {
    NewJob::new(&Open::new(mode))
        .unwrap()
        .tags([format!("token/{SECRET}"), "night".to_owned()])
        .meta("token", SECRET)
        .meta("note", json!({"by": format!("the owner of {SECRET}")}))
        .meta(format!("for {SECRET}"), "Ada")
}

/// Returns the messages with the secret in them that the crate `log` was given.
fn logged() -> &'static Mutex<Vec<String>> {
    static LOGGED: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    struct Logged;
    impl log::Log for Logged {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let text = record.args().to_string();
            if text.contains(SECRET) {
                logged().lock().unwrap().push(text);
            }
        }

        fn flush(&self) {}
    }
    LOGGED.get_or_init(|| {
        log::set_boxed_logger(Box::new(Logged)).unwrap();
        log::set_max_level(log::LevelFilter::Info);
        Mutex::default()
    })
}

/// Jobs in every state that a job of this class can be in.
struct Vault {
    ids: Vec<i64>,
    gate: Arc<Gate>,
    events: Events,
    _worker: Handle,
}

impl Drop for Vault {
    fn drop(&mut self) {
        self.gate.open();
    }
}

fn vault(db: &TestDb) -> Vault {
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let registry = Registry::new().register::<Open>(Arc::clone(&gate));
    let mut conn = db.connect();
    let mut ids = Vec::new();
    for mode in ["finish", "fail", "panic", "discard", "run"] {
        ids.push(job(mode).enqueue(&mut conn).unwrap().id.0);
    }
    let retried = job("fail").policy(Open::policy().max_attempts(3));
    ids.push(retried.enqueue(&mut conn).unwrap().id.0);
    let elsewhere = job("finish").queue("elsewhere");
    ids.push(elsewhere.enqueue(&mut conn).unwrap().id.0);
    let worker = Worker::new(&db.database, registry)
        .queues([QUEUE])
        .unwrap()
        .threads(2)
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(Duration::from_secs(60))
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("all but one have ended, and that one reports", || {
        db.rows("failed_executions") == 2
            && db.rows("scheduled_executions") == 1
            && db.count(
                "SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE note LIKE '%door%'",
            ) == 1
            && db.rows("claimed_executions") == 1
            && db.count("SELECT count(*) AS n FROM windlass_job_logs") == 6
    });
    Actor::named("ops")
        .edit_arguments(
            &mut conn,
            JobId(ids[6]),
            &serde_json::to_string(&Open::new("later")).unwrap(),
            None,
        )
        .unwrap();
    windlass::jobs::cancel(&mut conn, JobId(ids[6])).unwrap();
    Vault {
        ids,
        gate,
        events,
        _worker: worker,
    }
}

/// Each request, and the text that came back.
type Shown = Vec<(String, String)>;

fn by_http(server: &RunningServer, ids: &[i64]) -> Shown {
    let states = [
        "scheduled",
        "running",
        "failed",
        "finished",
        "cancelled",
        "discarded",
    ];
    let mut paths: Vec<String> = [
        "/",
        "/jobs",
        "/failed",
        "/queues",
        "/processes",
        "/limits",
        "/recurring",
        "/batches",
        "/operations",
        "/audit",
        "/doctor",
        "/metrics",
        "/preview?which=matching&do=retry&state=failed",
        "/jobs?args=night",
        "/jobs?args=Ada",
    ]
    .map(str::to_owned)
    .into();
    paths.extend(states.map(|state| format!("/jobs?state={state}")));
    paths.push(format!("/queues/{QUEUE}"));
    for id in ids {
        for rest in ["", "/flow", "/cancel", "/discard", "/retry"] {
            paths.push(format!("/jobs/{id}{rest}"));
        }
        paths.push(format!("/v1/jobs/{id}"));
    }
    let shown = paths.into_iter().map(|path| {
        let reply = Ask::new(server.address(), "GET", &path).send();
        assert!(
            [200, 303, 400, 404, 409].contains(&reply.status),
            "{path}: {reply:?}"
        );
        (path, reply.body)
    });
    shown.collect()
}

fn by_command(db: &TestDb, ids: &[i64]) -> Shown {
    let mut commands: Vec<String> = [
        "status",
        "queues list",
        "queues show traced_vault",
        "processes",
        "failed list",
        "failed groups",
        "audit list",
        "operations list",
        "batches list",
        "recurring list",
        "classes list",
        "limits list",
        "quotas",
        "doctor",
    ]
    .map(str::to_owned)
    .into();
    for state in [
        "",
        " --state failed",
        " --state finished",
        " --state discarded",
        " --state cancelled",
        " --state claimed",
        " --tag night",
    ] {
        commands.push(format!("jobs list{state}"));
    }
    for id in ids {
        commands.push(format!("jobs show {id} --logs"));
        commands.push(format!("explain {id}"));
    }
    let commands = commands
        .into_iter()
        .flat_map(|one| [one.clone(), format!("{one} --json")]);
    let shown = commands.map(|command| {
        let said = windlass(&db.url, &command.split(' ').collect::<Vec<_>>());
        assert!(
            [Some(0), Some(3)].contains(&said.code),
            "{command}: {said:?}"
        );
        (command, format!("{}{}", said.out, said.err))
    });
    shown.collect()
}

fn by_library(db: &TestDb, vault: &Vault) -> Shown {
    let conn = &mut db.connection();
    let mut shown = Vec::new();
    let mut add = |what: &str, text: String| shown.push((what.to_owned(), text));
    for id in &vault.ids {
        let id = JobId(*id);
        add(
            "find",
            format!("{:?}", windlass::jobs::find(conn, id).unwrap()),
        );
        add(
            "explain",
            format!("{:?}", windlass::jobs::explain(conn, id).unwrap()),
        );
    }
    add(
        "failed_groups",
        format!("{:?}", windlass::failed::groups(conn, 10).unwrap()),
    );
    for kind in ["Failed", "Retried", "Discarded", "Finished", "Cancelled"] {
        add("event", format!("{:?}", vault.events.of(kind)));
    }
    add("trace", format!("{:?}", exported::of_queue(QUEUE)));
    add("log", format!("{:?}", logged().lock().unwrap()));
    shown
}

fn a_secret_leaves_nowhere(db: &TestDb) {
    logged();
    let vault = vault(db);
    let server = serve(&db.database);
    let mut shown = by_http(&server, &vault.ids);
    shown.extend(by_command(db, &vault.ids));
    shown.extend(by_library(db, &vault));
    // It is not known any more which values are secret.
    let gone = vault.ids[0];
    db.execute(&format!("DELETE FROM solid_queue_jobs WHERE id = {gone}"));
    let reply = Ask::new(server.address(), "GET", &format!("/v1/jobs/{gone}")).send();
    assert!(reply.body.contains("\"result\":\"[hidden]\""), "{reply:?}");
    shown.push(("a result without its job".to_owned(), reply.body));
    let said = windlass(&db.url, &["jobs", "show", &gone.to_string(), "--json"]);
    shown.push(("the same by the command".to_owned(), said.out));
    let leaks: Vec<&(String, String)> = shown
        .iter()
        .filter(|(_, text)| text.contains("xyzzy"))
        .collect();
    let places: Vec<&str> = leaks.iter().map(|(what, _)| &**what).collect();
    assert!(leaks.is_empty(), "{places:?}\n{:?}", leaks[0]);
    // Values beside the secret ones are shown, so these are the right places.
    let all: String = shown.iter().map(|(_, text)| &**text).collect();
    for part in [
        "is too old",
        "no door for",
        "not for",
        "opens with",
        "at the door of",
        "the owner of",
        "token/[hidden]",
        "knock",
        "listen",
        "Ada",
    ] {
        assert!(all.contains(part), "{part}");
    }
}

fn a_drain_shows_no_secret(db: &TestDb) {
    let registry = Registry::new().register::<Open>(Gate::default());
    for mode in ["finish", "fail", "panic", "discard"] {
        job(mode).enqueue(&mut db.connection()).unwrap();
    }
    let drained = drain(&mut db.connection(), &registry).unwrap();
    let text = format!("{drained:?}");
    assert!(
        text.contains("is too old") && text.contains("opens with"),
        "{text}"
    );
    assert!(!text.contains("xyzzy"), "{text}");
}
