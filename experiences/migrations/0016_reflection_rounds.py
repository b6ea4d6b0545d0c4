"""Evolutions may ask a reflector in rounds before changes are suggested."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0015_items_by_effect"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="ace_reflection_rounds",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="How often a reflector is asked, at most, before changes are suggested.",
                null=True,
            ),
        ),
    ]
