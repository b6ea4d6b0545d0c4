"""Alerts are told again under another limit, edited prices are known as such, and the books can't be truncated."""

from django.db import migrations, models

GUARD = """
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON budgets_ledgerentry
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON budgets_budgetlimit
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_append_only();
"""

BACK = """
DROP TRIGGER no_truncate ON budgets_budgetlimit;
DROP TRIGGER no_truncate ON budgets_ledgerentry;
"""

# Who wrote a price was not kept with it until now; the audit log knows.
EDITED = """
UPDATE budgets_modelprice SET by_hand = true WHERE id::text IN (
    SELECT target_id FROM audit_auditevent
    WHERE target_type = 'budgets.modelprice' AND action IN ('price.created', 'price.changed')
)
"""


class Migration(migrations.Migration):
    dependencies = [("budgets", "0002_append_only"), ("audit", "0001_initial")]
    operations = [
        migrations.AddField(
            model_name="modelprice",
            name="by_hand",
            field=models.BooleanField(
                default=False, editable=False, help_text="Set by a person: price files leave it."
            ),
        ),
        migrations.RunSQL(EDITED, migrations.RunSQL.noop),
        migrations.AddField(
            model_name="budgetalert",
            name="kind",
            field=models.CharField(
                choices=[
                    ("threshold", "A share of the limit is spent"),
                    ("above_hold", "A call cost more than was held for it"),
                ],
                default="threshold",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="budgetalert",
            name="excess",
            field=models.BigIntegerField(default=0, help_text="Micro-dollars by which a bill was above its hold."),
        ),
        migrations.AlterField(
            model_name="budgetalert",
            name="threshold",
            field=models.PositiveSmallIntegerField(
                default=0, help_text="Per cent of the limit: 75, 90 or 100; 0 for other kinds."
            ),
        ),
        migrations.AlterField(
            model_name="budgetalert",
            name="limit",
            field=models.BigIntegerField(help_text="Micro-dollars; 0 where there is none."),
        ),
        migrations.RemoveConstraint(model_name="budgetalert", name="one_alert_per_budget_and_threshold"),
        migrations.AddConstraint(
            model_name="budgetalert",
            constraint=models.UniqueConstraint(
                fields=("budget", "kind", "threshold", "limit"), name="one_alert_per_budget_threshold_and_limit"
            ),
        ),
        migrations.RunSQL(GUARD, BACK),
    ]
