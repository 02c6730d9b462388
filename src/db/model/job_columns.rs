//! The columns of a new job: one list, from which every statement that inserts or replaces jobs is
//! made.

use crate::db::conn::dialect::timestamp;
use crate::db::conn::statement::{Param, Statement};
use crate::db::model::new_row::NewRow;

/// The jobs that have a value in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// All jobs.
    Every,
    /// Jobs that are not due at once. The two inputs become `scheduled_at`.
    Time,
    /// Jobs with an Active Job id, which is kept when a job is replaced.
    ActiveJobId,
    IdempotencyKey,
    UniqueId,
    Limit,
    Rate,
    /// Jobs with own attempts, an own policy or a trace context.
    Own,
    /// The same, and jobs of a batch. A job that is replaced stays in its batch.
    Batch,
}

/// A value of a new job, as it is passed to a statement.
#[derive(Debug)]
pub(crate) struct JobColumn {
    name: &'static str,
    group: Group,
    value: fn(&NewRow) -> Param<'_>,
}

const AT: &str = "due_at";
const DELAY: &str = "delay";

const fn column(name: &'static str, group: Group, value: fn(&NewRow) -> Param<'_>) -> JobColumn {
    JobColumn { name, group, value }
}

static COLUMNS: [JobColumn; 21] = [
    column("queue_name", Group::Every, |row| (&row.queue_name).into()),
    column("class_name", Group::Every, |row| (&row.class_name).into()),
    column("arguments", Group::Every, |row| (&row.arguments).into()),
    column("priority", Group::Every, |row| row.priority.into()),
    column("max_attempts", Group::Own, |row| row.max_attempts.into()),
    column("max_crashes", Group::Own, |row| row.max_crashes.into()),
    column("at_most_once", Group::Own, |row| row.at_most_once.into()),
    column("policy", Group::Own, |row| (&row.policy).into()),
    column("traceparent", Group::Own, |row| (&row.traceparent).into()),
    column("tenant", Group::Own, |row| (&row.tenant).into()),
    column("batch_id", Group::Batch, |row| row.batch_id.into()),
    column("active_job_id", Group::ActiveJobId, |row| {
        (&row.active_job_id).into()
    }),
    column(AT, Group::Time, |row| row.at.map(timestamp).into()),
    column(DELAY, Group::Time, |row| row.delay.into()),
    column("idempotency_key", Group::IdempotencyKey, |row| {
        (&row.idempotency_key).into()
    }),
    column("unique_id", Group::UniqueId, |row| (&row.unique_id).into()),
    column("concurrency_key", Group::Limit, |row| {
        row.concurrency_key().into()
    }),
    column("concurrency_slots", Group::Limit, |row| {
        row.concurrency_slots().into()
    }),
    column("concurrency_conflict", Group::Limit, |row| {
        row.concurrency_conflict().into()
    }),
    column("rates", Group::Rate, |row| row.rates_column().into()),
    column("gate", Group::Rate, |row| row.gate().into()),
];

/// The values that jobs of one insert have, besides those that every job has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct JobShape {
    /// True if any of them is not due at once.
    pub(crate) has_time: bool,
    pub(crate) has_active_job_id: bool,
    pub(crate) has_key: bool,
    pub(crate) has_unique_id: bool,
    pub(crate) has_limit: bool,
    pub(crate) has_rate: bool,
    /// True if any of them has what most jobs have not: own attempts, an own policy, a trace context or a batch.
    pub(crate) has_own: bool,
}

