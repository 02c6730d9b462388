//! Times that no calendar has blind no tool.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Note;
use crate::support::program::windlass;
use windlass::{Job, NewJob};

on_each_database!(a_time_that_is_none_blinds_no_tool);

fn a_time_that_is_none_blinds_no_tool(db: &TestDb) {
    let conn = &mut db.connection();
    for _ in 0..5 {
        Note::new("x").enqueue(conn).unwrap();
    }
    let hour = std::time::Duration::from_secs(3600);
    let later = NewJob::new(&Note::new("later")).unwrap().after(hour);
    later.enqueue(conn).unwrap();
    let time = if db.is_postgres() {
        "'infinity'"
    } else {
        "'yesterday'"
    };
    let now = "'2026-11-21 03:36:27.384057'";
    for statement in [
        format!(
            "INSERT INTO solid_queue_processes (kind, name, pid, heartbeat_seq, created_at, last_heartbeat_at) \
             VALUES ('Worker', 'worker-a', 1, 1, {time}, {time})"
        ),
        "DELETE FROM solid_queue_ready_executions WHERE job_id <= 2".to_owned(),
        format!(
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, cancel_requested_at) \
             SELECT 1, id, {time}, {time} FROM solid_queue_processes"
        ),
        format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) VALUES (2, '{{}}', {time})"
        ),
        format!(
            "UPDATE solid_queue_jobs SET created_at = {time}, scheduled_at = {time} WHERE id <> 5"
        ),
        format!("UPDATE solid_queue_jobs SET finished_at = {time} WHERE id = 3"),
        "DELETE FROM solid_queue_ready_executions WHERE job_id = 3".to_owned(),
        format!("UPDATE solid_queue_ready_executions SET created_at = {time} WHERE job_id = 4"),
        format!(
            "UPDATE solid_queue_scheduled_executions SET scheduled_at = {time}, created_at = {time}"
        ),
        format!(
            "INSERT INTO solid_queue_pauses (queue_name, created_at) VALUES ('default', {time})"
        ),
        format!(
            "INSERT INTO solid_queue_recurring_tasks (key, schedule, class_name, static, next_run_at, last_run_at, \
             created_at, updated_at) VALUES ('t', '@hourly', 'note', false, {time}, {time}, {now}, {now})"
        ),
        format!(
            "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, started_at, ended_at) \
             VALUES (2, 1, 1, 'failed', 'k', 'm', {time}, {time})"
        ),
    ] {
        db.execute(&statement);
    }
    let mut bad = Vec::new();
    for command in [
        "status",
        "status --json",
        "doctor",
        "jobs list",
        "jobs list --state scheduled",
        "jobs list --state claimed",
        "jobs list --state failed",
        "jobs list --state finished",
        "explain 1",
        "explain 2",
        "explain 3",
        "explain 4",
        "explain 5",
        "explain 6",
        "recurring list",
        "recurring next",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let said = windlass(&db.url, &words);
        if said.err.contains("error") || said.out.is_empty() {
            bad.push((command, said));
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
