//! All settings: name, default and description.

use crate::config::amounts::{
    BYTES_OR_NEVER, DURATION, DURATION_OR_FOREVER, INTERVAL, INTERVAL_OR_NEVER, NUMBER,
    NUMBER_OR_AUTO, NUMBER_OR_NEVER, NUMBER_OR_UNLIMITED, WHOLE_NUMBER,
};
use crate::config::document::Origin;
use crate::config::reader::TableReader;
use crate::config::value::{
    ADDRESS, FLAG, HOST_PORT, LISTEN_ADDRESS, NAMED_ADDRESSES, PATH, POOLING, PROGRAM, QUEUE_LIST,
    TEXT, TEXT_LIST, TIME_ZONE,
};
use std::path::PathBuf;
use std::time::Duration;
use windlass::database::Pooling;
use windlass::internal::recurring::time_zone::Zone;
use windlass::processes::{Recycle, Retention};
use windlass::queues::QueueSelector;

/// `[database]`
#[derive(Debug, Clone)]
pub(crate) struct DatabaseSettings {
    pub(crate) url: String,
    pub(crate) pool: Option<u32>,
    pub(crate) pooling: Pooling,
    pub(crate) listen_url: String,
}

/// `[supervisor]`
#[derive(Debug, Clone)]
pub(crate) struct SupervisorSettings {
    pub(crate) heartbeat_interval: Duration,
    pub(crate) alive_threshold: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) pidfile: PathBuf,
    pub(crate) log_messages: bool,
    pub(crate) listen: String,
    pub(crate) metrics_open: bool,
}

/// `[[workers]]`
#[derive(Debug, Clone)]
pub(crate) struct WorkerSettings {
    /// The place where its table starts.
    pub(crate) origin: Origin,
    pub(crate) queues: Vec<QueueSelector>,
    pub(crate) threads: u32,
    pub(crate) processes: u32,
    pub(crate) polling_interval: Duration,
    pub(crate) keep_finished: bool,
    pub(crate) program: Vec<String>,
    pub(crate) recycle: Recycle,
    pub(crate) listen: String,
}

/// `[[dispatchers]]`
#[derive(Debug, Clone)]
pub(crate) struct DispatcherSettings {
    pub(crate) batch_size: u32,
    pub(crate) polling_interval: Duration,
}

/// `[scheduler]`
#[derive(Debug, Clone)]
pub(crate) struct SchedulerSettings {
    pub(crate) enabled: bool,
    pub(crate) time_zone: Zone,
    pub(crate) polling_interval: Duration,
    pub(crate) grace: Duration,
    pub(crate) revision: u32,
    pub(crate) deployment: String,
}

/// `[web]`
#[derive(Debug, Clone)]
pub(crate) struct WebSettings {
    pub(crate) listen: String,
    pub(crate) base_path: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) public_origin: String,
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) user_header: String,
    pub(crate) operators: Vec<String>,
    pub(crate) read_only: bool,
    pub(crate) metrics_open: bool,
    pub(crate) name: String,
    pub(crate) replica: String,
    pub(crate) databases: Vec<(String, String)>,
    pub(crate) session_idle: Duration,
    pub(crate) session_lifetime: Duration,
    pub(crate) threads: u32,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl DatabaseSettings {
    pub(crate) fn read(s: &mut TableReader<'_>) -> Self {
        DatabaseSettings {
            url: s.read("url", ADDRESS, String::new(),
                "`sqlite://PATH` or `postgres://USER@HOST/NAME`. `DATABASE_URL` also sets it, unless `WINDLASS_DATABASE_URL` is set."),
            pool: s.read("pool", NUMBER_OR_AUTO, None,
                "How many connections the jobs of a worker process may borrow at once, at least `threads` + 2. `auto`: 10, or more if `threads` needs more."),
            pooling: s.read("pooling", POOLING, Pooling::Auto,
                "For how long a pooler before Postgres, such as PgBouncer, gives a session of the server to a connection: `session`, or `transaction` for one transaction. `auto`: what the address says, or what the first connection finds out."),
            listen_url: s.read("listen_url", LISTEN_ADDRESS, String::new(),
                "An address that leads past the pooler, `postgres://USER@HOST/NAME`, on which each worker process listens for new jobs with one connection. Empty: they listen on `url`, and poll behind a pooler in transaction mode."),
        }
    }
}

