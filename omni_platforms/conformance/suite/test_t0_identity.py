"""T0: what the platform says of itself. It needs no work on a device."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

from omni_platforms.conformance.facts import IDENTITIES, NAMES
from omni_platforms.conformance.marks import remedy, tier
from omni_platforms.conformance.record import TIERS
from omni_platforms.conformance.subject import Subject
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = tier("T0")


@remedy("Set the class attributes name, vendor, device_type, dist_backend and conformance_tier.")
def test_identity_is_well_formed(subject: Subject, platform: OmniPlatform) -> None:
    """`name` is the entry point's; `vendor`, `device_type` and `dist_backend` are plain names."""
    assert platform.name == subject.name
    assert platform.vendor
    assert torch.device(platform.device_type).type == platform.device_type
    assert re.fullmatch(r"[a-z_]+", platform.dist_backend)
    variable = platform.device_control_env_var
    assert variable is None or re.fullmatch(r"[A-Z][A-Z0-9_]+", variable)
    assert platform.conformance_tier in (None, *TIERS)


@remedy("See omni_platforms/conformance/facts.py for what is expected of this name.")
def test_identity_is_what_the_vendor_uses(platform: OmniPlatform) -> None:
    """Device type, collectives' backend and visibility variable are those of the vendor's stack."""
    if platform.name not in IDENTITIES:
        pytest.skip("nothing is known of this name from outside its plugin")
    known = IDENTITIES[platform.name]
    said = (platform.device_type, platform.dist_backend, platform.device_control_env_var)
    assert said == known[:3]


@remedy("Do not override the predicates; they compare `name`.")
def test_one_predicate_is_true(platform: OmniPlatform) -> None:
    """Of `is_cuda()`, `is_rocm()` and so on, exactly the one of its own name is true."""
    said = {name for name in NAMES if getattr(platform, f"is_{name}")()}
    assert said == {platform.name} & set(NAMES)


@remedy("Declare members of omni_platforms.platform.Capability, in a frozenset.")
def test_capabilities_are_declared_as_such(platform: OmniPlatform) -> None:
    """`capabilities` is a frozenset of `Capability`."""
    assert isinstance(platform.capabilities, frozenset)
    assert all(isinstance(each, Capability) for each in platform.capabilities)


@remedy("Keep the names, order and defaults of the arguments of omni_platforms.platform's base.")
def test_methods_keep_the_signatures_of_the_contract(platform: OmniPlatform) -> None:
    """An overridden method takes what `OmniPlatform`'s takes, under the same names."""
    for name, base in inspect.getmembers(OmniPlatform, inspect.isfunction):
        if name.startswith("_"):
            continue
        wanted = inspect.signature(base).parameters
        found = inspect.signature(getattr(type(platform), name)).parameters
        for each, parameter in list(wanted.items())[1:]:
            assert each in found, f"{name}() lacks the argument {each!r}"
            same = (found[each].kind, found[each].default) == (parameter.kind, parameter.default)
            assert same, f"{name}({found[each]}) instead of {name}({parameter})"
        extra = [p for key, p in list(found.items())[1:] if key not in wanted]
        assert all(p.default is not p.empty for p in extra), f"{name}() needs more arguments"
