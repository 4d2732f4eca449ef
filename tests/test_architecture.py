"""The rules of the house hold, and the checker would see each of them broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from check_architecture import check_source, check_tree  # noqa: E402


def rules(file: str, source: str) -> list[str]:
    return [violation.rule for violation in check_source(Path(file), source)]


def test_the_project_keeps_its_rules() -> None:
    assert [str(violation) for violation in check_tree(ROOT)] == []


@pytest.mark.parametrize(
    ("file", "source", "rule"),
    [
        ("omni_platforms/errors.py", "from omni_platforms import settings", "layers"),
        ("omni_platforms/platform/x.py", "from omni_platforms.outputs import y", "layers"),
        ("omni_platforms/platform/x.py", "from omni_platforms import outputs", "layers"),
        ("omni_platforms/platform/x.py", "from omni_platforms import OmniPlatform", "layers"),
        ("omni_platforms/platform/x.py", "def f():\n    import omni_platforms.cli", "layers"),
        ("omni_platforms/platform/x.py", "from ..outputs import y", "layers"),
        ("omni_platforms/outputs/x.py", "import omni_platforms.engine.pump", "layers"),
        ("omni_platforms/outputs/x.py", "from omni_platforms.shm import arena", "layers"),
        ("omni_platforms/engine/x.py", "from omni_platforms.demo import y", "layers"),
        ("omni_platforms/engine/x.py", "from omni_platforms.jobs import y", "layers"),
        ("omni_platforms/jobs/x.py", "from omni_platforms.demo import y", "layers"),
        ("omni_platforms/jobs/x.py", "from omni_platforms.cli import y", "layers"),
        ("omni_platforms/demo/x.py", "from omni_platforms.cli import y", "layers"),
        ("omni_platforms/simulator/x.py", "from omni_platforms.outputs import y", "layers"),
        ("omni_platforms/novelty.py", "", "layers"),
        ("omni_platforms_cuda/x.py", "from omni_platforms.outputs import y", "layers"),
        ("omni_platforms/platform/x.py", "import omni_platforms_cuda", "vendor-import"),
        ("omni_platforms/cli/x.py", "from omni_platforms_npu.plugin import y", "vendor-import"),
        ("omni_platforms_cuda/x.py", "import omni_platforms_rocm.plugin", "vendor-import"),
        ("omni_platforms/cli/x.py", "torch.cuda.synchronize()", "vendor-module"),
        ("omni_platforms/cli/x.py", "import torch.npu", "vendor-module"),
        ("omni_platforms/cli/x.py", "from torch.xpu import Stream", "vendor-module"),
        ("omni_platforms/cli/x.py", "x = 'call torch.musa.synchronize'", "vendor-module"),
        ("omni_platforms/cli/x.py", "x = 1  # torch.cuda has it", "vendor-module"),
        ("omni_platforms/cli/x.py", "from torch import cuda", "vendor-module"),
        ("omni_platforms/cli/x.py", "getattr(torch, 'npu', None)", "vendor-module"),
        ("omni_platforms/cli/x.py", "p = current_platform()", "snapshot"),
        ("omni_platforms/cli/x.py", "class A:\n    p = platform.current_platform()", "snapshot"),
        ("omni_platforms/cli/x.py", "def f(p=current_platform()): ...", "snapshot"),
        ("omni_platforms/cli/x.py", "@g(current_platform())\ndef f(): ...", "snapshot"),
        ("omni_platforms/cli/x.py", "if True:\n    p = [current_platform()]", "snapshot"),
    ],
)
def test_a_planted_violation_is_reported(file: str, source: str, rule: str) -> None:
    assert rule in rules(file, source)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("omni_platforms/platform/x.py", "from omni_platforms import __version__, settings"),
        ("omni_platforms/platform/x.py", "from .probe import Probe"),
        ("omni_platforms/engine/x.py", "from omni_platforms.shm import arena"),
        ("omni_platforms/demo/x.py", "from omni_platforms import current_platform"),
        ("omni_platforms/cli/x.py", "def f():\n    from omni_platforms.demo import y"),
        ("omni_platforms/cli/x.py", "def f():\n    return current_platform()"),
        ("omni_platforms/cli/x.py", "f = lambda: current_platform()"),
        ("omni_platforms/cli/x.py", "torch.accelerator.synchronize()"),
        ("omni_platforms/simulator/x.py", "torch.cuda"),
        ("omni_platforms_cuda/x.py", "torch.cuda.synchronize()\nimport omni_platforms_cuda.nvml"),
    ],
)
def test_what_is_allowed_is_not_reported(file: str, source: str) -> None:
    assert rules(file, source) == []


def test_the_tool_runs_by_itself() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "check_architecture.py")]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
