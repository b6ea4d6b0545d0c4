"""Texts of the pages of playbooks."""
