"""`python -m omni_platforms.simulator NAME [options] -- script.py arguments`.

Runs a program, unchanged, on a simulated device. See docs/simulator.md.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from omni_platforms.errors import OmniError
from omni_platforms.simulator.startup import start_from_environment

_OPTIONS = {
    "device_count": "OMNI_SIMULATE_DEVICES",
    "memory_limit": "OMNI_SIMULATE_MEMORY",
    "schedule": "OMNI_SIMULATE_SCHEDULE",
}


def main() -> None:
    """Parse the command line, simulate, and become the program."""
    own, program = _split(sys.argv[1:])
    parser = _parser()
    arguments = parser.parse_args(own)
    if not program:
        parser.error("name a program after --, such as: npu -- script.py")
    os.environ["OMNI_SIMULATE"] = arguments.name
    for option, variable in _OPTIONS.items():
        if getattr(arguments, option) is not None:
            os.environ[variable] = getattr(arguments, option)
    try:
        start_from_environment()
    except (OmniError, RuntimeError) as error:
        # Where the package is installed, `import torch` starts it and wraps the error.
        cause = error if isinstance(error, OmniError) else error.__cause__
        if not isinstance(cause, OmniError):
            raise
        parser.exit(2, f"error: {cause}\n")
    _become(program)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m omni_platforms.simulator",
        usage="%(prog)s NAME [options] -- (script.py | -m module) [arguments]",
        description="Run a program on a simulated accelerator, with all processes that it starts.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="npu, musa, xpu or sim")
    parser.add_argument("--device-count", metavar="N", help="devices (default: 2)")
    parser.add_argument("--memory-limit", metavar="BYTES", help="of each device (default: 1 GiB)")
    parser.add_argument(
        "--schedule",
        metavar="S",
        help="eager (default), lazy, lazy:<device>.<stream>,... or random:<seed>",
    )
    return parser


def _become(program: list[str]) -> None:
    """Run the program in this process as Python itself would."""
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
