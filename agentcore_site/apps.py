from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "agentcore_site"
    label = "site_roof"
    verbose_name = "Site"

    def ready(self) -> None:
        from agentcore_site import checks  # noqa: F401
