"""The learning loop: production traces with feedback become a dataset, a job learns from it, its release is
deployed."""
