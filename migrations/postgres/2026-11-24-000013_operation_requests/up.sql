-- The request that started an operation, by an id that is made with its preview: a request that is repeated does not start
-- another one. NULL for operations that were started without a preview on a page.
ALTER TABLE windlass_operations ADD COLUMN request_id varchar;
CREATE UNIQUE INDEX index_windlass_operations_on_request_id ON windlass_operations (request_id) WHERE request_id IS NOT NULL;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000013', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
