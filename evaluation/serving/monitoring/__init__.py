"""Tests of a canary that hold however often one looks, as pure values."""