impl SupervisorSettings {
    pub(crate) fn read(s: &mut TableReader<'_>) -> Self {
        SupervisorSettings {
            heartbeat_interval: s.read("heartbeat_interval", INTERVAL, seconds(10),
                "The time between two heartbeats of each process."),
            alive_threshold: s.read("alive_threshold", INTERVAL, seconds(60),
                "The time without a heartbeat after which a process is treated as dead; at least three heartbeat intervals, and the same for all processes that share a database."),
            shutdown_timeout: s.read("shutdown_timeout", DURATION, seconds(25),
                "How long running jobs may continue after a stop; the supervisor waits 4 s longer before it kills a process."),
            pidfile: s.read("pidfile", PATH, PathBuf::new(),
                "A file that the supervisor locks and writes its process id to; a second supervisor with the same file does not start. Empty: none."),
            log_messages: s.read("log_messages", FLAG, true,
                "Whether log lines contain the error messages of jobs, beside their kinds, on one line of at most 500 characters."),
            listen: s.read("listen", HOST_PORT, String::new(),
                "Where the supervisor serves `/livez`, `/readyz`, `/startedz` and `/metrics`, for example `127.0.0.1:4041`. Empty: nowhere."),
            metrics_open: s.read("metrics_open", FLAG, false,
                "Whether `/metrics` of `listen`, here and of the workers, needs no token where other hosts can reach it. It shows the names of queues and classes."),
        }
    }
}

impl WorkerSettings {
    pub(crate) fn read(s: &mut TableReader<'_>) -> Self {
        WorkerSettings {
            origin: s.origin.clone(),
            queues: s.read("queues", QUEUE_LIST, vec![QueueSelector::All],
                "The queues to serve, in this order: names, prefixes such as `mail*`, and `*` for all."),
            threads: s.read("threads", WHOLE_NUMBER, 5,
                "How many jobs a process runs at once."),
            processes: s.read("processes", WHOLE_NUMBER, 1,
                "How many of these worker processes a supervisor runs."),
            polling_interval: s.read("polling_interval", INTERVAL, seconds(5),
                "How often an idle worker polls for jobs without a notification."),
            keep_finished: s.read("keep_finished", FLAG, true,
                "Whether the rows of finished jobs are kept, for the time that `retention` sets."),
            program: s.read("program", PROGRAM, Vec::new(),
                "The worker program and its arguments; in the environment variable they are separated by spaces. Empty: the supervisor's own program."),
            recycle: Recycle {
                after: s.read("recycle_after", INTERVAL_OR_NEVER, None,
                    "The age at which a process is replaced by a new one, up to a tenth earlier or later: it claims no more, finishes its jobs and exits."),
                after_jobs: s.read("recycle_after_jobs", NUMBER_OR_NEVER, None,
                    "The same, after this many jobs.").map(u64::from),
                above_memory: s.read("recycle_above_memory", BYTES_OR_NEVER, None,
                    "The same, when the process uses more memory (resident set, Linux only)."),
            },
            listen: s.read("listen", HOST_PORT, String::new(),
                "Where the worker serves `/livez`, `/readyz`, `/startedz` and `/metrics`; only with one process. Empty: nowhere."),
        }
    }
}

impl DispatcherSettings {
    pub(crate) fn read(s: &mut TableReader<'_>) -> Self {
        DispatcherSettings {
            batch_size: s.read(
                "batch_size",
                WHOLE_NUMBER,
                500,
                "The maximum number of jobs made ready in one transaction.",
            ),
            polling_interval: s.read(
                "polling_interval",
                INTERVAL,
                seconds(1),
                "The longest time between two checks for jobs that are due.",
            ),
        }
    }
}

