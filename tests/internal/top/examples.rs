//! A snapshot of an example, without a database.

use crate::admin::groups::{FailedGroup, FailedGroups};
use crate::cli::top::reader::{
    FleetLines, HourCurves, QueueLines, ReadAnswer, ReadPart, Snapshot, TopFindings, TopQueue,
    worst_first,
};
use crate::cli::top::state::TopState;
use crate::clock;
use crate::db::query::ready::CappedCount;
use crate::db::table::claimed::{Note, Progress};
use crate::db::table::pauses::PauseOfQueue;
use crate::job::JobId;
use crate::read::doctor::scope::{Verdict, finding};
use crate::read::now::{Member, QueueVerdict, QueueView};
use crate::read::sql::fleet::{FleetProcess, HeldJob};
use crate::read::sql::totals::StateTotals;
use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use serde_json::json;
use std::time::{Duration, Instant};

pub fn noon() -> NaiveDateTime {
    let day = NaiveDate::from_ymd_opt(2026, 11, 24).unwrap();
    day.and_hms_opt(12, 0, 0).unwrap()
}

fn some(count: u64) -> CappedCount {
    CappedCount {
        count,
        is_more: count >= 10_000,
    }
}

fn queue(
    name: &str,
    ready: u64,
    oldest: Option<f64>,
    verdict: QueueVerdict,
    numbers: (u64, f64, f64),
) -> TopQueue {
    let (running, finished, failed) = numbers;
    let pause = (verdict == QueueVerdict::Paused).then(|| PauseOfQueue {
        queue_name: name.to_owned(),
        paused_by: Some("ada".to_owned()),
        pause_reason: Some("the provider is down".to_owned()),
        paused_seconds: 372.0,
    });
    TopQueue {
        queue: QueueView {
            name: name.to_owned(),
            ready: some(ready),
            oldest_seconds: oldest,
            pause,
            verdict,
        },
        running: some(running),
        finished,
        failed,
    }
}

pub fn queues() -> QueueLines {
    let promise = Duration::from_secs(30);
    QueueLines {
        lines: vec![
            queue(
                "mail",
                8_310,
                Some(754.0),
                QueueVerdict::Late { promise },
                (4, 87.2, 1.6),
            ),
            queue(
                "reports",
                12,
                Some(90_000.0),
                QueueVerdict::Unserved,
                (0, 0.0, 0.0),
            ),
            queue(
                "import",
                10_000,
                Some(3.2),
                QueueVerdict::Paused,
                (0, 0.0, 0.0),
            ),
            queue(
                "webhooks",
                3,
                Some(0.24),
                QueueVerdict::Unjudged,
                (2, 1_204.4, 0.0),
            ),
            queue(
                "evil\n\u{1b}[2J🦀",
                0,
                None,
                QueueVerdict::Empty,
                (0, 0.2, 0.0),
            ),
        ],
        is_more: false,
    }
}

fn member(id: i64, kind: &str, heartbeat: f64, metadata: serde_json::Value) -> Member {
    let row = FleetProcess {
        id,
        kind: kind.to_owned(),
        name: format!("{kind}-{id}"),
        hostname: "app-1".to_owned(),
        pid: 4_240 + i32::try_from(id).unwrap(),
        supervisor_id: None,
        heartbeat_seconds: heartbeat,
        age_seconds: 11_460.0,
        draining: false,
        metadata,
    };
    Member::new(row, 2, 0)
}

fn held(job: i64, class: &str, seconds: f64, progress: Option<Progress>) -> HeldJob {
    HeldJob {
        job_id: job,
        class_name: class.to_owned(),
        queue_name: "mail".to_owned(),
        process_id: Some(2),
        seconds,
        is_ahead: false,
        note: Note {
            thread: Some("windlass-job-3".to_owned()),
            progress,
        },
    }
}

pub fn fleet() -> FleetLines {
    let worker = json!({"windlass": "0.1.0", "queues": "mail,webhooks", "thread_pool_size": 5});
    let quiet = json!({"windlass": "0.1.0", "queues": "*", "thread_pool_size": 5, "quiet": true});
    let progress = Progress::new(42.4, "4,240 of 10,000 lines".to_owned());
    FleetLines {
        members: worst_first(vec![
            (
                member(1, "Supervisor(fork)", 2.0, json!({"windlass": "0.1.0"})),
                Vec::new(),
            ),
            (
                member(2, "Worker", 2.0, worker.clone()),
                vec![
                    held(4_711, "deliver", 12.4, None),
                    held(4_712, "import_lines", 372.0, Some(progress)),
                ],
            ),
            (member(3, "Worker", 252.0, worker), Vec::new()),
            (member(4, "Worker", 1.0, quiet), Vec::new()),
        ]),
        is_more: false,
        threads: (10, 2),
    }
}

pub fn curves() -> HourCurves {
    let minutes = 0..60_u64;
    HourCurves {
        finished: minutes.clone().map(|minute| 40 + minute % 15 * 7).collect(),
        failed: minutes.clone().map(|minute| minute / 20).collect(),
        waits: minutes
            .map(|minute| (minute % 7 != 0).then_some(minute * minute))
            .collect(),
        finished_now: 1_291.8,
        failed_now: 1.6,
    }
}

fn group(class: &str, kind: &str, shape: &str, count: u64, ago: i64) -> FailedGroup {
    let last_at = (noon() - TimeDelta::seconds(ago)).and_utc();
    FailedGroup {
        fingerprint: "f".to_owned(),
        class_name: class.to_owned(),
        kind: kind.to_owned(),
        shape: shape.to_owned(),
        message: String::new(),
        place: None,
        job_id: JobId(1),
        count,
        is_exact: count < 10_000,
        first_at: last_at,
        last_at,
    }
}

pub fn failures() -> FailedGroups {
    FailedGroups {
        groups: vec![
            group(
                "deliver",
                "smtp::Refused",
                "the mailbox {text} does not exist",
                314,
                12,
            ),
            group(
                "import_lines",
                "panic",
                "index out of bounds: the len is {n}\nbut",
                10_000,
                90_000,
            ),
        ],
        is_complete: true,
        without_fingerprint: 0,
    }
}

pub fn snapshot(at: Instant) -> Snapshot {
    Snapshot {
        at,
        now: noon(),
        totals: ReadPart::Read(StateTotals {
            ready: some(18_325),
            scheduled: some(31),
            claimed: some(6),
            blocked: some(0),
            failed: some(10_314),
        }),
        queues: ReadPart::Read(queues()),
        fleet: ReadPart::Read(fleet()),
        curves: ReadPart::Read(curves()),
        failures: ReadPart::Read(failures()),
    }
}

pub fn findings(at: Instant) -> TopFindings {
    TopFindings {
        at,
        findings: ReadPart::Read(vec![
            finding("database", Verdict::Fine, "Postgres 15.4"),
            finding(
                "processes",
                Verdict::Warning,
                "no supervisor is registered: the jobs of dead processes are not recovered; run `windlass supervise`",
            ),
            finding("places", Verdict::Problem, "1 job is in two places"),
        ]),
    }
}

/// A screen that has read a snapshot.
pub fn state() -> (TopState, Instant) {
    let now = clock::instant();
    let mut state = TopState::new("postgres://db/app".to_owned(), Duration::from_secs(2), now);
    state.take(ReadAnswer::Snapshot(Box::new(snapshot(now))), now);
    state.take(ReadAnswer::Findings(findings(now)), now);
    (state, now)
}
