"""The live control plane: driver, daemon, store and API."""
