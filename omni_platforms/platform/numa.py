"""The host's NUMA node of a PCI device, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

_PCI_DEVICES = Path("/sys/bus/pci/devices")


def pci_numa_node(domain: int, bus: int, device: int, root: Path = _PCI_DEVICES) -> int | None:
    """Return the NUMA node of function 0 of a PCI device, or `None`.

    `None` where the system does not say: not Linux, a container without the
    file, or the kernel's own "no node", which it writes as -1.
    """
    file = root / f"{domain:04x}:{bus:02x}:{device:02x}.0" / "numa_node"
    try:
        node = int(file.read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
