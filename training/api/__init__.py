"""REST doors of datasets, training jobs, checkpoints and settings."""
