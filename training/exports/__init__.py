"""A run as files: its manifest, its metrics."""
