"""Events of jobs say whose they are, so that the policies of rows need not ask their job."""

from typing import Any

from django.db import connection, migrations, models

AT_ONCE = 20_000
FILL = """
UPDATE jobs_jobevent child SET organization_id = parent.organization_id FROM jobs_job parent
WHERE child.job_id = parent.id AND child.organization_id IS NULL AND child.id >= %s AND child.id < %s
"""
# Looked through without a lock that stops writers; what is proven so is not looked through again.
FILLED = """
ALTER TABLE jobs_jobevent DROP CONSTRAINT IF EXISTS organization_said;
ALTER TABLE jobs_jobevent ADD CONSTRAINT organization_said CHECK (organization_id IS NOT NULL) NOT VALID;
ALTER TABLE jobs_jobevent VALIDATE CONSTRAINT organization_said;
"""


def fill(apps: Any, schema_editor: Any) -> None:
    """Some thousand rows at a time. One that was interrupted goes on where it was."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(id), max(id) FROM jobs_jobevent")
        first, last = cursor.fetchone()
        for start in range(first or 0, (last or -1) + 1, AT_ONCE):
            cursor.execute(FILL, [start, start + AT_ONCE])


class Migration(migrations.Migration):
    atomic = False  # each part is committed by itself, and may be done again
    dependencies = [("jobs", "0012_event_organization")]
    operations = [
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.RunSQL(FILLED, migrations.RunSQL.noop),
        migrations.AlterField("jobevent", "organization_id", models.UUIDField(editable=False)),
        migrations.RunSQL("ALTER TABLE jobs_jobevent DROP CONSTRAINT organization_said", migrations.RunSQL.noop),
    ]
