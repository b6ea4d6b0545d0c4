"""Events of jobs say whose they are. What is there follows in the next step."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0011_spending_rate")]
    operations = [migrations.AddField("jobevent", "organization_id", models.UUIDField(editable=False, null=True))]
