"""Notices to people and systems."""
