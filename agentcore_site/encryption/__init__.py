"""Encryption at rest of stored texts, by organisation: data keys, and the encrypted columns."""
