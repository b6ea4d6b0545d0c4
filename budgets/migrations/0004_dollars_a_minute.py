"""How fast an organisation may spend, and what it spent lately."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("budgets", "0003_alerts_and_edits"),
        ("tenancy", "0009_key_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="budget",
            name="minute_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="budget",
            name="minute_level",
            field=models.BigIntegerField(
                db_default=0, default=0, editable=False, help_text="Micro-dollars of the last minute at ``minute_at``."
            ),
        ),
        migrations.AddField(
            model_name="budgetsettings",
            name="most_per_minute",
            field=models.BigIntegerField(
                blank=True, help_text="Micro-dollars that calls may cost a minute; empty: not limited.", null=True
            ),
        ),
        migrations.AddConstraint(
            model_name="budgetsettings",
            constraint=models.CheckConstraint(
                condition=models.Q(("most_per_minute", None), ("most_per_minute__gt", 0), _connector="OR"),
                name="rate_positive",
            ),
        ),
    ]
