-- Recurring tasks. A row is Windlass' when it has a next_run_at; those of a
-- Rails app have none, and each leaves the other's alone. Ours are not static:
-- Solid Queue deletes static tasks that its own configuration does not have.

-- The first tick that nobody has dealt with. It moves in the transaction that
-- enqueues, and outlives every job, so that no tick is fired twice.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN next_run_at timestamp(6);
-- The last tick that was fired.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN last_run_at timestamp(6);
-- A tick that waits for the job before it to end.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN queued_run_at timestamp(6);
-- The jobs that were not known to have ended when the last tick was fired: a
-- JSON array, kept where jobs must not overlap.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN open_jobs text;
-- The schedule as it was given. Ruby reads `schedule`, so that one has the
-- same times in the words of fugit.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN schedule_text varchar;
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN time_zone varchar;
-- What to do with missed ticks and overlapping jobs, and the policy of the
-- jobs: JSON.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN options text;
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN paused_at timestamp(6);
-- When a scheduler that has the task in its code or configuration last said
-- so; tasks scheduled at run time have none.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN declared_at timestamp(6);
-- Of the program that declared it: an older one does not overwrite it.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN revision bigint;
-- Grows with every change: who has seen an older one changes nothing.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN row_version bigint NOT NULL DEFAULT 0;
CREATE INDEX index_windlass_recurring_tasks_on_next_run_at ON solid_queue_recurring_tasks (next_run_at) WHERE next_run_at IS NOT NULL;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000007', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
