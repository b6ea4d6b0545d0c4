from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "agentcore_site.jobs"
    label = "jobs"
    verbose_name = "Jobs"

    def ready(self) -> None:
        from agentcore_site import celery  # noqa: F401  (makes shared tasks find our application)
        from agentcore_site.jobs import preloading  # noqa: F401  (connects to a signal of workers)
