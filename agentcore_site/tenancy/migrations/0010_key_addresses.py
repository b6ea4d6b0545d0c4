"""A key may be kept to addresses."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenancy", "0009_key_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="addresses",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list, editable=False),
        ),
    ]
