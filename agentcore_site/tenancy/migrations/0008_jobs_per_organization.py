"""What a new organisation may have is a setting of the site."""

from django.db import migrations, models

import agentcore_site.tenancy.models


class Migration(migrations.Migration):
    dependencies = [
        ("tenancy", "0007_token_grace"),
    ]

    operations = [
        migrations.AlterField(
            model_name="organization",
            name="max_active_jobs",
            field=models.PositiveIntegerField(
                default=agentcore_site.tenancy.models.jobs_per_organization,
                help_text="How many jobs may be queued, running or paused at once.",
            ),
        ),
    ]
