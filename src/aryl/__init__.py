"""Aryl: one scheduler for training and inference GPUs."""

__version__ = "0.1.0"