impl JobShape {
    /// Returns the values that any of the jobs has.
    pub(crate) fn of<'r>(rows: impl IntoIterator<Item = &'r NewRow>) -> Self {
        let mut shape = JobShape::default();
        for row in rows {
            shape.has_time |= row.at.is_some() || row.delay.is_some();
            shape.has_active_job_id |= row.active_job_id.is_some();
            shape.has_key |= row.idempotency_key.is_some();
            shape.has_unique_id |= row.unique_id.is_some();
            shape.has_limit |= row.limit.is_some();
            shape.has_rate |= row.has_line();
            shape.has_own |=
                row.max_attempts.is_some() || row.max_crashes.is_some() || row.at_most_once;
            shape.has_own |= row.policy.is_some()
                || row.traceparent.is_some()
                || row.tenant.is_some()
                || row.batch_id.is_some();
        }
        shape
    }

    fn has(self, group: Group) -> bool {
        match group {
            Group::Every => true,
            Group::Time => self.has_time,
            Group::ActiveJobId => self.has_active_job_id,
            Group::IdempotencyKey => self.has_key,
            Group::UniqueId => self.has_unique_id,
            Group::Limit => self.has_limit,
            Group::Rate => self.has_rate,
            Group::Own | Group::Batch => self.has_own,
        }
    }
}

/// The columns for one kind of statement, in the order of its parameters.
#[derive(Debug)]
pub(crate) struct JobColumns(Vec<&'static JobColumn>);

impl JobColumns {
    fn without(groups: &[Group]) -> Self {
        let columns = COLUMNS.iter();
        JobColumns(
            columns
                .filter(|column| !groups.contains(&column.group))
                .collect(),
        )
    }

    /// Returns the columns of any job.
    #[cfg(test)]
    pub(crate) fn all() -> Self {
        JobColumns::without(&[])
    }

    /// Returns the columns of jobs that have these values.
    pub(crate) fn of(shape: JobShape) -> Self {
        let columns = COLUMNS.iter();
        JobColumns(columns.filter(|column| shape.has(column.group)).collect())
    }

    /// Returns the columns that other programs can set by SQL.
    #[cfg(all(test, feature = "internal-tests"))]
    pub(crate) fn without_batch(mut self) -> Self {
        self.0.retain(|column| column.group != Group::Batch);
        self
    }

    /// Returns the columns that a replaced job takes from the new one.
    pub(crate) fn replaced() -> Self {
        JobColumns::without(&[
            Group::ActiveJobId,
            Group::IdempotencyKey,
            Group::UniqueId,
            Group::Batch,
        ])
    }

    /// Returns the columns to insert into.
    pub(crate) fn names(&self) -> String {
        let names = self.targets(numbered).map(|(name, _)| name);
        let times = ["created_at", "updated_at"];
        names.chain(times).collect::<Vec<_>>().join(", ")
    }

    /// Returns the values for [`names`](Self::names), from parameters.
    pub(crate) fn parameters(&self) -> String {
        self.values(numbered)
    }

    /// Returns the values for [`names`](Self::names); `source` names a column's input.
    pub(crate) fn values(&self, source: impl Fn(&str, usize) -> String) -> String {
        let values = self.targets(source).map(|(_, value)| value);
        let now = ["{now}".to_owned(), "{now}".to_owned()];
        values.chain(now).collect::<Vec<_>>().join(", ")
    }

    /// Returns `a = $1, b = $2, ..`, for an UPDATE.
    pub(crate) fn assignments(&self) -> String {
        let targets = self.targets(numbered);
        let assignments = targets.map(|(name, value)| format!("{name} = {value}"));
        assignments.collect::<Vec<_>>().join(", ")
    }

    /// Returns the names of the inputs, in order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|column| column.name)
    }

    /// Returns whether it is one of them.
    pub(crate) fn contain(&self, name: &str) -> bool {
        self.0.iter().any(|column| column.name == name)
    }

    /// Returns the parameter of one column.
    pub(crate) fn parameter(&self, name: &str) -> String {
        format!("${}", self.index(name) + 1)
    }

    /// Returns the number of parameters.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns one value of a job, by the place of its parameter.
    pub(crate) fn param<'r>(&self, index: usize, row: &'r NewRow) -> Param<'r> {
        (self.0[index].value)(row)
    }

    /// Returns the values of one job, each with its name.
    pub(crate) fn named_params<'r>(
        &self,
        row: &'r NewRow,
    ) -> impl Iterator<Item = (&'static str, Param<'r>)> {
        let columns = self.0.iter();
        columns.map(move |column| (column.name, (column.value)(row)))
    }

    /// Binds the values of one job.
    pub(crate) fn bind<'r>(&self, statement: Statement<'r>, row: &'r NewRow) -> Statement<'r> {
        let columns = self.0.iter();
        columns.fold(statement, |statement, column| {
            statement.bind((column.value)(row))
        })
    }

    fn index(&self, name: &str) -> usize {
        let found = self.0.iter().position(|column| column.name == name);
        found.unwrap_or_else(|| unreachable!("`{name}` is no column of this statement"))
    }

    /// Returns the columns of the table, each with its value from `source`.
    fn targets(
        &self,
        source: impl Fn(&str, usize) -> String,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let of = move |name: &str| source(name, self.index(name));
        self.0.iter().filter_map(move |column| match column.name {
            DELAY => None,
            AT => {
                let value = format!("coalesce({{time {}}}, {{later {}}})", of(AT), of(DELAY));
                Some(("scheduled_at", value))
            }
            name => Some((name, of(name))),
        })
    }
}

