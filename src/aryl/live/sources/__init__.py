"""Where the inference demand can be read while the cluster runs: Prometheus, or a file."""
