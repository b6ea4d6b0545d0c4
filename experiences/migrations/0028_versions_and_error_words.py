"""Archives know which versions of rows they hold: a month is dropped without reading all of it again. The errors of
steps get an index of their own: a common word that is rare in errors was looked for in every step."""

from django.db import migrations, models

VERSIONS = """
-- A number of one version of one row: a row that is changed gets another place (ctid) and another writer (xmin).
CREATE FUNCTION experiences_row_version(id uuid, place tid, writer xid) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN hashtextextended(id::text || ' ' || place::text || ' ' || writer::text, 0);

-- As before, but a job of which every row is in the version in which its file was proven to hold it is not read again.
-- Where versions are others (rows came or were changed, VACUUM FULL or a dump wrote the table anew), the digests of all
-- of the job's rows decide.
CREATE OR REPLACE FUNCTION experiences_trajectory_partition_drop(month date)
    RETURNS TABLE (agent_id uuid, job_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
    name text := 'experiences_trajectory_' || to_char($1, 'YYYY_MM');
    other uuid[];
BEGIN
    IF to_regclass(name) IS NULL THEN
        RETURN;
    END IF;
    -- Reads go on; what was written until now is seen by the statements below.
    EXECUTE format('LOCK TABLE %I IN SHARE MODE', name);
    EXECUTE format($query$
        SELECT coalesce(array_agg(hot.job_id), '{}') FROM (
            SELECT t.agent_id, t.job_id, count(*) AS n, sum(experiences_row_version(t.id, t.ctid, t.xmin)) AS versions
            FROM %I t GROUP BY 1, 2) hot
        WHERE NOT EXISTS (
            SELECT FROM experiences_archivedjob j JOIN experiences_trajectoryarchive a ON a.id = j.archive_id
            WHERE a.month = $1 AND a.agent_id = hot.agent_id AND j.job_id = hot.job_id AND a.state = 'written'
                AND j.rows = hot.n AND j.versions = hot.versions)$query$, name) INTO other USING $1;
    IF cardinality(other) > 0 THEN
        RETURN QUERY
            SELECT hot.agent_id, hot.job_id FROM experiences_trajectory_marks(name::regclass, other) hot
            WHERE NOT EXISTS (
                SELECT FROM experiences_archivedjob j JOIN experiences_trajectoryarchive a ON a.id = j.archive_id
                WHERE a.month = $1 AND a.agent_id = hot.agent_id AND j.job_id = hot.job_id
                    AND j.rows = hot.n AND j.mark = hot.mark
                    AND (a.state = 'written' OR a.state = 'archived' AND j.restored_at IS NOT NULL));
    END IF;
    IF NOT FOUND THEN
        EXECUTE format('DROP TABLE %I', name);
    END IF;
END $$;
"""

VERSIONS_BACK = """
CREATE OR REPLACE FUNCTION experiences_trajectory_partition_drop(month date)
    RETURNS TABLE (agent_id uuid, job_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
    name text := 'experiences_trajectory_' || to_char($1, 'YYYY_MM');
BEGIN
    IF to_regclass(name) IS NULL THEN
        RETURN;
    END IF;
    -- Reads go on; what was written until now is seen by the statements below.
    EXECUTE format('LOCK TABLE %I IN SHARE MODE', name);
    RETURN QUERY
        SELECT hot.agent_id, hot.job_id FROM experiences_trajectory_marks(name::regclass) hot
        WHERE NOT EXISTS (
            SELECT FROM experiences_archivedjob j JOIN experiences_trajectoryarchive a ON a.id = j.archive_id
            WHERE a.month = $1 AND a.agent_id = hot.agent_id AND j.job_id = hot.job_id
                AND j.rows = hot.n AND j.mark = hot.mark
                AND (a.state = 'written' OR a.state = 'archived' AND j.restored_at IS NOT NULL));
    IF NOT FOUND THEN
        EXECUTE format('DROP TABLE %I', name);
    END IF;
END $$;
DROP FUNCTION experiences_row_version(uuid, tid, xid);
"""

SEARCH = """
-- As experiences_step_words, of errors alone. Most steps have none, so that it is short.
CREATE FUNCTION experiences_step_error_words(steps jsonb) RETURNS tsvector
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT AS $$
DECLARE
    said jsonb := jsonb_path_query_array(steps, '$[*].result.error');
BEGIN
    IF pg_column_size(said) > 200000 THEN
        RETURN to_tsvector('pg_catalog.simple', left(said::text, 100000));
    END IF;
    RETURN jsonb_to_tsvector('pg_catalog.simple', said, '["string"]');
END $$;

CREATE INDEX experiences_trajectory_by_error ON experiences_trajectory
    USING gin (experiences_step_error_words(steps)) WITH (gin_pending_list_limit = 256);

CREATE OR REPLACE VIEW experiences_trajectory_search AS
    SELECT month, id, steps, jsonb_path_query_array(steps, '$[*].action.tool') AS tools,
        experiences_step_words(steps) AS words, experiences_step_error_words(steps) AS error_words
    FROM experiences_trajectory
    WHERE current_setting('agentcore.scope', true) = '*'
        OR strpos(current_setting('agentcore.scope', true), organization_id::text) > 0;
"""

# A view gives up no column by being replaced.
SEARCH_BACK = """
DROP VIEW experiences_trajectory_search;
CREATE VIEW experiences_trajectory_search AS
    SELECT month, id, steps, jsonb_path_query_array(steps, '$[*].action.tool') AS tools,
        experiences_step_words(steps) AS words
    FROM experiences_trajectory
    WHERE current_setting('agentcore.scope', true) = '*'
        OR strpos(current_setting('agentcore.scope', true), organization_id::text) > 0;
DROP INDEX experiences_trajectory_by_error;
DROP FUNCTION experiences_step_error_words(jsonb);
"""


class Migration(migrations.Migration):
    dependencies = [("experiences", "0027_annotations_and_search")]
    operations = [
        migrations.AddField("archivedjob", "versions", models.DecimalField(decimal_places=0, max_digits=40, null=True)),
        migrations.RunSQL(VERSIONS, VERSIONS_BACK),
        migrations.RunSQL(SEARCH, SEARCH_BACK),
    ]
