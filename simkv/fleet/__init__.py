"""Replicas on a common clock. The only package that knows SimPy."""
