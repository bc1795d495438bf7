"""Measurements: one workload (``simkv bench replay``) and the whole table of the README (``python -m simkv.bench``)."""
