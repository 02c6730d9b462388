//! The tables of the web pages and of the history, as they are declared to Diesel; see `tables.rs`.

diesel::table! {
    windlass_web_sessions (id) {
        id -> BigInt,
        token_id -> BigInt,
        lookup -> Text,
        digest -> Text,
        origin -> Nullable<Text>,
        created_at -> Timestamp,
        seen_at -> Timestamp,
        expires_at -> Timestamp,
    }
}

diesel::table! {
    windlass_web_tokens (id) {
        id -> BigInt,
        name -> Text,
        role -> Text,
        lookup -> Text,
        digest -> Text,
        limits -> Nullable<Text>,
        created_by -> Nullable<Text>,
        created_at -> Timestamp,
        last_used_at -> Nullable<Timestamp>,
        expires_at -> Nullable<Timestamp>,
        revoked_at -> Nullable<Timestamp>,
    }
}

diesel::allow_tables_to_appear_in_same_query!(windlass_web_sessions, windlass_web_tokens);

diesel::table! {
    windlass_stats (series_id, resolution, starts_at) {
        series_id -> BigInt,
        resolution -> Integer,
        starts_at -> BigInt,
        data -> Binary,
    }
}

diesel::table! {
    windlass_stats_deltas (id) {
        id -> BigInt,
        source -> Nullable<Text>,
        seq -> Nullable<BigInt>,
        created_at -> Timestamp,
        data -> Nullable<Binary>,
    }
}

diesel::table! {
    windlass_stats_series (id) {
        id -> BigInt,
        queue_name -> Text,
        class_name -> Text,
        folded_at -> Timestamp,
        total -> Binary,
    }
}
