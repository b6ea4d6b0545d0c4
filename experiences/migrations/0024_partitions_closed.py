"""A month is written by name, since COPY takes no policies of rows, and read through the table that has them."""

from django.db import migrations

CLOSED = """
CREATE FUNCTION experiences_partition_close(partition regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT DISTINCT grantee::regrole AS role FROM pg_class, aclexplode(relacl)
               WHERE oid = partition AND grantee NOT IN (relowner, 0) LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', partition, one.role);
        EXECUTE format('GRANT INSERT ON %s TO %s', partition, one.role);
    END LOOP;
    -- A statement's triggers are those of the table that it names: what notes new rows has to stand at both. Rows that
    -- return from an archive were noted before.
    FOR one IN SELECT pg_get_triggerdef(t.oid) AS told FROM pg_trigger t JOIN pg_inherits i ON i.inhparent = t.tgrelid
               WHERE i.inhrelid = partition AND NOT t.tgisinternal AND t.tgtype & 1 = 0 AND t.tgtype & 4 = 4
                 AND NOT EXISTS (SELECT FROM pg_trigger m WHERE m.tgrelid = partition AND m.tgname = t.tgname) LOOP
        EXECUTE replace(regexp_replace(one.told, ' ON \\S+ ', format(' ON %s ', partition)), ' STATEMENT EXECUTE ',
            ' STATEMENT WHEN (current_setting(''agentcore.not_news'', true) IS DISTINCT FROM ''on'') EXECUTE ');
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION experiences_partition_close(regclass) FROM PUBLIC;

CREATE OR REPLACE FUNCTION experiences_trajectory_partition(month date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    name text := 'experiences_trajectory_' || to_char($1, 'YYYY_MM');
    first date := date_trunc('month', $1)::date;
    last date := (first + interval '1 month')::date;
BEGIN
    IF to_regclass(name) IS NULL THEN
        -- Two workers may both find it missing; the lock makes them take turns.
        PERFORM pg_advisory_xact_lock(hashtext(name));
        IF to_regclass(name) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE experiences_trajectory INCLUDING CONSTRAINTS)', name);
            EXECUTE format('WITH moved AS (DELETE FROM experiences_trajectory_other WHERE month >= %L AND month < %L'
                ' RETURNING *) INSERT INTO %I SELECT * FROM moved', first, last, name);
            EXECUTE format('ALTER TABLE experiences_trajectory ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                           name, first, last);
            PERFORM experiences_partition_close(name::regclass);
        END IF;
    END IF;
END $$;

-- Sums of digests as before, of what one sees of the table, or of a month of it.
DROP FUNCTION experiences_trajectory_marks(regclass, uuid[]);
CREATE FUNCTION experiences_trajectory_marks(relation regclass, jobs uuid[] DEFAULT NULL, month date DEFAULT NULL)
    RETURNS TABLE (organization_id uuid, agent_id uuid, job_id uuid, n bigint, mark numeric)
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY EXECUTE format($query$
        SELECT t.organization_id, t.agent_id, t.job_id, count(*), sum(('x' || left(md5(convert_to(concat_ws('|',
            t.id, t.month - date '1970-01-01', t.purpose, t.arm, t.line, t.iteration, t.scenario, t.rollout, t.query,
            t.success, t.n_steps, t.truncated, t.error, t.tokens, t.cost_micros, t.policy_version, t.model,
            t.components, t.evidence, t.steps, t.reward IS NULL, t.reward_before_ranking IS NULL,
            (extract(epoch FROM t.created_at) * 1000000)::bigint), 'UTF8')
            || float8send(t.outcome) || float8send(coalesce(t.reward, 'NaN'))
            || float8send(coalesce(t.reward_before_ranking, 'NaN')) || float8send(t.duration_ms)), 15))
            ::bit(60)::bigint)
        FROM %s t WHERE ($1 IS NULL OR t.job_id = ANY($1)) AND ($2 IS NULL OR t.month = $2)
        GROUP BY 1, 2, 3$query$, relation) USING jobs, month;
END $$;
"""

BACK = """
DROP FUNCTION experiences_trajectory_marks(regclass, uuid[], date);
CREATE FUNCTION experiences_trajectory_marks(relation regclass, jobs uuid[] DEFAULT NULL)
    RETURNS TABLE (organization_id uuid, agent_id uuid, job_id uuid, n bigint, mark numeric)
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY EXECUTE format($query$
        SELECT t.organization_id, t.agent_id, t.job_id, count(*), sum(('x' || left(md5(convert_to(concat_ws('|',
            t.id, t.month - date '1970-01-01', t.purpose, t.arm, t.line, t.iteration, t.scenario, t.rollout, t.query,
            t.success, t.n_steps, t.truncated, t.error, t.tokens, t.cost_micros, t.policy_version, t.model,
            t.components, t.evidence, t.steps, t.reward IS NULL, t.reward_before_ranking IS NULL,
            (extract(epoch FROM t.created_at) * 1000000)::bigint), 'UTF8')
            || float8send(t.outcome) || float8send(coalesce(t.reward, 'NaN'))
            || float8send(coalesce(t.reward_before_ranking, 'NaN')) || float8send(t.duration_ms)), 15))
            ::bit(60)::bigint)
        FROM %s t WHERE $1 IS NULL OR t.job_id = ANY($1) GROUP BY 1, 2, 3$query$, relation) USING jobs;
END $$;
CREATE OR REPLACE FUNCTION experiences_trajectory_partition(month date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    name text := 'experiences_trajectory_' || to_char($1, 'YYYY_MM');
    first date := date_trunc('month', $1)::date;
    last date := (first + interval '1 month')::date;
BEGIN
    IF to_regclass(name) IS NULL THEN
        -- Two workers may both find it missing; the lock makes them take turns.
        PERFORM pg_advisory_xact_lock(hashtext(name));
        IF to_regclass(name) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE experiences_trajectory INCLUDING CONSTRAINTS)', name);
            EXECUTE format('WITH moved AS (DELETE FROM experiences_trajectory_other WHERE month >= %L AND month < %L'
                ' RETURNING *) INSERT INTO %I SELECT * FROM moved', first, last, name);
            EXECUTE format('ALTER TABLE experiences_trajectory ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                           name, first, last);
        END IF;
    END IF;
END $$;
DROP FUNCTION experiences_partition_close(regclass);
"""


class Migration(migrations.Migration):
    dependencies = [("experiences", "0023_encrypted_steps")]
    operations = [migrations.RunSQL(CLOSED, BACK)]
