"""What no Python file of a package says: the results of native calls. Each entry has its source.

Names of torch_npu's C++ part are looked up in the wheel's library when the wheel is
recorded (`native` in `surfaces/`); what they take is written here.
"""

from __future__ import annotations

from tools.vendor_surface import Arguments, Member


def _takes(*names: str, source: str) -> Member:
    return Member(Arguments(names, len(names)), source=source)


_NPURT = "torch_npu 2.14.0, csrc/npu/npurt.cpp, lines 21 to 64"
_NPU_PROPERTIES = "torch_npu 2.14.0, csrc/npu/Module.cpp, lines 148 to 163"
_MUSART = "torch_musa 2.7.1, csrc/core/musart.cpp"

NATIVE: dict[str, dict[str, Member]] = {
    "torch_npu.npu.npurt()": {
        "npuHostRegister": _takes("ptr", "size", "flags", source=_NPURT),
        "npuHostUnregister": _takes("ptr", source=_NPURT),
    },
    "torch_npu.npu.get_device_properties()": {
        "name": Member(source=_NPU_PROPERTIES),
        "uuid": Member(source=_NPU_PROPERTIES),
    },
    "torch_musa.musart()": {
        "musaHostRegister": _takes("ptr", "size", "flags", source=_MUSART),
        "musaHostUnregister": _takes("ptr", source=_MUSART),
    },
}
"""The members of what a call returns."""

PLAIN: dict[str, object] = {
    # A text in a build for the vendor, `None` in others (torch/version.py).
    "torch.version.cuda": "",
    # torch 2.13, torch/csrc/xpu/Module.cpp makes bytes of it; later ones may have a class.
    "torch.xpu.get_device_properties().uuid": b"",
    # torch_npu 2.14.0, npu/memory.py: `collections.OrderedDict(result)`.
    "torch_npu.npu.host_memory_stats()": {},
}
"""An example of each thing that is of one of Python's own types."""

TORCHS_OWN_USES = {
    "torch.cuda.cudart()": ("torch.cuda.cudart()", "torch._C._cudart"),
    "torch.cuda.get_device_properties()": ("torch.cuda.get_device_properties()",),
}
"""Native objects that torch's own Python files use, so that those files say what there is."""
