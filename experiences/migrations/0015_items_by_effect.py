"""Items of playbooks are left out of contexts at random, executions say of which, and lines say why an item went."""

import django.contrib.postgres.fields
from django.db import migrations, models

RATE = "In which share of the contexts each item of its playbook is left out, to measure what it adds."


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0014_exemplar"),
    ]

    operations = [
        # Agents that are there go on as before: their services expect whole contexts, and report versions only.
        migrations.AddField(
            model_name="agent",
            name="leave_out_rate",
            field=models.FloatField(default=0.0, db_default=0.0, help_text=RATE),
        ),
        migrations.AlterField(
            model_name="agent",
            name="leave_out_rate",
            field=models.FloatField(default=0.1, db_default=0.1, help_text=RATE),
        ),
        migrations.AddField(
            model_name="executiontrace",
            name="leave_out_rate",
            field=models.FloatField(help_text="With which probability each item was left out.", null=True),
        ),
        migrations.AddField(
            model_name="executiontrace",
            name="left_out",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=16),
                help_text="The items that were left out.",
                null=True,
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="executiontrace",
            name="used",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=16),
                help_text="The items that its answer used.",
                null=True,
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="playbookchange",
            name="reason",  # with a default of the database: processes of the release before write rows meanwhile
            field=models.CharField(blank=True, db_default="", max_length=300),
        ),
    ]
