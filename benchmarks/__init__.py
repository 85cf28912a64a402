"""Measurements to be run by hand: `python -m benchmarks.NAME`. Each prints a table."""
