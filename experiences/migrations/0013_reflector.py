"""An agent may have a reflector of its own and objectives in words; a question says which model was asked."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0012_inject_context"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="learning_objective",
            field=models.CharField(blank=True, help_text="What lessons should be about.", max_length=2000),
        ),
        migrations.AddField(
            model_name="agent",
            name="objective",
            field=models.CharField(blank=True, help_text="What a good answer is, in words.", max_length=2000),
        ),
        migrations.AddField(
            model_name="agent",
            name="reflector",
            field=models.ForeignKey(
                blank=True,
                help_text="Where the model answers that says what its attempts teach. Empty: its own endpoint.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="reflected_agents",
                to="experiences.modelendpoint",
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="reflector_model",
            field=models.CharField(blank=True, help_text="Empty: the endpoint's, or its own.", max_length=120),
        ),
        migrations.AddField(
            model_name="question",
            name="model",
            field=models.CharField(
                blank=True,
                help_text="That was asked; empty in rows of earlier releases.",
                max_length=120,
            ),
        ),
    ]
