"""REST under ``/internal/ace/``: for services beside agents, which read playbooks and record executions."""
