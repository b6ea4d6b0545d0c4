"""REST: lessons and prompt packs."""
