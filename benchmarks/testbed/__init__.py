"""The paper's testbed: the same jobs live, with workers that only wait, and simulated. See `__main__`."""
