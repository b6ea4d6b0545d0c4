"""An organisation's lines are found in their order, and a line's seal by its number."""

import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("audit", "0007_seals"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["organization_id", "number"], name="audit_by_organization"),
        ),
        migrations.AlterField(
            model_name="auditevent",
            name="organization_id",
            field=models.UUIDField(null=True),
        ),
        migrations.AddIndex(
            model_name="seal",
            index=django.contrib.postgres.indexes.GistIndex(fields=["members"], name="seals_by_member"),
        ),
    ]
