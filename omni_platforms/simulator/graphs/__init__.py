"""Graph capture and replay on a simulated device."""
