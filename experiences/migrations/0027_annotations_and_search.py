"""What people note on trajectories, and the search inside of steps."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import agentcore_site.ids

SEARCH = """
-- The words of a trajectory's steps: what tools gave back, errors, parameters, what the agent said. Of encrypted steps
-- none. A tsvector holds a megabyte at most and a trajectory may have more: of a long one the beginning is searched.
CREATE FUNCTION experiences_step_words(steps jsonb) RETURNS tsvector
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT AS $$
DECLARE
    said jsonb := jsonb_path_query_array(steps, '$[*].result.*')
        || jsonb_path_query_array(steps, '$[*].action.parameters.*')
        || jsonb_path_query_array(steps, '$[*].action.text');
BEGIN
    IF pg_column_size(said) > 200000 THEN
        RETURN to_tsvector('pg_catalog.simple', left(said::text, 100000));
    END IF;
    RETURN jsonb_to_tsvector('pg_catalog.simple', said, '["string"]');
END $$;

-- Entries wait in a list and are added together, which halves what they cost COPY. A short one: search reads it through
-- and a long one would take more room than the index.
CREATE INDEX experiences_trajectory_by_tool ON experiences_trajectory
    USING gin (jsonb_path_query_array(steps, '$[*].action.tool')) WITH (gin_pending_list_limit = 256);
CREATE INDEX experiences_trajectory_by_word ON experiences_trajectory
    USING gin (experiences_step_words(steps)) WITH (gin_pending_list_limit = 256);

-- Conditions of a search may not be asked before the policy of rows is (they are not leakproof), so that under the
-- policy no index serves them. The view is its owner's, to whom no policy applies, and asks the same itself.
CREATE VIEW experiences_trajectory_search AS
    SELECT month, id, steps, jsonb_path_query_array(steps, '$[*].action.tool') AS tools,
        experiences_step_words(steps) AS words
    FROM experiences_trajectory
    WHERE current_setting('agentcore.scope', true) = '*'
        OR strpos(current_setting('agentcore.scope', true), organization_id::text) > 0;
"""

BACK = """
DROP VIEW experiences_trajectory_search;
DROP INDEX experiences_trajectory_by_word;
DROP INDEX experiences_trajectory_by_tool;
DROP FUNCTION experiences_step_words(jsonb);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0026_exports"),
        ("tenancy", "0013_single_sign_on"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name="dataset",
            name="origin",
            field=models.CharField(
                choices=[
                    ("sent", "Sent by a program"),
                    ("file", "Uploaded as a file"),
                    ("launch", "Given with a job"),
                    ("traces", "Taken from production traces"),
                    ("annotated", "Taken from annotated trajectories"),
                ],
                db_default="sent",
                default="sent",
                editable=False,
                max_length=12,
            ),
        ),
        migrations.CreateModel(
            name="Annotation",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=agentcore_site.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("job_id", models.UUIDField(editable=False)),
                ("month", models.DateField(editable=False)),
                ("trajectory_id", models.UUIDField(editable=False)),
                ("step", models.PositiveIntegerField(editable=False, null=True)),
                ("label", models.CharField(blank=True, max_length=40)),
                ("score", models.FloatField(null=True)),
                ("comment", models.TextField(blank=True)),
                ("answer", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("updated_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "agent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiences.agent"
                    ),
                ),
                (
                    "author",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
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
                "ordering": ["created_at", "id"],
                "indexes": [
                    models.Index(fields=["month", "trajectory_id"], name="annotations_of_trajectory"),
                    models.Index(fields=["organization", "label"], name="annotations_by_label"),
                ],
            },
        ),
        migrations.RunSQL(SEARCH, BACK),
    ]
