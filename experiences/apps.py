from django.apps import AppConfig


class ExperiencesConfig(AppConfig):
    name = "experiences"

    def ready(self) -> None:
        # They say where personal data may be, listen to agents, and register the kind of job.
        from agentcore_site.lib.redaction import redactor_register
        from budgets.owners import agents_register, trajectory_pages_register
        from experiences import erasure  # noqa: F401
        from experiences.models import Agent
        from experiences.playbooks import erasure as playbooks_erasure  # noqa: F401
        from experiences.playbooks import (
            receivers,  # noqa: F401
            retention,  # noqa: F401
        )
        from experiences.playbooks.evolution import job_kind  # noqa: F401
        from experiences.privacy import redact_value
        from experiences.trajectories.annotations import retention as annotation_rules  # noqa: F401
        from experiences.trajectories.archive import erasure as archive_erasure  # noqa: F401
        from experiences.trajectories.archive import job_kind as archive_kind  # noqa: F401
        from experiences.trajectories.archive import retention_rules  # noqa: F401
        from experiences.trajectories.call_pages import call_pages
        from experiences.trajectories.exports import erasure as export_erasure  # noqa: F401
        from experiences.trajectories.exports import job_kind as export_kind  # noqa: F401
        from experiences.trajectories.exports import retention_rules as export_rules  # noqa: F401

        redactor_register(redact_value)
        agents_register(Agent.objects)
        trajectory_pages_register(call_pages)
