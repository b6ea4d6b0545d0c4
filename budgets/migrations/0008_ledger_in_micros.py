"""Amounts of reservations and of the ledger end in ``_micros``. Their columns keep their names: no SQL runs."""

from django.db import migrations, models

FIELDS = {
    ("reservation", "amount"): models.BigIntegerField("amount", db_column="amount"),
    ("reservation", "actual"): models.BigIntegerField("actual", db_column="actual", null=True),
    ("ledgerentry", "spent_delta"): models.BigIntegerField("spent delta", db_column="spent_delta", default=0),
    ("ledgerentry", "reserved_delta"): models.BigIntegerField("reserved delta", db_column="reserved_delta", default=0),
    ("ledgerentry", "debt_delta"): models.BigIntegerField("debt delta", db_column="debt_delta", default=0),
    ("ledgerentry", "cost"): models.BigIntegerField("cost", db_column="cost", null=True),
}
LEAST = models.CheckConstraint(condition=models.Q(("amount_micros__gte", 0)), name="hold_not_negative")


class Migration(migrations.Migration):
    dependencies = [("budgets", "0007_budgets_in_micros")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint("reservation", LEAST.name),
                *(migrations.RenameField(model, name, f"{name}_micros") for model, name in FIELDS),
                *(migrations.AlterField(model, f"{name}_micros", field) for (model, name), field in FIELDS.items()),
                migrations.AddConstraint("reservation", LEAST),
            ]
        )
    ]
