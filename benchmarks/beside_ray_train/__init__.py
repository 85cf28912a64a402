"""Figures of the Ray backend, beside those of Ray Train on the same servers."""
