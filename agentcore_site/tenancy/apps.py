from django.apps import AppConfig
from django.db.models.signals import post_migrate


class TenancyConfig(AppConfig):
    name = "agentcore_site.tenancy"
    label = "tenancy"
    verbose_name = "Organisations and people"

    def ready(self) -> None:
        from agentcore_site.tenancy import role_changes

        post_migrate.connect(role_changes.groups_made, sender=self)
