"""An agent's playbook reaches services with a release or at once. Agents that are there keep to releases."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0032_endpoint_kind_label"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="ace_release",
            field=models.CharField(
                blank=True,
                choices=[
                    ("direct", "Direct: each new version at once"),
                    ("reviewed", "Reviewed: with a deployed release"),
                ],
                db_default="",
                default="",
                help_text="Empty: reviewed, until a service makes the playbook.",
                max_length=8,
                verbose_name="way of the playbook to services",
            ),
        ),
    ]
