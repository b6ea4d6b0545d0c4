"""Months that are no longer hot: Parquet in object storage, read there, brought back, deleted by rule."""
