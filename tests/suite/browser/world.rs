//! A database with jobs in every state, processes that run, and a server of its pages.

use super::work::{How, Open, job, registry};
use crate::support::TestDb;
use crate::support::wait::until;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass::flows::On;
use windlass::jobs::{Change, Jobs};
use windlass::{
    Batch, Concurrency, Delivery, Dispatcher, Handle, JobId, NewJob, Policy, RecurringTask,
    Scheduler, Supervisor, Worker, classes, enqueue_all, limits, queues, recurring,
};
use windlass_console::web::{RunningServer, Server};

/// Ends everything when dropped.
pub struct World<'d> {
    pub db: &'d TestDb,
    pub server: RunningServer,
    open: Arc<Open>,
    supervisor: Option<Handle>,
}

/// Of the queues that its worker serves.
const SERVED: [&str; 6] = ["mail", "payments", "imports", "reports", "stock", "default"];

impl<'d> World<'d> {
    /// Jobs in every state and their server.
    pub fn new(db: &'d TestDb) -> Self {
        Self::served_by(db, Server::new(&db.database))
    }

    /// The same with a server of the test's own.
    pub fn served_by(db: &'d TestDb, server: Server) -> Self {
        let world = Self::with(db, server);
        odd_jobs(db);
        world
    }

    /// The same without hostile names: for pictures.
    pub fn tidy(db: &'d TestDb) -> Self {
        Self::with(db, Server::new(&db.database))
    }

    fn with(db: &'d TestDb, server: Server) -> Self {
        let open = Arc::new(Open::new(false));
        ended_jobs(db);
        let supervisor = supervise(db, &open);
        until("the first jobs have ended", || {
            let open = "SELECT count(*) AS n FROM solid_queue_ready_executions";
            db.count(open) + db.rows("claimed_executions") == 0
        });
        running_jobs(db);
        until("three jobs run", || {
            db.count("SELECT count(*) AS n FROM windlass_steps") >= 6
        });
        waiting_jobs(db);
        batch(db);
        flow(db);
        settings(db);
        World {
            db,
            server: server.listen("127.0.0.1:0").start().unwrap(),
            open,
            supervisor: Some(supervisor),
        }
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The newest job of a class, in a state: the name of a table such as `failed`.
    pub fn job(&self, class: &str, state: &str) -> i64 {
        self.db.count(&format!(
            "SELECT max(j.id) AS n FROM solid_queue_jobs j \
             JOIN solid_queue_{state}_executions e ON e.job_id = j.id WHERE j.class_name = '{class}'"
        ))
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.open.store(true, Ordering::SeqCst);
        self.server.stop();
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.stop();
        }
    }
}

/// A batch that is open, with a batch in it and a job that follows.
fn batch(db: &TestDb) {
    let part = || NewJob::of_class("ImportPart", "{}").after(Duration::from_secs(3600));
    let inner = Batch::new("stock-of-berlin").add([part()]);
    let batch = Batch::new("import-of-the-night").add([part(), part()]);
    let batch = batch.add_batch(inner).metadata(&["from the warehouse"]);
    let batch = batch.on_success(NewJob::of_class("PublishCatalog", "{}"));
    batch.enqueue(&mut db.connection()).unwrap();
}

/// A job from whose page links lead to its flow.
fn failed_report(db: &TestDb) -> JobId {
    JobId(db.count(
        "SELECT max(j.id) AS n FROM solid_queue_jobs j JOIN solid_queue_failed_executions f ON f.job_id = j.id \
         WHERE j.class_name = 'BuildReport'",
    ))
}

/// Jobs that wait for others, many of them alike, and some that have failed.
fn flow(db: &TestDb) {
    let mut conn = db.connect();
    let parts = |class: &str, parent: JobId| NewJob::of_class(class, "{}").after(parent);
    let read = NewJob::of_class("ReadOrders", "{}").after(Duration::from_secs(3600));
    let read = read.enqueue(&mut conn).unwrap().id;
    let resize: Vec<JobId> = (0..12)
        .map(|_| parts("Resize", read).enqueue(&mut conn).unwrap().id)
        .collect();
    let report = NewJob::of_class("PublishReportOfTheWholeDay", "{}").after(&resize[..]);
    let report = report.after(("orders", read)).when(On::Finish);
    let report = report.enqueue(&mut conn).unwrap().id;
    let alarm = parts("AlarmTheOffice", report).when(On::Failure);
    alarm.after(failed_report(db)).enqueue(&mut conn).unwrap();
}

fn supervise(db: &TestDb, open: &Arc<Open>) -> Handle {
    let worker = Worker::new(&db.database, registry(open))
        .queues(SERVED)
        .unwrap();
    let tasks = [
        ("nightly-report", "30 2 * * *", "BuildReport"),
        ("sync-stock", "*/15 8-18 * * mon-fri", "SyncStock"),
        ("import-catalog", "@hourly", "ImportCatalog"),
    ];
    let tasks = tasks.map(|(key, schedule, class)| {
        let arguments = r#"{"how":"finish","customer":1,"token":"tok_5ecret_9f3a"}"#;
        let task = RecurringTask::of_class(key, schedule, class, arguments).unwrap();
        task.queue("reports").description("for the head office")
    });
    Supervisor::new(&db.database)
        .worker(
            worker
                .threads(6)
                .polling_interval(Duration::from_millis(50)),
        )
        .dispatcher(Dispatcher::new(&db.database).polling_interval(Duration::from_millis(50)))
        .scheduler(Scheduler::new(&db.database).tasks(tasks))
        .start()
        .unwrap()
}

