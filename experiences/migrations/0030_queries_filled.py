"""The queries of trajectories that are there already, job by job: each is short, and nothing waits for it long."""

from typing import Any

from django.db import migrations


def fill(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT month, job_id FROM experiences_trajectory")
        for job in cursor.fetchall():
            cursor.execute("SELECT experiences_query_fill(%s, %s)", job)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("experiences", "0029_queries")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
