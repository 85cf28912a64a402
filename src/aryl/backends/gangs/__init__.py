"""Gangs and their attempts, the same for every backend that starts processes."""
