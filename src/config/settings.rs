//! All settings: name, default and description.

use crate::config::amounts::{Bytes, Interval, Number, WholeNumber};
use crate::config::document::{Origin, Value};
use crate::config::reader::{Reader, Sourced, TableReader};
use crate::config::value::{
    Address, HostPort, ListenAddress, NameText, NamedAddresses, QueueList, TextList, ValueKind,
    WorkerProgram, quoted,
};
use crate::db::conn::pooling::pooler::Pooling;
use crate::queue::QueueSelector;
use crate::recurring::time_zone::Zone;
use crate::retention::Retention;
use std::path::PathBuf;
use std::time::Duration;

/// `[database]`
#[derive(Debug, Clone)]
pub(crate) struct DatabaseSettings {
    pub(crate) url: Sourced<Address>,
    pub(crate) pool: Sourced<Auto>,
    pub(crate) pooling: Sourced<Pooling>,
    pub(crate) listen_url: Sourced<ListenAddress>,
}

/// `[supervisor]`
#[derive(Debug, Clone)]
pub(crate) struct SupervisorSettings {
    pub(crate) heartbeat_interval: Sourced<Interval>,
    pub(crate) alive_threshold: Sourced<Interval>,
    pub(crate) shutdown_timeout: Sourced<Duration>,
    pub(crate) pidfile: Sourced<PathBuf>,
    pub(crate) log_messages: Sourced<bool>,
    pub(crate) listen: Sourced<HostPort>,
    #[cfg_attr(not(feature = "web"), allow(dead_code))]
    pub(crate) metrics_open: Sourced<bool>,
}

/// `[[workers]]`
#[derive(Debug, Clone)]
pub(crate) struct WorkerSettings {
    /// The place where its table starts.
    pub(crate) origin: Origin,
    pub(crate) queues: Sourced<QueueList>,
    pub(crate) threads: Sourced<WholeNumber>,
    pub(crate) processes: Sourced<WholeNumber>,
    pub(crate) polling_interval: Sourced<Interval>,
    pub(crate) keep_finished: Sourced<bool>,
    pub(crate) program: Sourced<WorkerProgram>,
    pub(crate) recycle_after: Sourced<Never<Interval>>,
    pub(crate) recycle_after_jobs: Sourced<Never<WholeNumber>>,
    pub(crate) recycle_above_memory: Sourced<Never<Bytes>>,
    pub(crate) listen: Sourced<HostPort>,
}

/// `[[dispatchers]]`
#[derive(Debug, Clone)]
pub(crate) struct DispatcherSettings {
    pub(crate) batch_size: Sourced<WholeNumber>,
    pub(crate) polling_interval: Sourced<Interval>,
}

/// `[scheduler]`
#[derive(Debug, Clone)]
pub(crate) struct SchedulerSettings {
    pub(crate) enabled: Sourced<bool>,
    pub(crate) time_zone: Sourced<Zone>,
    pub(crate) polling_interval: Sourced<Interval>,
    pub(crate) grace: Sourced<Duration>,
    pub(crate) revision: Sourced<Number>,
    pub(crate) deployment: Sourced<NameText>,
}

/// `[retention]`
#[derive(Debug, Clone)]
pub(crate) struct RetentionSettings {
    pub(crate) finished_for: Sourced<Forever>,
    pub(crate) finished_at_most: Sourced<Unlimited>,
    pub(crate) failed_for: Sourced<Forever>,
    pub(crate) jobs_of_ruby: Sourced<bool>,
    pub(crate) audit_for: Sourced<Forever>,
    pub(crate) events_for: Sourced<Forever>,
    pub(crate) every: Sourced<Interval>,
}

