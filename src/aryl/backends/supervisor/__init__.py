"""A small process that outlives the daemon: it starts workers, stops them on schedule, and keeps how they
ended.

The process itself is `process.py` (`python -m aryl.backends.supervisor`); the daemon's side is `client.py`.
What runs in the process imports nothing but the standard library and its own modules, so that it starts
quickly, stays small, and there is little in it that can fail.
"""
