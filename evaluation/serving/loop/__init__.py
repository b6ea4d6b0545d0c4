"""The circle: production traces with feedback become a dataset, a job learns from it, its release goes out."""