/// `[web]`
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "web"), allow(dead_code))]
pub(crate) struct WebSettings {
    pub(crate) listen: Sourced<NameText>,
    pub(crate) base_path: Sourced<NameText>,
    pub(crate) hosts: Sourced<TextList>,
    pub(crate) public_origin: Sourced<NameText>,
    pub(crate) trusted_proxies: Sourced<TextList>,
    pub(crate) user_header: Sourced<NameText>,
    pub(crate) operators: Sourced<TextList>,
    pub(crate) read_only: Sourced<bool>,
    pub(crate) metrics_open: Sourced<bool>,
    pub(crate) name: Sourced<NameText>,
    pub(crate) replica: Sourced<Address>,
    pub(crate) databases: Sourced<NamedAddresses>,
    pub(crate) session_idle: Sourced<Interval>,
    pub(crate) session_lifetime: Sourced<Interval>,
    pub(crate) threads: Sourced<WholeNumber>,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl DatabaseSettings {
    pub(crate) fn read(r: &mut Reader) -> Self {
        let mut s = r.one("database");
        let settings = DatabaseSettings {
            url: s.read(r, "url", Address(String::new()),
                "`sqlite://PATH` or `postgres://USER@HOST/NAME`. `DATABASE_URL` also sets it, unless `WINDLASS_DATABASE_URL` is set."),
            pool: s.read(r, "pool", Auto(None),
                "How many connections the jobs of a worker process may borrow at once, at least `threads` + 2. `auto`: 10, or more if `threads` needs more."),
            pooling: s.read(r, "pooling", Pooling::Auto,
                "For how long a pooler before Postgres, such as PgBouncer, gives a session of the server to a connection: `session`, or `transaction` for one transaction. `auto`: what the address says, or what the first connection finds out."),
            listen_url: s.read(r, "listen_url", ListenAddress(String::new()),
                "An address that leads past the pooler, `postgres://USER@HOST/NAME`, on which each worker process listens for new jobs with one connection. Empty: they listen on `url`, and poll behind a pooler in transaction mode."),
        };
        s.end(r);
        settings
    }
}

impl SupervisorSettings {
    pub(crate) fn read(r: &mut Reader) -> Self {
        let mut s = r.one("supervisor");
        let settings = SupervisorSettings {
            heartbeat_interval: s.read(r, "heartbeat_interval", Interval(seconds(10)),
                "The time between two heartbeats of each process."),
            alive_threshold: s.read(r, "alive_threshold", Interval(seconds(60)),
                "The time without a heartbeat after which a process is treated as dead; at least three heartbeat intervals, and the same for all processes that share a database."),
            shutdown_timeout: s.read(r, "shutdown_timeout", seconds(25),
                "How long running jobs may continue after a stop; the supervisor waits 4 s longer before it kills a process."),
            pidfile: s.read(r, "pidfile", PathBuf::new(),
                "A file that the supervisor locks and writes its process id to; a second supervisor with the same file does not start. Empty: none."),
            log_messages: s.read(r, "log_messages", true,
                "Whether log lines contain the error messages of jobs, beside their kinds, on one line of at most 500 characters."),
            listen: s.read(r, "listen", HostPort(String::new()),
                "Where the supervisor serves `/livez`, `/readyz`, `/startedz` and `/metrics`, for example `127.0.0.1:4041`; needs the feature `web`. Empty: nowhere."),
            metrics_open: s.read(r, "metrics_open", false,
                "Whether `/metrics` of `listen`, here and of the workers, needs no token where other hosts can reach it. It shows the names of queues and classes."),
        };
        s.end(r);
        settings
    }
}

impl WorkerSettings {
    pub(crate) fn read_all(r: &mut Reader) -> Vec<Self> {
        let sections = r.many("workers");
        sections.into_iter().map(|s| Self::read(r, s)).collect()
    }

