"""An evaluation keeps fingerprints of the model, tools and prompt that it measured."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0005_measured_bytes")]

    operations = [
        migrations.AddField("EvaluationRun", "acts_by", models.JSONField(blank=True, default=dict, editable=False)),
    ]
