"""Moore Threads GPUs for omni-platforms."""
