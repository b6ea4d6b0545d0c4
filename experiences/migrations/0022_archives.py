"""Archives of trajectories. A month's partition is dropped by a function of the owner's, which looks first whether all
of its rows are archived, under a lock that keeps others from writing to it."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import agentcore_site.ids

FUNCTIONS = """
-- By job: how many rows of a table of trajectories, and the sum of their digests (60 bits of MD5 over every column,
-- numbers by their bits, in a form that no setting changes). `archive/digests.py` has the same of a file. A column that
-- comes later is not part of it: older archives keep their sums.
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

-- Drops a month whose rows are all archived, and returns nothing; else it returns the jobs that are not, or not as they
-- are now, and drops nothing.
CREATE FUNCTION experiences_trajectory_partition_drop(month date)
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
REVOKE ALL ON FUNCTION experiences_trajectory_partition_drop(date) FROM PUBLIC;

-- As before; and rows that came while there was no partition (of a job that went on after its month was dropped) move
-- there from the default partition, which otherwise would keep the partition from being made.
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
"""

BACK = """
DROP FUNCTION experiences_trajectory_partition_drop(date);
DROP FUNCTION experiences_trajectory_marks(regclass, uuid[]);
CREATE OR REPLACE FUNCTION experiences_trajectory_partition(month date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    name text := 'experiences_trajectory_' || to_char(month, 'YYYY_MM');
    first date := date_trunc('month', month)::date;
BEGIN
    IF to_regclass(name) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext(name));
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF experiences_trajectory FOR VALUES FROM (%L) TO (%L)',
                       name, first, (first + interval '1 month')::date);
    END IF;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0021_endpoint_name_again"),
        ("tenancy", "0009_key_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="TrajectoryArchive",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=agentcore_site.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("month", models.DateField()),
                (
                    "state",
                    models.CharField(
                        choices=[("written", "Written"), ("archived", "Archived"), ("deleted", "Deleted")],
                        default="written",
                        max_length=10,
                    ),
                ),
                ("revision", models.PositiveIntegerField(default=1)),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.BigIntegerField(help_text="Bytes of the file.")),
                ("rows", models.BigIntegerField()),
                ("first_at", models.DateTimeField(help_text="When its oldest trajectory began.")),
                ("last_at", models.DateTimeField()),
                ("written_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("archived_at", models.DateTimeField(null=True)),
                ("deleted_at", models.DateTimeField(null=True)),
                (
                    "agent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiences.agent"
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.organization"
                    ),
                ),
            ],
            options={
                "ordering": ["-month", "-written_at"],
            },
        ),
        migrations.CreateModel(
            name="ArchivedJob",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.UUIDField()),
                ("rows", models.BigIntegerField()),
                ("mark", models.DecimalField(decimal_places=0, max_digits=40)),
                ("first_group", models.IntegerField()),
                ("groups", models.IntegerField()),
                ("restore_asked_at", models.DateTimeField(null=True)),
                ("restored_at", models.DateTimeField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.organization"
                    ),
                ),
                (
                    "archive",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="jobs",
                        to="experiences.trajectoryarchive",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="ArchiveRule",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=agentcore_site.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "keep_days",
                    models.PositiveIntegerField(
                        help_text="Days after which an archive is deleted; 0 keeps it for ever."
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "agent",
                    models.OneToOneField(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiences.agent"
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.organization"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("agent__isnull", True)),
                        fields=("organization",),
                        name="one_archive_rule_of_an_organization",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="trajectoryarchive",
            index=models.Index(fields=["organization", "month"], name="archives_by_month"),
        ),
        migrations.AddIndex(
            model_name="archivedjob",
            index=models.Index(fields=["job_id"], name="archived_by_job"),
        ),
        migrations.RunSQL(FUNCTIONS, BACK),
    ]
