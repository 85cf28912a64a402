"""Predictors of inference demand will live here; the simulator's two forecasts are in `aryl.sim.demand`."""
