"""The event log in formats other programs read: JSON lines, Parquet and the Chrome trace format.

Nothing here is imported unless something is exported.
"""
