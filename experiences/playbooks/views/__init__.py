"""Console pages of playbooks."""
