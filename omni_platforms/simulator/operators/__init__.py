"""How a simulated device computes: operators, copies and random numbers."""
