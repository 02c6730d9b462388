-- The tokens of `windlass web`. `digest` is the SHA-256 of a token, in hexadecimal, and `lookup` its first 16 digits;
-- the token itself is stored nowhere. `role`: viewer, operator or enqueuer. `limits` is JSON: what an enqueuer may enqueue.
CREATE TABLE windlass_web_tokens (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    name varchar NOT NULL,
    role varchar NOT NULL,
    lookup varchar NOT NULL,
    digest varchar NOT NULL,
    limits text,
    created_by varchar,
    created_at datetime(6) NOT NULL,
    last_used_at datetime(6),
    expires_at datetime(6),
    revoked_at datetime(6)
);
CREATE UNIQUE INDEX index_windlass_web_tokens_on_lookup ON windlass_web_tokens (lookup);

-- Who is signed in, with which token. `digest` and `lookup` are those of the secret in the session's cookie.
CREATE TABLE windlass_web_sessions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    token_id bigint NOT NULL,
    lookup varchar NOT NULL,
    digest varchar NOT NULL,
    origin varchar,
    created_at datetime(6) NOT NULL,
    seen_at datetime(6) NOT NULL,
    expires_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX index_windlass_web_sessions_on_lookup ON windlass_web_sessions (lookup);
CREATE INDEX index_windlass_web_sessions_on_token_id ON windlass_web_sessions (token_id);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000011', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
