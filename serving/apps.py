from django.apps import AppConfig


class ServingConfig(AppConfig):
    name = "serving"

    def ready(self) -> None:
        from serving import erasure  # noqa: F401  (registers where personal data may stand)
        from serving.suites import job_kind  # noqa: F401  (registers the kind)
