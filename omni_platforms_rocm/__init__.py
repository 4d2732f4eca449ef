"""AMD GPUs for omni-platforms."""
