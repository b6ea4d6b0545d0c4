"""Queries of trajectories, each once for all rollouts of its place, so that a search reads those alone and an index can
serve it: every trajectory was read for it."""

import django.contrib.postgres.indexes
import django.db.models.functions.text
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations, models

QUERIES = """
CREATE FUNCTION experiences_query_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO experiences_query (month, organization_id, job_id, iteration, scenario, digest, query)
    SELECT DISTINCT month, organization_id, job_id, iteration, scenario, hashtextextended(query, 0), query FROM noted
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER experiences_queried AFTER INSERT ON experiences_trajectory
    REFERENCING NEW TABLE AS noted FOR EACH STATEMENT EXECUTE FUNCTION experiences_query_note();
SELECT experiences_partition_close(inhrelid) FROM pg_inherits WHERE inhparent = 'experiences_trajectory'::regclass;

-- A query goes with the last trajectory of its place.
CREATE FUNCTION experiences_query_forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM experiences_query q
    USING (SELECT DISTINCT month, job_id, iteration, scenario, hashtextextended(query, 0) AS digest FROM noted) gone
    WHERE (q.job_id, q.iteration, q.scenario, q.digest) = (gone.job_id, gone.iteration, gone.scenario, gone.digest)
        AND NOT EXISTS (
            SELECT FROM experiences_trajectory t
            WHERE (t.month, t.job_id, t.iteration, t.scenario)
                = (gone.month, gone.job_id, gone.iteration, gone.scenario)
                AND hashtextextended(t.query, 0) = gone.digest);
    RETURN NULL;
END $$;
CREATE TRIGGER experiences_queried_end AFTER DELETE ON experiences_trajectory
    REFERENCING OLD TABLE AS noted FOR EACH STATEMENT EXECUTE FUNCTION experiences_query_forget();

-- The queries of a job of which there are rows already, or again.
CREATE FUNCTION experiences_query_fill(month date, job uuid) RETURNS void LANGUAGE sql AS $$
    INSERT INTO experiences_query (month, organization_id, job_id, iteration, scenario, digest, query)
    SELECT DISTINCT t.month, t.organization_id, t.job_id, t.iteration, t.scenario, hashtextextended(t.query, 0), t.query
    FROM experiences_trajectory t WHERE t.month = $1 AND t.job_id = $2
    ON CONFLICT DO NOTHING;
$$;

-- No index serves LIKE under the policy of rows. The view is its owner's, to whom none applies, and asks it itself.
CREATE VIEW experiences_query_search AS
    SELECT month, job_id, iteration, scenario, digest, query, upper(query) AS upper_query FROM experiences_query
    WHERE current_setting('agentcore.scope', true) = '*'
        OR strpos(current_setting('agentcore.scope', true), organization_id::text) > 0;
"""

QUERIES_BACK = """
DROP VIEW experiences_query_search;
DROP FUNCTION experiences_query_fill(date, uuid);
DROP TRIGGER experiences_queried_end ON experiences_trajectory;
DROP FUNCTION experiences_query_forget();
DROP FUNCTION experiences_query_note() CASCADE;
"""

# A month that is dropped takes its queries along, whichever release drops it.
DROPPED = """
DO $$
DECLARE
    told text := pg_get_functiondef('experiences_trajectory_partition_drop(date)'::regprocedure);
    made text := replace(told, {old}, {new});
BEGIN
    IF made = told THEN
        RAISE EXCEPTION 'experiences_trajectory_partition_drop is not as it was';
    END IF;
    EXECUTE made;
END $$;
"""
TABLE = "$told$EXECUTE format('DROP TABLE %I', name);$told$"
AND_QUERIES = "$told$EXECUTE format('DROP TABLE %I', name); DELETE FROM experiences_query WHERE month = $1;$told$"


class Migration(migrations.Migration):
    dependencies = [("experiences", "0028_versions_and_error_words")]

    operations = [
        TrigramExtension(),  # PostgreSQL's own (contrib), and trusted: who may create in the database may create it
        migrations.CreateModel(
            name="QueryRecord",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "job_id",
                        "iteration",
                        "scenario",
                        "digest",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("month", models.DateField()),
                ("organization_id", models.UUIDField()),
                ("job_id", models.UUIDField()),
                ("iteration", models.IntegerField()),
                ("scenario", models.IntegerField()),
                ("digest", models.BigIntegerField()),
                ("query", models.TextField()),
            ],
            options={
                "verbose_name": "query of trajectories",
                "verbose_name_plural": "queries of trajectories",
                "db_table": "experiences_query",
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(
                        django.contrib.postgres.indexes.OpClass(
                            django.db.models.functions.text.Upper("query"), "gin_trgm_ops"
                        ),
                        gin_pending_list_limit=256,
                        name="experiences_query_by_text",
                    )
                ],
            },
        ),
        migrations.RunSQL(QUERIES, QUERIES_BACK),
        migrations.RunSQL(DROPPED.format(old=TABLE, new=AND_QUERIES), DROPPED.format(old=AND_QUERIES, new=TABLE)),
    ]
