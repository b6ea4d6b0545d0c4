"""The ledger has an index of agents: each page of an agent and the summary read the whole ledger."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("budgets", "0011_prices_by_length_and_kind"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="ledgerentry",
            index=models.Index(
                condition=models.Q(("agent_id__isnull", False)), fields=["agent_id", "at"], name="ledger_by_agent"
            ),
        ),
    ]
