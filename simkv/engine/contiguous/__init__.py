"""Contiguous KV memory: the baselines of the PagedAttention paper (SOSP'23)."""
