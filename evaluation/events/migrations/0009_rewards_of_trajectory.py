"""Finds what others paid a trajectory, for its events and its erasure."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("events", "0008_production_and_received")]

    operations = [
        migrations.AddIndex("receivedreward", models.Index(fields=["record_id"], name="rewards_of_trajectory")),
    ]
