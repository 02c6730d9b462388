//! The tables of what operators do, as from `diesel print-schema`.

diesel::table! {
    windlass_audit (id) {
        id -> BigInt,
        created_at -> Timestamp,
        actor -> Text,
        via -> Text,
        origin -> Nullable<Text>,
        action -> Text,
        target -> Nullable<Text>,
        filter -> Nullable<Text>,
        parameters -> Nullable<Text>,
        jobs -> Nullable<BigInt>,
        total -> Nullable<BigInt>,
        reason -> Nullable<Text>,
        operation_id -> Nullable<BigInt>,
        part_of -> Nullable<BigInt>,
    }
}

diesel::table! {
    windlass_operations (id) {
        id -> BigInt,
        action -> Text,
        parameters -> Text,
        filter -> Text,
        bounds -> Text,
        place -> Text,
        counts -> Text,
        total -> Nullable<BigInt>,
        total_is_exact -> Bool,
        looked_at -> BigInt,
        changed -> BigInt,
        state -> Text,
        error -> Nullable<Text>,
        actor -> Text,
        via -> Text,
        origin -> Nullable<Text>,
        reason -> Nullable<Text>,
        audit_id -> Nullable<BigInt>,
        created_at -> Timestamp,
        started_at -> Nullable<Timestamp>,
        moved_at -> Timestamp,
        ended_at -> Nullable<Timestamp>,
        request_id -> Nullable<Text>,
    }
}

diesel::allow_tables_to_appear_in_same_query!(windlass_audit, windlass_operations);

diesel::table! {
    windlass_settings (name) {
        name -> Text,
        value -> Text,
    }
}