    fn read(r: &mut Reader, mut s: TableReader) -> Self {
        let settings = WorkerSettings {
            origin: s.origin.clone(),
            queues: s.read(r, "queues", QueueList(vec![QueueSelector::All]),
                "The queues to serve, in this order: names, prefixes such as `mail*`, and `*` for all."),
            threads: s.read(r, "threads", WholeNumber(5),
                "How many jobs a process runs at once."),
            processes: s.read(r, "processes", WholeNumber(1),
                "How many of these worker processes a supervisor runs."),
            polling_interval: s.read(r, "polling_interval", Interval(seconds(5)),
                "How often an idle worker polls for jobs without a notification."),
            keep_finished: s.read(r, "keep_finished", true,
                "Whether the rows of finished jobs are kept, for the time that `retention` sets."),
            program: s.read(r, "program", WorkerProgram(Vec::new()),
                "The worker program and its arguments; in the environment variable they are separated by spaces. Empty: the supervisor's own program."),
            recycle_after: s.read(r, "recycle_after", Never(None),
                "The age at which a process is replaced by a new one, up to a tenth earlier or later: it claims no more, finishes its jobs and exits."),
            recycle_after_jobs: s.read(r, "recycle_after_jobs", Never(None),
                "The same, after this many jobs."),
            recycle_above_memory: s.read(r, "recycle_above_memory", Never(None),
                "The same, when the process uses more memory (resident set, Linux only)."),
            listen: s.read(r, "listen", HostPort(String::new()),
                "Where the worker serves `/livez`, `/readyz`, `/startedz` and `/metrics`; needs the feature `web`, and only with one process. Empty: nowhere."),
        };
        s.end(r);
        settings
    }
}

impl DispatcherSettings {
    pub(crate) fn read_all(r: &mut Reader) -> Vec<Self> {
        let sections = r.many("dispatchers");
        sections.into_iter().map(|s| Self::read(r, s)).collect()
    }

