from django.apps import AppConfig
from django.db.models.signals import post_migrate


class SiteConfig(AppConfig):
    name = "agentcore_site"
    label = "site_roof"
    verbose_name = "Site"

    def ready(self) -> None:
        from agentcore_site import checks, database_roles, erasure, retention, secret_key  # noqa: F401
        from agentcore_site.identity import receivers  # noqa: F401  (Django's signals announce sign-ins)
        from agentcore_site.outbound import configure
        from agentcore_site.outbound_settings import site_policy

        # The last app that is installed: all tables are there.
        post_migrate.connect(database_roles.grant, sender=self)
        site_policy()  # a setting that can't be used stops the start, not the first call
        configure(site_policy)
