//! The tables of the history, as in [`tables`](super::tables).

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
