"""Amounts of budgets, limits, settings and alerts end in ``_micros``. Their columns keep their names: no SQL runs."""

from django.db import migrations, models

FIELDS = {
    ("budget", "limit"): models.BigIntegerField(
        "limit", db_column="limit", null=True, blank=True, help_text="Micro-dollars; empty: not limited."
    ),
    ("budget", "spent"): models.BigIntegerField("spent", db_column="spent", default=0),
    ("budget", "reserved"): models.BigIntegerField("reserved", db_column="reserved", default=0),
    ("budget", "debt"): models.BigIntegerField("debt", db_column="debt", default=0),
    ("budget", "minute_level"): models.BigIntegerField(
        "minute level",
        db_column="minute_level",
        default=0,
        db_default=0,
        editable=False,
        help_text="Micro-dollars of the last minute at ``minute_at``.",
    ),
    ("budgetlimit", "before"): models.BigIntegerField("before", db_column="before", null=True),
    ("budgetlimit", "limit"): models.BigIntegerField(
        "limit", db_column="limit", null=True, help_text="Micro-dollars; empty: not limited."
    ),
    ("budgetsettings", "most_per_minute"): models.BigIntegerField(
        "most per minute",
        db_column="most_per_minute",
        null=True,
        blank=True,
        help_text="Micro-dollars that calls may cost a minute; empty: not limited.",
    ),
    ("budgetalert", "limit"): models.BigIntegerField(
        "limit", db_column="limit", help_text="Micro-dollars; 0 where there is none."
    ),
    ("budgetalert", "spent"): models.BigIntegerField("spent", db_column="spent"),
    ("budgetalert", "excess"): models.BigIntegerField(
        "excess", db_column="excess", default=0, help_text="Micro-dollars by which a bill was above its hold."
    ),
}
CONSTRAINTS = (
    (
        "budget",
        models.CheckConstraint(
            condition=models.Q(
                ("spent_micros__gte", 0),
                ("reserved_micros__gte", 0),
                ("debt_micros__gte", 0),
                models.Q(
                    ("limit_micros", None),
                    ("limit_micros__gte", models.F("spent_micros") + models.F("reserved_micros")),
                    _connector="OR",
                ),
            ),
            name="never_overspent",
        ),
    ),
    (
        "budgetlimit",
        models.CheckConstraint(
            condition=models.Q(("limit_micros", None), ("limit_micros__gte", 0), _connector="OR"),
            name="limit_not_negative",
        ),
    ),
    (
        "budgetsettings",
        models.CheckConstraint(
            condition=models.Q(("most_per_minute_micros", None), ("most_per_minute_micros__gt", 0), _connector="OR"),
            name="rate_positive",
        ),
    ),
    (
        "budgetalert",
        models.UniqueConstraint(
            fields=("budget", "kind", "threshold", "limit_micros"), name="one_alert_per_budget_threshold_and_limit"
        ),
    ),
)


class Migration(migrations.Migration):
    dependencies = [("budgets", "0006_prices_in_micros")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                *(migrations.RemoveConstraint(model, constraint.name) for model, constraint in CONSTRAINTS),
                *(migrations.RenameField(model, name, f"{name}_micros") for model, name in FIELDS),
                *(migrations.AlterField(model, f"{name}_micros", field) for (model, name), field in FIELDS.items()),
                *(migrations.AddConstraint(model, constraint) for model, constraint in CONSTRAINTS),
            ]
        )
    ]
