"""Tests of a canary that hold with any number of analyses, as pure values."""
