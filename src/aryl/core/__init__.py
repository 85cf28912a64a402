"""The pure heart: what a cluster is, how events change it, and what may be asked of it.

Theory of operation. `Cluster` is a fold of events (`evolve`); a policy looks at it and returns a `Decision`;
`check` refuses a decision that can't be right; `diff` turns it into the ordered steps of a `Plan`;
`PlanCommitted(plan)` is itself an event, and the world answers with further events (`Launched`, `Vacated`,
`Stopped`, ...). Nothing in here knows the time of day, a file, a thread or whether the world is simulated.
"""
