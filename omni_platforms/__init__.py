"""omni-platforms: one interface to every PyTorch accelerator.

Names are resolved on first use: importing this package imports neither torch
nor a plugin.
"""

from __future__ import annotations

__version__ = "0.1.0"
