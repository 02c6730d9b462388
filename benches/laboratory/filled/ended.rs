//! Jobs that have ended.

use crate::laboratory::filled::failures::{self, Shape};
use crate::laboratory::filled::sizes::{QUEUES, SPAN, Sizes};
use crate::laboratory::filled::text::{CLASS, MIXED};

/// Returns the statement that inserts jobs that have ended, with the numbers of the rows as ids.
///
/// One of 1,000 has a unique id, one of 500 was discarded.
pub(crate) fn jobs(sizes: Sizes) -> String {
    let (ended, failed) = (sizes.ended(), sizes.failed());
    let is_failed = format!("(i * {failed} / {ended} > (i - 1) * {failed} / {ended})");
    let age = age(sizes, "i");
    format!(
        "INSERT INTO solid_queue_jobs (id, queue_name, class_name, arguments, priority, created_at, \
           updated_at, finished_at, attempts, unique_id) \
         SELECT i, 'queue_' || c % {QUEUES}, 'class_' || c, \
           '{{\"number\":' || i || ',\"customer\":\"customer-' || m % 50000 || '\",\"note\":\"imported from file ' || m % 977 || '\"}}', \
           m % 5, {{ago {age} + 1}}, {{ago {age}}}, CASE WHEN NOT {is_failed} THEN {{ago {age}}} END, \
           CASE WHEN {is_failed} THEN 3 ELSE 1 END, CASE WHEN i % 1000 = 0 THEN 'unique-' || i END \
         FROM (SELECT i, m, {CLASS} AS c FROM (SELECT n.i, {MIXED} AS m FROM {{numbers}}) AS mixed) AS job"
    )
}

/// Returns how many seconds ago a job of this number ended.
fn age(sizes: Sizes, number: &str) -> String {
    let ended = sizes.ended();
    format!("(({ended} - {number}) * {SPAN}.0 / {ended} + 5.0)")
}

/// Returns the statement for the failed executions of one shape of messages. The numbers of its
/// rows are those of the failed jobs.
pub(crate) fn failed(sizes: Sizes, shape: &Shape) -> String {
    let error = format!(
        "'{{\"exception_class\":\"{}\",\"message\":\"' || {} || '\",\"backtrace\":[\"{}\"]}}'",
        shape.kind,
        shape.message("m"),
        shape.place
    );
    let age = age(sizes, "id");
    let rows = failures::rows(sizes, shape);
    format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, fingerprint, created_at) \
         SELECT id, {error}, {}, {{ago {age}}} FROM {rows} ORDER BY id",
        shape.fingerprint()
    )
}

/// Returns the statement for the three attempts of each job that failed.
pub(crate) fn attempts(sizes: Sizes, shape: &Shape) -> String {
    let (message, kind, place) = (shape.message("m"), shape.kind, shape.place);
    let age = age(sizes, "id");
    let rows = failures::rows(sizes, shape);
    format!(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, place, process_name, \
           hostname, pid, started_at, ended_at) \
         SELECT id, id * 3 + a, a, CASE a WHEN 3 THEN 'failed' ELSE 'retried' END, '{kind}', {message}, '{place}', \
           'worker-' || m % 160, 'host-' || m % 10, 1000 + m % 160, \
           {{ago {age} + (3 - a) * 30.0 + 0.4}}, {{ago {age} + (3 - a) * 30.0}} \
         FROM {rows} CROSS JOIN (SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 3) AS attempt ORDER BY id, a"
    )
}

/// Returns the statement for the attempts of jobs that were discarded. The numbers of its rows are
/// those of 500 jobs each.
pub(crate) fn discarded(sizes: Sizes) -> String {
    let age = age(sizes, "(n.i * 500)");
    format!(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, process_name, hostname, \
           pid, started_at, ended_at) \
         SELECT j.id, j.id * 3 + 1, 1, 'discarded', 'not_needed', 'customer-' || n.i || ' has left', \
           'worker-' || n.i % 160, 'host-' || n.i % 10, 1000 + n.i % 160, {{ago {age} + 0.2}}, {{ago {age}}} \
         FROM {{numbers}} JOIN solid_queue_jobs j ON j.id = n.i * 500 WHERE j.finished_at IS NOT NULL"
    )
}

/// Returns the statement for results. The numbers of its rows are those of 200 jobs each.
pub(crate) fn results(sizes: Sizes) -> String {
    let age = age(sizes, "(n.i * 200)");
    format!(
        "INSERT INTO windlass_results (job_id, unique_id, class_name, outcome, result, attempt, finished_at, expires_at) \
         SELECT j.id, j.unique_id, j.class_name, 'succeeded', '{{\"rows\":' || n.i || '}}', 1, {{ago {age}}}, {{ago {age} - 3000000}} \
         FROM {{numbers}} JOIN solid_queue_jobs j ON j.id = n.i * 200 WHERE j.finished_at IS NOT NULL"
    )
}
