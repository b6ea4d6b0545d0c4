"""Lessons that training found, and the prompt packs under which they were found."""