impl SchedulerSettings {
    pub(crate) fn read(s: &mut TableReader<'_>) -> Self {
        SchedulerSettings {
            enabled: s.read("enabled", FLAG, true,
                "Whether the supervisor runs a scheduler, for the tasks of `[recurring]` and for those scheduled at run time."),
            time_zone: s.read("time_zone", TIME_ZONE, Zone::UTC,
                "The time zone of the tasks of `[recurring]` that do not set one."),
            polling_interval: s.read("polling_interval", INTERVAL, seconds(1),
                "The longest time between two checks for ticks that are due."),
            grace: s.read("grace", DURATION, seconds(10),
                "How late a tick may be before it counts as missed."),
            revision: s.read("revision", NUMBER, 0,
                "If several versions of a program run at once, the task definitions of the version with the highest number are used."),
            deployment: s.read("deployment", TEXT, String::new(),
                "The name of this deployment, such as a commit: tasks with the schedule `@start` are due once for each. Empty: `WINDLASS_REVISION`, or the `revision`."),
        }
    }
}

/// Reads `[retention]`.
pub(crate) fn read_retention(s: &mut TableReader<'_>) -> Retention {
    let default = Retention::new();
    Retention {
        finished_for: s.read("finished_for", DURATION_OR_FOREVER, default.finished_for,
            "How long finished jobs are kept."),
        finished_at_most: s.read("finished_at_most", NUMBER_OR_UNLIMITED, None,
            "How many finished jobs are kept at most: the most recently enqueued.").map(u64::from),
        failed_for: s.read("failed_for", DURATION_OR_FOREVER, default.failed_for,
            "How long failed jobs are kept, counted from their failure."),
        jobs_of_ruby: s.read("jobs_of_ruby", FLAG, default.jobs_of_ruby,
            "Whether `finished_for` and `finished_at_most` also apply to jobs that Active Job enqueued and Solid Queue finished."),
        audit_for: s.read("audit_for", DURATION_OR_FOREVER, default.audit_for,
            "How long the rows of the audit are kept: at least 30 days."),
        events_for: s.read("events_for", DURATION_OR_FOREVER, default.events_for,
            "How long events are kept, and the longest time-out of a wait for one."),
        every: s.read("every", INTERVAL, default.every,
            "How often expired jobs are searched for."),
    }
}

impl WebSettings {
    pub(crate) fn read(s: &mut TableReader<'_>) -> Self {
        WebSettings {
            listen: s.read("listen", TEXT, "127.0.0.1:4040".to_owned(),
                "The address and port of `windlass web`. Other than on 127.0.0.1 or ::1, it needs a token or a `user_header`."),
            base_path: s.read("base_path", TEXT, String::new(),
                "The path below which a proxy shows the pages, such as `/windlass`."),
            hosts: s.read("hosts", TEXT_LIST, Vec::new(),
                "The names by which the server is called, such as `jobs.example.com`; requests to other names are refused. `localhost` and addresses are always accepted."),
            public_origin: s.read("public_origin", TEXT, String::new(),
                "The start of the address that browsers show behind a proxy, such as `https://jobs.example.com`."),
            trusted_proxies: s.read("trusted_proxies", TEXT_LIST, Vec::new(),
                "Addresses, or ranges such as `10.0.0.0/8`, of proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` and `user_header` are believed."),
            user_header: s.read("user_header", TEXT, String::new(),
                "The header in which a trusted proxy names the user that it has signed in. Empty: users sign in with a token."),
            operators: s.read("operators", TEXT_LIST, Vec::new(),
                "The users of the `user_header` who may change things, `*` for all; the others only see."),
            read_only: s.read("read_only", FLAG, false,
                "Whether all changes are refused, also those of operators."),
            metrics_open: s.read("metrics_open", FLAG, false,
                "Whether `/metrics` needs no token where other hosts can reach it. It shows the names of queues and classes."),
            name: s.read("name", TEXT, String::new(),
                "The name of the database in the pages. Empty: the last part of its address."),
            replica: s.read("replica", ADDRESS, String::new(),
                "A replica from which the pages are read, `postgres://USER@HOST/NAME`; changes go to the database itself."),
            databases: s.read("databases", NAMED_ADDRESSES, Vec::new(),
                "Other databases to show, below `/db/NAME/`. Tokens and sessions are those of the first database."),
            session_idle: s.read("session_idle", INTERVAL, seconds(43_200),
                "How long a session may be unused before it ends; at most 30 days."),
            session_lifetime: s.read("session_lifetime", INTERVAL, seconds(604_800),
                "How long a session lives at most."),
            threads: s.read("threads", WHOLE_NUMBER, 3,
                "How many threads read and change the databases, from 2 to 4; each has up to two connections to each database."),
        }
    }
}
