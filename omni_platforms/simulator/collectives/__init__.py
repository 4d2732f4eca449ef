"""Communication between devices, on streams of its own, as vendors' libraries do it."""
