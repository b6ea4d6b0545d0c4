"""The job that evolves a playbook: its kind, its slices, what it asks, what it may cost."""