    fn read(r: &mut Reader, mut s: TableReader) -> Self {
        let settings = DispatcherSettings {
            batch_size: s.read(
                r,
                "batch_size",
                WholeNumber(500),
                "The maximum number of jobs made ready in one transaction.",
            ),
            polling_interval: s.read(
                r,
                "polling_interval",
                Interval(seconds(1)),
                "The longest time between two checks for jobs that are due.",
            ),
        };
        s.end(r);
        settings
    }
}

impl SchedulerSettings {
    pub(crate) fn read(r: &mut Reader) -> Self {
        let mut s = r.one("scheduler");
        let settings = SchedulerSettings {
            enabled: s.read(r, "enabled", true,
                "Whether the supervisor runs a scheduler, for the tasks of `[recurring]` and for those scheduled at run time."),
            time_zone: s.read(r, "time_zone", Zone::UTC,
                "The time zone of the tasks of `[recurring]` that do not set one."),
            polling_interval: s.read(r, "polling_interval", Interval(seconds(1)),
                "The longest time between two checks for ticks that are due."),
            grace: s.read(r, "grace", seconds(10),
                "How late a tick may be before it counts as missed."),
            revision: s.read(r, "revision", Number(0),
                "If several versions of a program run at once, the task definitions of the version with the highest number are used."),
            deployment: s.read(r, "deployment", NameText(String::new()),
                "The name of this deployment, such as a commit: tasks with the schedule `@start` are due once for each. Empty: `WINDLASS_REVISION`, or the `revision`."),
        };
        s.end(r);
        settings
    }
}

impl RetentionSettings {
    pub(crate) fn read(r: &mut Reader) -> Self {
        let mut s = r.one("retention");
        let settings = RetentionSettings {
            finished_for: s.read(
                r,
                "finished_for",
                Forever(Some(seconds(86_400))),
                "How long finished jobs are kept.",
            ),
            finished_at_most: s.read(
                r,
                "finished_at_most",
                Unlimited(None),
                "How many finished jobs are kept at most: the most recently enqueued.",
            ),
            failed_for: s.read(
                r,
                "failed_for",
                Forever(None),
                "How long failed jobs are kept, counted from their failure.",
            ),
            jobs_of_ruby: s.read(
                r,
                "jobs_of_ruby",
                false,
                "Whether `finished_for` and `finished_at_most` also apply to jobs that Active Job enqueued and Solid Queue finished.",
            ),
            audit_for: s.read(
                r,
                "audit_for",
                Forever(Some(seconds(400 * 86_400))),
                "How long the rows of the audit are kept: at least 30 days.",
            ),
            events_for: s.read(
                r,
                "events_for",
                Forever(Some(Retention::EVENTS)),
                "How long events are kept, and the longest time-out of a wait for one.",
            ),
            every: s.read(
                r,
                "every",
                Interval(seconds(60)),
                "How often expired jobs are searched for.",
            ),
        };
        s.end(r);
        settings
    }
}

impl WebSettings {
    pub(crate) fn read(r: &mut Reader) -> Self {
        let mut s = r.one("web");
        let (none, text) = (
            || TextList(Vec::new()),
            |text: &str| NameText(text.to_owned()),
        );
        let settings = WebSettings {
            listen: s.read(r, "listen", text("127.0.0.1:4040"),
                "The address and port of `windlass web`. Other than on 127.0.0.1 or ::1, it needs a token or a `user_header`."),
            base_path: s.read(r, "base_path", text(""),
                "The path below which a proxy shows the pages, such as `/windlass`."),
            hosts: s.read(r, "hosts", none(),
                "The names by which the server is called, such as `jobs.example.com`; requests to other names are refused. `localhost` and addresses are always accepted."),
            public_origin: s.read(r, "public_origin", text(""),
                "The start of the address that browsers show behind a proxy, such as `https://jobs.example.com`."),
            trusted_proxies: s.read(r, "trusted_proxies", none(),
                "Addresses, or ranges such as `10.0.0.0/8`, of proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` and `user_header` are believed."),
            user_header: s.read(r, "user_header", text(""),
                "The header in which a trusted proxy names the user that it has signed in. Empty: users sign in with a token."),
            operators: s.read(r, "operators", none(),
                "The users of the `user_header` who may change things, `*` for all; the others only see."),
            read_only: s.read(r, "read_only", false,
                "Whether all changes are refused, also those of operators."),
            metrics_open: s.read(r, "metrics_open", false,
                "Whether `/metrics` needs no token where other hosts can reach it. It shows the names of queues and classes."),
            name: s.read(r, "name", text(""),
                "The name of the database in the pages. Empty: the last part of its address."),
            replica: s.read(r, "replica", Address(String::new()),
                "A replica from which the pages are read, `postgres://USER@HOST/NAME`; changes go to the database itself."),
            databases: s.read(r, "databases", NamedAddresses(Vec::new()),
                "Other databases to show, below `/db/NAME/`. Tokens and sessions are those of the first database."),
            session_idle: s.read(r, "session_idle", Interval(seconds(43_200)),
                "How long a session may be unused before it ends; at most 30 days."),
            session_lifetime: s.read(r, "session_lifetime", Interval(seconds(604_800)),
                "How long a session lives at most."),
            threads: s.read(r, "threads", WholeNumber(3),
                "How many threads read and change the databases, from 2 to 4; each has up to two connections to each database."),
        };
        s.end(r);
        settings
    }
}

// --- Settings that have a word for the absence of a value ---

/// Returns `None` if the value is the word for absence.
fn absent_or<T: ValueKind>(word: &str, value: &Value) -> Result<Option<T>, String> {
    match value {
        Value::Text(text) | Value::Untyped(text) if text.trim() == word => Ok(None),
        _ => T::read(value)
            .map(Some)
            .map_err(|message| format!("{message}, or \"{word}\"")),
    }
}

fn shown_or<T: ValueKind>(word: &str, value: Option<&T>) -> String {
    value.map_or_else(|| quoted(word), ValueKind::show)
}

/// A value or "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Never<T>(pub(crate) Option<T>);

impl ValueKind for Never<Interval> {
    const NAME: &'static str = "duration or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

impl ValueKind for Never<WholeNumber> {
    const NAME: &'static str = "number or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

impl ValueKind for Never<Bytes> {
    const NAME: &'static str = "size or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

/// A duration or "forever".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forever(pub(crate) Option<Duration>);

impl ValueKind for Forever {
    const NAME: &'static str = "duration or \"forever\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("forever", value).map(Forever)
    }

    fn show(&self) -> String {
        shown_or("forever", self.0.as_ref())
    }
}

/// A number or "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlimited(pub(crate) Option<WholeNumber>);

impl ValueKind for Unlimited {
    const NAME: &'static str = "number or \"unlimited\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("unlimited", value).map(Unlimited)
    }

    fn show(&self) -> String {
        shown_or("unlimited", self.0.as_ref())
    }
}

/// A number, or "auto" to derive it from other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Auto(pub(crate) Option<WholeNumber>);

impl ValueKind for Auto {
    const NAME: &'static str = "number or \"auto\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("auto", value).map(Auto)
    }

    fn show(&self) -> String {
        shown_or("auto", self.0.as_ref())
    }
}
