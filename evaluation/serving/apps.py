from django.apps import AppConfig


class ServingConfig(AppConfig):
    name = "evaluation.serving"

    def ready(self) -> None:
        from evaluation.serving import erasure  # noqa: F401  (registers where personal data may be)
        from evaluation.serving.deployments.selectors import deployed
        from evaluation.serving.suites import job_kind  # noqa: F401  (registers the kind)
        from evaluation.serving.survival import job_kind as survival_kind  # noqa: F401
        from evaluation.serving.traces import retention  # noqa: F401  (says how they age)
        from experiences.playbooks.deployed import deployed_register

        deployed_register(deployed)
