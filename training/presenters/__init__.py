"""What pages of training say."""
