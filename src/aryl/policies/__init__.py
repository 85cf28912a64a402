"""Policies: pure functions from the state of a cluster to what should change. One policy or one part of one a
file.
"""
