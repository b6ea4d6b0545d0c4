"""Agents have a reward of their own, and opt in to groups and to evolution."""

from django.db import migrations, models

# Agents that are there go on as before: they may run in groups, and evolve as their playbooks did.
KEPT = """
UPDATE experiences_agent SET grouped_execution = true;
UPDATE experiences_agent SET evolves = playbook.evolves
    FROM experiences_playbook playbook WHERE playbook.agent_id = experiences_agent.id;
"""
BACK = """
UPDATE experiences_playbook SET evolves = agent.evolves
    FROM experiences_agent agent WHERE agent.id = experiences_playbook.agent_id;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0009_history_by_the_owner"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="ace_delta_model",
            field=models.CharField(blank=True, help_text="The model that suggests changes.", max_length=120),
        ),
        migrations.AddField(
            model_name="agent",
            name="ace_evolution_frequency",
            field=models.PositiveIntegerField(blank=True, help_text="Executions between two.", null=True),
        ),
        migrations.AddField(
            model_name="agent",
            name="ace_max_sections",
            field=models.PositiveSmallIntegerField(blank=True, help_text="Items of its playbook.", null=True),
        ),
        migrations.AddField(
            model_name="agent",
            name="ace_min_confidence",
            field=models.FloatField(blank=True, help_text="A change is applied from here on.", null=True),
        ),
        migrations.AddField(
            model_name="agent",
            name="ace_monthly_budget_usd",
            field=models.FloatField(blank=True, help_text="What evolutions may cost a month.", null=True),
        ),
        migrations.AddField(
            model_name="agent",
            name="evolves",
            field=models.BooleanField(
                default=False, help_text="Off: its playbook changes by hand.", verbose_name="evolves by itself"
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="grouped_execution",
            field=models.BooleanField(
                default=False,
                help_text="On: it may be trained with training-free GRPO.",
                verbose_name="may run in groups",
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="reward",
            field=models.CharField(
                blank=True, help_text="Pays its jobs that name none. Empty: the preset's.", max_length=100
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="reward_options",
            field=models.JSONField(blank=True, default=dict, help_text="Options of that reward, by name."),
        ),
        migrations.RunSQL(KEPT, BACK),
        migrations.RemoveField(
            model_name="playbook",
            name="evolves",
        ),
    ]
