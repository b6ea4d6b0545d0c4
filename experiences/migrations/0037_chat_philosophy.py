"""Agents and playbooks may have the philosophy chat. Existing ones keep theirs."""

from django.db import migrations, models

CHOICES = [
    ("react", "ReAct"),
    ("cot", "Chain of thought"),
    ("multi_agent", "Multi-agent"),
    ("autonomous", "Autonomous"),
    ("chat", "Chat"),
]


class Migration(migrations.Migration):
    dependencies = [("experiences", "0036_erasures_named")]

    operations = [
        migrations.AlterField(
            model_name="agent",
            name="philosophy",
            field=models.CharField(choices=CHOICES, default="react", max_length=20),
        ),
        migrations.AlterField(
            model_name="playbook", name="philosophy", field=models.CharField(choices=CHOICES, max_length=20)
        ),
    ]
