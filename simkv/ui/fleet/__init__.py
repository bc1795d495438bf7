"""What the pages show of a fleet."""