/// Returns `$1` for the first input, and so on.
fn numbered(_: &str, index: usize) -> String {
    format!("${}", index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_made_of_the_one_list() {
        let columns = JobColumns::replaced();
        assert_eq!(
            columns.assignments(),
            "queue_name = $1, class_name = $2, arguments = $3, priority = $4, max_attempts = $5, max_crashes = $6, \
             at_most_once = $7, policy = $8, traceparent = $9, tenant = $10, scheduled_at = coalesce({time $11}, {later $12}), \
             concurrency_key = $13, concurrency_slots = $14, concurrency_conflict = $15, rates = $16, gate = $17"
        );
        let own = JobShape {
            has_own: true,
            ..JobShape::default()
        };
        let columns = JobColumns::of(own);
        assert_eq!(
            columns.names(),
            "queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, created_at, updated_at"
        );
        assert_eq!(
            columns.parameters(),
            "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, {now}, {now}"
        );
        assert_eq!(columns.parameter("priority"), "$4");
    }

    #[test]
    fn most_jobs_have_few_values_of_their_own() {
        let columns = JobColumns::of(JobShape::default());
        assert_eq!(
            columns.names(),
            "queue_name, class_name, arguments, priority, created_at, updated_at"
        );
        let row = NewRow::new("class".into(), "{}".into(), "queue".into(), 0);
        let others = [
            NewRow {
                max_attempts: Some(1),
                ..row.clone()
            },
            NewRow {
                max_crashes: Some(1),
                ..row.clone()
            },
            NewRow {
                at_most_once: true,
                ..row.clone()
            },
            NewRow {
                policy: Some("{}".into()),
                ..row.clone()
            },
            NewRow {
                traceparent: Some("00".into()),
                ..row.clone()
            },
            NewRow {
                tenant: Some("a".into()),
                ..row.clone()
            },
            NewRow {
                batch_id: Some(1),
                ..row.clone()
            },
        ];
        assert!(!JobShape::of([&row]).has_own);
        let own = [Group::Own, Group::Batch];
        let mut unset: Vec<&JobColumn> = COLUMNS.iter().collect();
        unset.retain(|column| own.contains(&column.group));
        for other in &others {
            assert!(JobShape::of([&row, other]).has_own, "{other:?}");
            let value = |column: &JobColumn, row: &NewRow| format!("{:?}", (column.value)(row));
            unset.retain(|column| value(column, &row) == value(column, other));
        }
        assert!(unset.is_empty(), "no job has a value of {unset:?}");
    }

    #[test]
    fn every_statement_gives_each_of_its_parameters_a_value() {
        let row = NewRow::new("class".into(), "{}".into(), "queue".into(), 0);
        let limited = JobShape {
            has_limit: true,
            has_time: true,
            ..JobShape::default()
        };
        let plain = JobColumns::of(JobShape::default());
        for columns in [JobColumns::all(), plain, JobColumns::of(limited)] {
            assert_eq!(columns.named_params(&row).count(), columns.len());
            assert!(
                columns
                    .parameters()
                    .contains(&format!("${}", columns.len()))
            );
        }
    }
}
