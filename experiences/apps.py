from django.apps import AppConfig


class ExperiencesConfig(AppConfig):
    name = "experiences"

    def ready(self) -> None:
        from experiences import erasure  # noqa: F401  (says where personal data may stand)
