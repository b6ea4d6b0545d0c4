"""Prices have tiers by the length of the prompt, and prices of other kinds of tokens."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("budgets", "0010_ids_in_turn"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelprice",
            name="rates",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="Prices of other kinds of tokens per million, by the names of ``pricing.TokenRates``.",
            ),
        ),
        migrations.AddField(
            model_name="modelprice",
            name="tiers",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Prices of long prompts: objects with above_tokens, input_micros, output_micros and rates.",
            ),
        ),
    ]
