"""Which lessons a query is told, as the runs that began with it and shipped it know it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("training", "0003_library"),
    ]

    operations = [
        migrations.AddField(
            model_name="trainingrun",
            name="shipped_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="trainingrun",
            name="shipped_rule",
            field=models.JSONField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="trainingrun",
            name="starting_rule",
            field=models.JSONField(blank=True, editable=False, null=True),
        ),
    ]
