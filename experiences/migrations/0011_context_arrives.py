"""Of an agent over HTTP it is kept whether the context that it is sent reaches its model."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0010_agent_opts_in"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="context_arrives",
            field=models.BooleanField(
                editable=False,
                help_text="What was seen last: whether the context that an agent over HTTP is sent reaches its model.",
                null=True,
            ),
        ),
    ]
