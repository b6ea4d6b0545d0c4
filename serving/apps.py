from django.apps import AppConfig


class ServingConfig(AppConfig):
    name = "serving"

    def ready(self) -> None:
        from experiences.playbooks.deployed import deployed_register
        from serving import erasure  # noqa: F401  (registers where personal data may stand)
        from serving.deployments.selectors import deployed
        from serving.suites import job_kind  # noqa: F401  (registers the kind)
        from serving.traces import retention  # noqa: F401  (says how they age)

        deployed_register(deployed)
