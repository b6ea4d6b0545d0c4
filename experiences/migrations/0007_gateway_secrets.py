"""Portkey's virtual keys and written-out configs are sealed; those that stood among the options are moved there."""

import json
from typing import Any

from django.db import migrations, models


def seal(apps: Any, schema_editor: Any) -> None:
    from agentcore_site.vault import sealed

    for row in apps.get_model("experiences", "ModelEndpoint").objects.filter(options__has_key="portkey_config"):
        config = row.options["portkey_config"]
        if isinstance(config, str):
            try:
                config = json.loads(config)
            except ValueError:
                continue
        if isinstance(config, dict) and config:
            row.gateway_config = sealed(json.dumps(config))
            del row.options["portkey_config"]
            row.save(update_fields=["gateway_config", "options"])


class Migration(migrations.Migration):
    dependencies = [("experiences", "0006_playbooks")]
    operations = [
        migrations.AddField(
            "modelendpoint",
            "virtual_key",
            models.TextField(blank=True, default="", editable=False),
            preserve_default=False,
        ),
        migrations.AddField(
            "modelendpoint",
            "gateway_config",
            models.TextField(blank=True, default="", editable=False),
            preserve_default=False,
        ),
        migrations.RunPython(seal, migrations.RunPython.noop),
    ]
