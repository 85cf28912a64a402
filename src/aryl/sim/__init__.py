"""The simulated world: experiments, their files, the virtual clock and the physics of jobs."""
