//! The tables of both databases, as from `diesel print-schema`. `tests/schema.rs` compares them
//! with the real ones.

diesel::table! {
    solid_queue_blocked_executions (id) {
        id -> BigInt,
        job_id -> BigInt,
        queue_name -> Text,
        priority -> Integer,
        concurrency_key -> Text,
        expires_at -> Timestamp,
        created_at -> Timestamp,
    }
}

diesel::table! {
    solid_queue_claimed_executions (id) {
        id -> BigInt,
        job_id -> BigInt,
        process_id -> Nullable<BigInt>,
        created_at -> Timestamp,
        started_at -> Nullable<Timestamp>,
        cancel_requested_at -> Nullable<Timestamp>,
        verdict -> Nullable<Text>,
        note -> Nullable<Text>,
        concurrency_key -> Nullable<Text>,
        semaphore_id -> Nullable<BigInt>,
        prefetched -> Nullable<Bool>,
        ready_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    solid_queue_failed_executions (id) {
        id -> BigInt,
        job_id -> BigInt,
        error -> Nullable<Text>,
        created_at -> Timestamp,
        fingerprint -> Nullable<Text>,
    }
}

diesel::table! {
    solid_queue_jobs (id) {
        id -> BigInt,
        queue_name -> Text,
        class_name -> Text,
        arguments -> Nullable<Text>,
        priority -> Integer,
        active_job_id -> Nullable<Text>,
        scheduled_at -> Nullable<Timestamp>,
        finished_at -> Nullable<Timestamp>,
        concurrency_key -> Nullable<Text>,
        created_at -> Timestamp,
        updated_at -> Timestamp,
        attempts -> Integer,
        max_attempts -> Nullable<Integer>,
        crash_count -> Integer,
        max_crashes -> Nullable<Integer>,
        at_most_once -> Bool,
        last_claim_id -> Nullable<BigInt>,
        idempotency_key -> Nullable<Text>,
        policy -> Nullable<Text>,
        unique_id -> Nullable<Text>,
        concurrency_slots -> Nullable<Integer>,
        concurrency_conflict -> Nullable<Text>,
        traceparent -> Nullable<Text>,
        batch_id -> Nullable<BigInt>,
        has_dependents -> Nullable<Bool>,
    }
}

diesel::table! {
    solid_queue_pauses (id) {
        id -> BigInt,
        queue_name -> Text,
        created_at -> Timestamp,
        paused_by -> Nullable<Text>,
        pause_reason -> Nullable<Text>,
    }
}

diesel::table! {
    solid_queue_processes (id) {
        id -> BigInt,
        kind -> Text,
        last_heartbeat_at -> Timestamp,
        supervisor_id -> Nullable<BigInt>,
        pid -> Integer,
        hostname -> Nullable<Text>,
        metadata -> Nullable<Text>,
        created_at -> Timestamp,
        name -> Text,
        heartbeat_seq -> Nullable<BigInt>,
        draining -> Bool,
        listening -> Bool,
        channel -> Nullable<Text>,
        release_requested_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    solid_queue_ready_executions (id) {
        id -> BigInt,
        job_id -> BigInt,
        queue_name -> Text,
        priority -> Integer,
        created_at -> Timestamp,
        class_name -> Nullable<Text>,
        concurrency_key -> Nullable<Text>,
        cautious -> Nullable<Bool>,
    }
}

diesel::table! {
    solid_queue_recurring_executions (id) {
        id -> BigInt,
        job_id -> BigInt,
        task_key -> Text,
        run_at -> Timestamp,
        created_at -> Timestamp,
    }
}

diesel::table! {
    solid_queue_recurring_tasks (id) {
        id -> BigInt,
        key -> Text,
        schedule -> Text,
        command -> Nullable<Text>,
        class_name -> Nullable<Text>,
        arguments -> Nullable<Text>,
        queue_name -> Nullable<Text>,
        priority -> Nullable<Integer>,
        #[sql_name = "static"]
        static_ -> Bool,
        description -> Nullable<Text>,
        created_at -> Timestamp,
        updated_at -> Timestamp,
        next_run_at -> Nullable<Timestamp>,
        last_run_at -> Nullable<Timestamp>,
        queued_run_at -> Nullable<Timestamp>,
        open_jobs -> Nullable<Text>,
        schedule_text -> Nullable<Text>,
        time_zone -> Nullable<Text>,
        options -> Nullable<Text>,
        paused_at -> Nullable<Timestamp>,
        declared_at -> Nullable<Timestamp>,
        revision -> Nullable<BigInt>,
        row_version -> BigInt,
        starts -> Nullable<Text>,
    }
}

diesel::table! {
    solid_queue_scheduled_executions (id) {
        id -> BigInt,
        job_id -> BigInt,
        queue_name -> Text,
        priority -> Integer,
        scheduled_at -> Timestamp,
        created_at -> Timestamp,
        concurrency_key -> Nullable<Text>,
    }
}

diesel::table! {
    windlass_attempts (id) {
        id -> BigInt,
        job_id -> BigInt,
        claim_id -> BigInt,
        attempt -> Integer,
        outcome -> Text,
        kind -> Text,
        message -> Text,
        place -> Nullable<Text>,
        process_name -> Nullable<Text>,
        hostname -> Nullable<Text>,
        pid -> Nullable<Integer>,
        started_at -> Nullable<Timestamp>,
        ended_at -> Timestamp,
    }
}

diesel::table! {
    windlass_classes (class_name) {
        class_name -> Text,
        queue_name -> Text,
        redact -> Text,
        seen_at -> Timestamp,
        internal -> Bool,
        quota -> Nullable<Text>,
    }
}

diesel::table! {
    windlass_public_tokens (digest) {
        digest -> Text,
        job_id -> BigInt,
        shows_result -> Bool,
        created_at -> Timestamp,
    }
}

diesel::table! {
    windlass_expiries (job_id) {
        job_id -> BigInt,
        expires_at -> Timestamp,
        released_claim_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    windlass_class_pauses (class_name) {
        class_name -> Text,
        paused_by -> Nullable<Text>,
        pause_reason -> Nullable<Text>,
        created_at -> Timestamp,
    }
}

diesel::table! {
    windlass_limits (limit_key) {
        limit_key -> Text,
        slots -> Integer,
        set_by -> Nullable<Text>,
        reason -> Nullable<Text>,
        created_at -> Timestamp,
    }
}

diesel::table! {
    windlass_job_logs (job_id, claim_id) {
        job_id -> BigInt,
        claim_id -> BigInt,
        attempt -> Integer,
        started_at -> Timestamp,
        lines -> Text,
        total -> BigInt,
    }
}

diesel::table! {
    windlass_quota_jobs (job_id) {
        job_id -> BigInt,
        quota -> Text,
        slot -> BigInt,
    }
}

diesel::table! {
    windlass_quota_slots (quota, per, slot) {
        quota -> Text,
        per -> Text,
        slot -> BigInt,
        starts_at -> Timestamp,
        jobs -> BigInt,
        limits -> Text,
    }
}

diesel::table! {
    windlass_results (job_id) {
        job_id -> BigInt,
        unique_id -> Nullable<Text>,
        class_name -> Text,
        outcome -> Text,
        result -> Nullable<Text>,
        error -> Nullable<Text>,
        attempt -> Integer,
        progress -> Nullable<Text>,
        finished_at -> Timestamp,
        expires_at -> Timestamp,
        batch_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    windlass_schema_migrations (version) {
        version -> Text,
        applied_at -> Timestamp,
    }
}

diesel::table! {
    windlass_steps (job_id, name) {
        job_id -> BigInt,
        name -> Text,
        value -> Text,
        created_at -> Timestamp,
    }
}

diesel::table! {
    windlass_unique_jobs (unique_id) {
        unique_id -> Text,
        job_id -> BigInt,
        scope -> Text,
        after_job_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    windlass_waiters (id) {
        id -> BigInt,
        job_id -> BigInt,
        expires_at -> Timestamp,
    }
}

diesel::table! {
    windlass_wanted_keys (id) {
        id -> BigInt,
        key -> Nullable<Text>,
        kind -> Nullable<Text>,
        target_id -> Nullable<BigInt>,
        amount -> Nullable<BigInt>,
        name -> Nullable<Text>,
        failures -> Nullable<Integer>,
        waiting_since -> Nullable<Timestamp>,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    solid_queue_blocked_executions,
    solid_queue_claimed_executions,
    solid_queue_failed_executions,
    solid_queue_jobs,
    solid_queue_pauses,
    solid_queue_processes,
    solid_queue_ready_executions,
    solid_queue_recurring_executions,
    solid_queue_recurring_tasks,
    solid_queue_scheduled_executions,
    windlass_attempts,
    windlass_class_pauses,
    windlass_classes,
    windlass_expiries,
    windlass_limits,
    windlass_job_logs,
    windlass_public_tokens,
    windlass_quota_jobs,
    windlass_quota_slots,
    windlass_results,
    windlass_schema_migrations,
    windlass_steps,
    windlass_unique_jobs,
    windlass_waiters,
    windlass_wanted_keys,
);
