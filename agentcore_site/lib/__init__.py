"""What every app uses: errors, registries, checks of values and rows, storage."""
