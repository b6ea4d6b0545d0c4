"""What all pages of the console share."""
