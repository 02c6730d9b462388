//! Tables whose rows are Solid Queue's own, and those of batches, as in [`tables`](super::tables).

diesel::table! {
    solid_queue_batch_executions (id) {
        id -> BigInt,
        job_id -> BigInt,
        batch_id -> BigInt,
        created_at -> Timestamp,
    }
}

diesel::table! {
    solid_queue_batches (id) {
        id -> BigInt,
        active_job_batch_id -> Nullable<Text>,
        description -> Nullable<Text>,
        on_finish -> Nullable<Text>,
        on_success -> Nullable<Text>,
        on_failure -> Nullable<Text>,
        metadata -> Nullable<Text>,
        total_jobs -> Integer,
        completed_jobs -> Integer,
        failed_jobs -> Integer,
        enqueued_at -> Nullable<Timestamp>,
        finished_at -> Nullable<Timestamp>,
        failed_at -> Nullable<Timestamp>,
        created_at -> Timestamp,
        updated_at -> Timestamp,
    }
}

diesel::table! {
    solid_queue_semaphores (id) {
        id -> BigInt,
        key -> Text,
        value -> Integer,
        expires_at -> Timestamp,
        created_at -> Timestamp,
        updated_at -> Timestamp,
    }
}

diesel::table! {
    windlass_batch_failures (job_id) {
        job_id -> BigInt,
        batch_id -> BigInt,
        is_final -> Bool,
        created_at -> Timestamp,
    }
}

diesel::table! {
    windlass_edges (id) {
        id -> BigInt,
        child_job_id -> BigInt,
        parent_job_id -> Nullable<BigInt>,
        parent_batch_id -> Nullable<BigInt>,
        name -> Nullable<Text>,
        runs_on -> Text,
        otherwise -> Text,
        outcome -> Nullable<Text>,
        created_at -> Timestamp,
    }
}

diesel::table! {
    windlass_events (name) {
        name -> Text,
        payload -> Text,
        created_at -> Timestamp,
    }
}

diesel::table! {
    windlass_waits (job_id) {
        job_id -> BigInt,
        claim_id -> BigInt,
        step -> Text,
        event_name -> Text,
        timeout_at -> Timestamp,
        created_at -> Timestamp,
    }
}
