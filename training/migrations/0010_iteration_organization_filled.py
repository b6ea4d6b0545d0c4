"""Iterations say whose they are, so that the policies of rows need not ask their run."""

from typing import Any

from django.db import connection, migrations, models

AT_ONCE = 20_000
FILL = """
UPDATE training_iteration child SET organization_id = parent.organization_id FROM training_trainingrun parent
WHERE child.run_id = parent.job_id AND child.organization_id IS NULL AND child.id >= %s AND child.id < %s
"""
# Looked through without a lock that stops writers; what is proven so is not looked through again.
FILLED = """
ALTER TABLE training_iteration DROP CONSTRAINT IF EXISTS organization_said;
ALTER TABLE training_iteration ADD CONSTRAINT organization_said CHECK (organization_id IS NOT NULL) NOT VALID;
ALTER TABLE training_iteration VALIDATE CONSTRAINT organization_said;
"""


def fill(apps: Any, schema_editor: Any) -> None:
    """Some thousand rows at a time. One that was interrupted goes on where it was."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(id), max(id) FROM training_iteration")
        first, last = cursor.fetchone()
        for start in range(first or 0, (last or -1) + 1, AT_ONCE):
            cursor.execute(FILL, [start, start + AT_ONCE])


class Migration(migrations.Migration):
    atomic = False  # each part is committed by itself, and may be done again
    dependencies = [("training", "0009_iteration_organization")]
    operations = [
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.RunSQL(FILLED, migrations.RunSQL.noop),
        migrations.AlterField("iteration", "organization_id", models.UUIDField(editable=False)),
        migrations.RunSQL("ALTER TABLE training_iteration DROP CONSTRAINT organization_said", migrations.RunSQL.noop),
    ]
