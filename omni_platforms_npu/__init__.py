"""Ascend NPUs for omni-platforms."""
