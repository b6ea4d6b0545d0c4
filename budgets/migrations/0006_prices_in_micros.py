"""Attributes of prices end in ``_micros``. Their columns keep their names, so that no SQL runs."""

from django.db import migrations, models

LEAST = models.CheckConstraint(
    condition=models.Q(
        ("input_micros__gte", 0),
        ("output_micros__gte", 0),
        ("per_call_micros__gte", 0),
        models.Q(("cached_input_micros", None), ("cached_input_micros__gte", 0), _connector="OR"),
    ),
    name="price_not_negative",
)
FIELDS = {
    "input": models.BigIntegerField("input", db_column="input", help_text="Micro-dollars per million prompt tokens."),
    "cached_input": models.BigIntegerField(
        "cached input",
        db_column="cached_input",
        null=True,
        blank=True,
        help_text="Of cached ones; empty: priced as input.",
    ),
    "output": models.BigIntegerField(
        "output", db_column="output", help_text="Micro-dollars per million answer tokens, reasoning included."
    ),
    "per_call": models.BigIntegerField(
        "per call", db_column="per_call", default=0, help_text="Micro-dollars for each call."
    ),
}


class Migration(migrations.Migration):
    dependencies = [("budgets", "0005_words_of_hold_states")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint("modelprice", "price_not_negative"),
                *(migrations.RenameField("modelprice", name, f"{name}_micros") for name in FIELDS),
                *(migrations.AlterField("modelprice", f"{name}_micros", field) for name, field in FIELDS.items()),
                migrations.AddConstraint("modelprice", LEAST),
            ]
        )
    ]
