//! The functions of a Postgres database, and the property that each has: a fixed `search_path`, and no right for `PUBLIC`.
//!
//! A session resolves the types of a function's variables once, with the `search_path` of its first call. Without a fixed
//! one, a caller could make a function that then works with the rights of its owner compute with types of the caller.

/// Selects the functions that lack the property, and what each lacks. `is_definer`: it works with the rights of its owner
/// where no other role can create what it could find in its schema instead of what it means, such as an operator, or have
/// code of its own run in the tables, by a trigger.
///
/// The first names of a function are those of the migrations that work so.
pub(crate) const OPEN_FUNCTIONS: &str = r"WITH found AS (
    SELECT p.oid, CAST(p.proname AS text) AS name, p.prosecdef, p.proowner, n.nspname, n.nspowner,
        quote_ident(n.nspname) || ', pg_temp' AS path,
        p.prosecdef OR p.proname IN ('windlass_insert_enqueue_v2', 'windlass_enqueue_v2', 'windlass_enqueue',
            'windlass_enqueue_many_v2', 'windlass_enqueue_many', 'windlass_enqueue_each_v2', 'windlass_emit', 'windlass_open_batch') AS is_meant,
        NOT coalesce(p.proconfig && ARRAY['search_path=' || quote_ident(n.nspname) || ', pg_temp',
            CASE WHEN n.nspname ~ '^[a-z_][a-z0-9_]*$' THEN 'search_path=' || n.nspname || ', pg_temp' END], false) AS is_loose,
        EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0) AS is_public
    FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
    JOIN pg_proc p ON p.pronamespace IN (n.oid, to_regnamespace(quote_ident(current_schema())))
    WHERE t.oid = to_regclass('solid_queue_jobs') AND p.proname LIKE 'windlass\_%' AND p.prokind = 'f'
), maker AS MATERIALIZED (
    SELECT a.grantee AS role FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace,
        aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
    WHERE t.oid = to_regclass('solid_queue_jobs') AND a.privilege_type = 'CREATE'
    UNION SELECT o.proowner FROM pg_class t JOIN pg_proc o ON o.pronamespace = t.relnamespace
    WHERE t.oid = to_regclass('solid_queue_jobs') AND (o.proname LIKE 'windlass\_%' OR o.proname IN
        (SELECT b.proname FROM pg_proc b WHERE b.pronamespace = CAST('pg_catalog' AS regnamespace)))
    UNION SELECT o.oprowner FROM pg_class t JOIN pg_operator o ON o.oprnamespace = t.relnamespace
    WHERE t.oid = to_regclass('solid_queue_jobs')
    UNION SELECT coalesce(r.role, o.relowner) FROM pg_class t JOIN pg_class o ON o.relnamespace = t.relnamespace
    CROSS JOIN LATERAL (SELECT CAST(NULL AS oid)
        UNION ALL SELECT a.grantee FROM aclexplode(o.relacl) AS a WHERE a.privilege_type = 'TRIGGER'
        UNION ALL SELECT f.proowner FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid WHERE g.tgrelid = o.oid AND NOT g.tgisinternal
    ) AS r (role)
    WHERE t.oid = to_regclass('solid_queue_jobs') AND o.relkind IN ('r', 'p', 'v', 'f', 'm')
        AND (o.relname LIKE 'solid\_queue\_%' OR o.relname LIKE 'windlass\_%' AND o.relname NOT LIKE 'windlass\_enqueue%')
), judged AS (
    SELECT f.*, f.is_meant AND EXISTS (SELECT 1 FROM maker m WHERE CASE WHEN m.role = 0 THEN true
        ELSE m.role <> f.nspowner AND NOT pg_has_role(m.role, f.proowner, 'MEMBER') END) AS is_shared
    FROM found f
) SELECT oid, name, path, is_meant AND NOT is_shared AS is_definer, concat_ws(' and ',
    CASE WHEN is_loose THEN 'has not the fixed search_path ' || path END,
    CASE WHEN is_public THEN 'may be called by every role' END,
    CASE WHEN is_shared AND prosecdef THEN 'has the rights of its owner, though other roles may create functions in its schema or triggers on its tables, or have' END,
    CASE WHEN is_meant AND NOT is_shared AND NOT prosecdef THEN 'has not the rights of its owner' END) AS fault
FROM judged WHERE is_loose OR is_public OR prosecdef <> (is_meant AND NOT is_shared) ORDER BY name";

/// Returns the statement that gives all functions the property. A migration that creates a function ends with it.
pub(crate) fn close_functions() -> String {
    format!(
        "DO $$
DECLARE
    v_open record;
BEGIN
    FOR v_open IN {OPEN_FUNCTIONS}
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %s', CAST(v_open.oid AS regprocedure), v_open.path);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', CAST(v_open.oid AS regprocedure));
        EXECUTE format('ALTER FUNCTION %s SECURITY %s', CAST(v_open.oid AS regprocedure),
            CASE WHEN v_open.is_definer THEN 'DEFINER' ELSE 'INVOKER' END);
    END LOOP;
END;
$$"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::conn::dialect::Dialect;
    use crate::db::schema::migrations::texts;

    #[test]
    fn the_migrations_close_their_functions() {
        let files = texts(Dialect::Postgres);
        let creating = |text: &str| {
            text.contains("CREATE FUNCTION") || text.contains("CREATE OR REPLACE FUNCTION")
        };
        let (version, last) = files.iter().rfind(|(_, text)| creating(text)).unwrap();
        assert!(
            last.contains(&close_functions()),
            "{version} leaves them open"
        );
        for (version, text) in &files {
            let found = text.matches("v_open record").count();
            assert_eq!(text.matches(&close_functions()).count(), found, "{version}");
        }
    }
}
