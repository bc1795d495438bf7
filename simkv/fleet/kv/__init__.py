"""What replicas' caches hold, by 64-bit chain keys: probing them, following their events, an index over many of them."""
