"""Encryption at rest of what was said, by organisation: data keys, and the columns that they seal."""
