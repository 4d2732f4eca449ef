"""Acme devices for omni-platforms."""
