"""Ray Serve as the inference pool: what it needs, and how a server leaves it and comes back.

Serve wants, Aryl allots, and neither overrules the other. Each replica asks for units of a resource that only
inference servers have, one for each of its GPUs. To lend a server, Aryl takes its units (*gates*): no replica
can come there any more, and once Aryl holds all of them, none is left there. Serve may go on to want more
than there is room for: its replicas wait, which Aryl sees as a need, and start when a server is given back.
"""
