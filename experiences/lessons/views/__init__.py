"""Console pages of lessons and prompt packs."""
