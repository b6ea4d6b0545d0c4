"""The gateway can put what an agent over HTTP is told into its calls."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0011_context_arrives"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="inject_context",
            field=models.BooleanField(
                default=False,
                help_text="On: the gateway puts what an agent over HTTP is told into each call of its model.",
                verbose_name="context is put into its calls",
            ),
        ),
    ]
