"""Writes of lessons and prompt packs."""
