"""What pages of evaluations say."""
