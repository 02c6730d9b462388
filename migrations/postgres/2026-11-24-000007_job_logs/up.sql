-- What jobs have logged about themselves, one row for each run. `lines` is JSON; `total` also counts the lines that were
-- dropped.
CREATE TABLE windlass_job_logs (
    job_id bigint NOT NULL,
    claim_id bigint NOT NULL,
    attempt integer NOT NULL,
    started_at timestamp(6) NOT NULL,
    lines text NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (job_id, claim_id)
);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000007', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
