ALTER TABLE solid_queue_jobs RESET (fillfactor);
DROP TRIGGER windlass_take_along ON solid_queue_jobs;
DROP FUNCTION windlass_take_along();
ALTER TABLE solid_queue_scheduled_executions ADD CONSTRAINT solid_queue_scheduled_executions_job_id_fkey
    FOREIGN KEY (job_id) REFERENCES solid_queue_jobs (id) ON DELETE CASCADE;
ALTER TABLE solid_queue_blocked_executions ADD CONSTRAINT solid_queue_blocked_executions_job_id_fkey
    FOREIGN KEY (job_id) REFERENCES solid_queue_jobs (id) ON DELETE CASCADE;
ALTER TABLE solid_queue_failed_executions ADD CONSTRAINT solid_queue_failed_executions_job_id_fkey
    FOREIGN KEY (job_id) REFERENCES solid_queue_jobs (id) ON DELETE CASCADE;
ALTER TABLE solid_queue_recurring_executions ADD CONSTRAINT solid_queue_recurring_executions_job_id_fkey
    FOREIGN KEY (job_id) REFERENCES solid_queue_jobs (id) ON DELETE CASCADE;
DELETE FROM windlass_schema_migrations WHERE version = '20261121000010';
