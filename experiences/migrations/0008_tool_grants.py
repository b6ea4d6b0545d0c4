"""Which tools of a server an agent may call is written down for each agent: what was named for a server until now, its
agents keep. Sealed variables of programs, and what a foreign agent asks for to be let in."""

from typing import Any

from django.db import migrations, models


def grant(apps: Any, schema_editor: Any) -> None:
    for agent in apps.get_model("experiences", "Agent").objects.filter(tool_servers__isnull=False).distinct():
        named = {str(server.pk): server.tools for server in agent.tool_servers.all() if server.tools}
        if named:
            agent.granted_tools = named
            agent.save(update_fields=["granted_tools"])


class Migration(migrations.Migration):
    dependencies = [("experiences", "0007_gateway_secrets")]
    operations = [
        migrations.AddField(
            "agent",
            "granted_tools",
            models.JSONField(
                blank=True,
                default=dict,
                editable=False,
                help_text="Names of the tools that it may call, by the id of their server.",
            ),
        ),
        migrations.AddField("agent", "authorization", models.TextField(blank=True, default="", editable=False)),
        migrations.AddField("toolserver", "variables", models.JSONField(blank=True, default=dict, editable=False)),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
