//! The columns of the view that a job is inserted into, beside its class.

/// A column of `windlass_enqueue_v2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    Arguments,
    Queue,
    Priority,
    RunAt,
    DelaySeconds,
    UniqueId,
    UniqueScope,
    OnConflict,
    IdempotencyKey,
    ConcurrencyKey,
    ConcurrencyGroup,
    ConcurrencyLimit,
    ConcurrencyOnConflict,
    MaxAttempts,
    MaxCrashes,
    AtMostOnce,
    Traceparent,
    Tags,
    Meta,
    Version,
    TimeoutSeconds,
    BackoffSeconds,
    BackoffCapSeconds,
    ExpiresInSeconds,
    NotAfter,
    RetryForSeconds,
    KeepResultSeconds,
    Tenant,
}

/// The type of a column: how its text is cast, and how it is written in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// A text that is JSON. In a list it is a value of JSON.
    Json,
    Time,
    Integer,
    Bigint,
    Real,
    /// `0` or `1`.
    Boolean,
}

/// The columns in the order of [`Column`].
const COLUMNS: [(Column, &str, Kind); 28] = [
    (Column::Arguments, "arguments", Kind::Json),
    (Column::Queue, "queue", Kind::Text),
    (Column::Priority, "priority", Kind::Integer),
    (Column::RunAt, "run_at", Kind::Time),
    (Column::DelaySeconds, "delay_seconds", Kind::Real),
    (Column::UniqueId, "unique_id", Kind::Text),
    (Column::UniqueScope, "unique_scope", Kind::Text),
    (Column::OnConflict, "on_conflict", Kind::Text),
    (Column::IdempotencyKey, "idempotency_key", Kind::Text),
    (Column::ConcurrencyKey, "concurrency_key", Kind::Text),
    (Column::ConcurrencyGroup, "concurrency_group", Kind::Text),
    (Column::ConcurrencyLimit, "concurrency_limit", Kind::Bigint),
    (
        Column::ConcurrencyOnConflict,
        "concurrency_on_conflict",
        Kind::Text,
    ),
    (Column::MaxAttempts, "max_attempts", Kind::Bigint),
    (Column::MaxCrashes, "max_crashes", Kind::Bigint),
    (Column::AtMostOnce, "at_most_once", Kind::Boolean),
    (Column::Traceparent, "traceparent", Kind::Text),
    (Column::Tags, "tags", Kind::Json),
    (Column::Meta, "meta", Kind::Json),
    (Column::Version, "version", Kind::Bigint),
    (Column::TimeoutSeconds, "timeout_seconds", Kind::Real),
    (Column::BackoffSeconds, "backoff_seconds", Kind::Real),
    (Column::BackoffCapSeconds, "backoff_cap_seconds", Kind::Real),
    (Column::ExpiresInSeconds, "expires_in_seconds", Kind::Real),
    (Column::NotAfter, "not_after", Kind::Time),
    (Column::RetryForSeconds, "retry_for_seconds", Kind::Real),
    (Column::KeepResultSeconds, "keep_result_seconds", Kind::Real),
    (Column::Tenant, "tenant", Kind::Text),
];

impl Column {
    /// Returns the column with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut columns = COLUMNS.iter();
        let found = columns.find(|(_, other, _)| *other == name);
        found.map(|(column, _, _)| *column)
    }

    pub(crate) fn name(self) -> &'static str {
        COLUMNS[self as usize].1
    }

    pub(crate) fn kind(self) -> Kind {
        COLUMNS[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_in_their_order() {
        for (index, (column, name, kind)) in COLUMNS.into_iter().enumerate() {
            assert_eq!(column as usize, index);
            assert_eq!((column.name(), column.kind()), (name, kind));
            assert_eq!(Column::named(name), Some(column));
        }
        assert_eq!(Column::named("id"), None);
    }
}
