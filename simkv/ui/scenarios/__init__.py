"""The parts of the page Scenarios."""
