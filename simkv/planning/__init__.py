"""What to decide, from lengths, runs and settings."""
