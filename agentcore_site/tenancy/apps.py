from django.apps import AppConfig


class TenancyConfig(AppConfig):
    name = "agentcore_site.tenancy"
    label = "tenancy"
    verbose_name = "Organisations and people"

    def ready(self) -> None:
        from agentcore_site.tenancy import receivers  # noqa: F401  (sign-ins are announced by Django's signals)