/// Jobs that end at once: finished, failed in several ways, discarded, and to be tried again later.
fn ended_jobs(db: &TestDb) {
    let finished = (0..40).map(|number| {
        let class = ["SendWelcome", "ChargeCard", "ImportCatalog", "BuildReport"][number % 4];
        job(class, How::Finish, number as u32).tags(["shop", "eu"])
    });
    let refused = (0..14).map(|number| {
        let host = format!("smtp-{}.example:25", number % 3);
        job("SendWelcome", How::Refused(host), 1_000 + number)
    });
    let invalid = (0..6).map(|number| {
        let what = format!("order {}: the amount is negative", 7_000 + number);
        job("ChargeCard", How::Invalid(what), 2_000 + number)
    });
    let others = [
        How::Panic,
        How::Panic,
        How::Retry,
        How::Retry,
        How::Discard,
        How::Discard,
    ];
    let others = (0..)
        .zip(others)
        .map(|(number, how)| job("SyncStock", how, number));
    let once = Policy::new().delivery(Delivery::AtMostOnce).max_attempts(1);
    let broken = How::Invalid("no paper".to_owned());
    let once = std::iter::once(job("BuildReport", broken, 40).policy(once));
    let all = finished.chain(refused).chain(invalid).chain(others);
    let all = all.chain(once);
    enqueue_all(&mut db.connection(), all).unwrap();
}

/// Three jobs that run, one of which has all slots of its key, so that others are blocked.
fn running_jobs(db: &TestDb) {
    let mut conn = db.connect();
    let limited = || Concurrency::new("catalog-7").limit(1);
    job("BuildReport", How::Wait, 31)
        .unique_id("report-2026")
        .enqueue(&mut conn)
        .unwrap();
    job("BuildReport", How::Wait, 32)
        .enqueue(&mut conn)
        .unwrap();
    job("ImportCatalog", How::Wait, 33)
        .concurrency(limited())
        .enqueue(&mut conn)
        .unwrap();
    let blocked =
        (0..4).map(|number| job("ImportCatalog", How::Finish, number).concurrency(limited()));
    enqueue_all(&mut conn, blocked).unwrap();
}

/// Ready jobs that no worker takes, and scheduled ones.
fn waiting_jobs(db: &TestDb) {
    let ready = (0..25).map(|number| {
        job("ChargeCard", How::Finish, 500 + number)
            .queue("partners")
            .priority((number % 3) as i32)
    });
    let paused = (0..4).map(|number| job("SendWelcome", How::Finish, number).queue("newsletter"));
    let scheduled = (0..8).map(|number| {
        let later = Duration::from_secs(3_600 * u64::from(number + 1));
        job("SendWelcome", How::Finish, 600 + number).after(later)
    });
    enqueue_all(&mut db.connection(), ready.chain(paused).chain(scheduled)).unwrap();
}

/// Markup that would break a page without escapes.
pub const MARKUP: &str = "<img src=x onerror=alert(1)>\"'&amp;";

/// Longer than any window, without a place to break.
fn long(word: &str) -> String {
    word.repeat(160 / word.len())
}

/// Names and arguments that are hostile, long, or from right to left.
fn odd_jobs(db: &TestDb) {
    let names = [
        MARKUP.to_owned(),
        long("Very::Long::"),
        "\u{202e}abc \u{5d0}\u{5d1}\u{5d2} ..".to_owned(),
    ];
    let mut conn = db.connect();
    let mut waited = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let text = serde_json::json!({ "text": name, "list": vec![name; 40], "number": number });
        let job = NewJob::of_class("Odd", text.to_string())
            .queue("odd")
            .tags([name.chars().take(40).collect::<String>()]);
        let id = job
            .unique_id(format!("odd-{number}"))
            .enqueue(&mut conn)
            .unwrap()
            .id
            .0;
        waited.push((name.clone(), JobId(id)));
        let name = name.replace('\'', "''");
        for table in [
            "solid_queue_ready_executions WHERE job_id",
            "solid_queue_jobs WHERE id",
        ] {
            let (table, by) = table.split_once(" WHERE ").unwrap();
            db.execute(&format!(
                "UPDATE {table} SET queue_name = '{name}', class_name = '{name}' WHERE {by} = {id}"
            ));
        }
    }
    let after = NewJob::of_class("AfterOdd", "{}").after(&waited[..]);
    let after = after.after(failed_report(db)).when(On::Finish);
    after.enqueue(&mut conn).unwrap();
    // The same, failed with a message of this kind.
    for name in names {
        let job = NewJob::of_class("Odd", "{}")
            .queue("odd")
            .enqueue(&mut conn)
            .unwrap()
            .id
            .0;
        db.execute(&format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {job}"
        ));
        let error =
            serde_json::json!({ "exception_class": name, "message": name, "backtrace": [name] });
        db.execute(&format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
             SELECT id, '{}', created_at FROM solid_queue_jobs WHERE id = {job}",
            error.to_string().replace('\'', "''")
        ));
    }
}

/// Applies settings and actions of operators, such as pauses and limits.
fn settings(db: &TestDb) {
    let mut conn = db.connect();
    queues::pause(&mut conn, "newsletter", "ada", "the text is wrong").unwrap();
    classes::pause(
        &mut conn,
        "SyncStock",
        "grace",
        "the supplier's server is away",
    )
    .unwrap();
    limits::set(
        &mut conn,
        "ImportCatalog/catalog-7",
        1,
        "ada",
        "one at a time",
    )
    .unwrap();
    let of_partners = Jobs::waiting().queue("partners").by("ada");
    let change = of_partners.in_background(Change::Priority(7));
    change.start(&mut conn).unwrap();
    recurring::run_now(&mut conn, "nightly-report").unwrap();
    recurring::pause(&mut conn, "import-catalog").unwrap();
}
