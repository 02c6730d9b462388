//! The tables of the web pages, as they are declared to Diesel; see `tables.rs`.

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
