"""Iterations say whose they are. What is there follows in the next step."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0008_promotion")]
    operations = [migrations.AddField("iteration", "organization_id", models.UUIDField(editable=False, null=True))]
