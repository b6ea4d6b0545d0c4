from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "agentcore_site"
    label = "site_roof"
    verbose_name = "Site"

    def ready(self) -> None:
        from agentcore_site import checks, erasure  # noqa: F401
        from agentcore_site.rest import schema  # noqa: F401  (how OpenAPI describes our ways to sign in)
