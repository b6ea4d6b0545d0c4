"""One question to several candidates, side by side."""
