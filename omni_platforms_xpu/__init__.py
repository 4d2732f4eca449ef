"""Intel XPUs for omni-platforms."""
