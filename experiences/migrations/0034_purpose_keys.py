"""Keys of model endpoints by purpose."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiences", "0033_ace_release")]

    operations = [
        migrations.AddField(
            "ModelEndpoint", "purpose_keys", models.JSONField(blank=True, default=dict, editable=False)
        ),
    ]
