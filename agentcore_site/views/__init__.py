"""Pages of the roof: those that show more than one app, or none."""
