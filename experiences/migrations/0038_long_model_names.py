"""A model's name in trajectories has room for its release's SHA-256: jobs and suites of such a model failed."""

from django.db import migrations

LONGER = "ALTER TABLE experiences_trajectory ALTER COLUMN model TYPE varchar(200)"
BACK = "ALTER TABLE experiences_trajectory ALTER COLUMN model TYPE varchar(80) USING left(model, 80)"


class Migration(migrations.Migration):
    dependencies = [("experiences", "0037_chat_philosophy")]

    operations = [migrations.RunSQL(LONGER, BACK)]
