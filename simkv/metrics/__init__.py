"""The same figures a live Prometheus gives, computed from a run."""
