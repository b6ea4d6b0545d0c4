"""A job may wait because its organisation spends as much a minute as it may."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0010_jobs_to_do"),
    ]

    operations = [
        migrations.AlterField(
            model_name="job",
            name="status_reason",
            field=models.CharField(
                blank=True,
                choices=[
                    ("", ""),
                    ("user", "by a person"),
                    ("all_iterations", "all iterations ran"),
                    ("early_stopped", "no further gain on the selection queries"),
                    ("budget_exceeded", "the budget is used up"),
                    ("spending_rate", "its organisation spends as much a minute as it may"),
                    ("spends_too_fast", "it spends far more than its calls need"),
                    ("waiting_for_llm", "waiting for the model's service"),
                    ("disk_full", "the disk is nearly full"),
                    ("key_away", "its encryption key can't be had"),
                    ("llm_refused", "the model's service refuses"),
                    ("reward_timeout", "its reward ran out of time"),
                    ("not_recorded", "its agent may not be recorded"),
                    ("crashed", "its workers crashed too often"),
                    ("error", "an error that trying again does not mend"),
                    ("diverged", "training diverged"),
                ],
                default="",
                max_length=30,
            ),
        ),
    ]
