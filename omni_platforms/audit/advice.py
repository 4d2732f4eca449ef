"""Which pattern a site follows, and what to do about it, in a line."""

from __future__ import annotations

from enum import Enum

from omni_platforms.audit.kinds import COPIES_OUT, EXPLICIT, READS, SHAPES, UPLOADS, Kind
from omni_platforms.audit.sites import Site

LARGE_BYTES = 64 << 10
"""From this size on a copy's own time matters; below it the wait is all of the cost."""

_SPAN_READS = 3


class Pattern(str, Enum):
    """What a site does wrong, as the field knows it."""

    CONSTANT = "constant_recomputed"
    """The same value at every step of a request."""
    SPAN = "read_per_position"
    """One read for each position of a span, within one step."""
    CONDITION = "truth_in_condition"
    HOT_READ = "read_each_step"
    COPY_OUT = "blocking_copy_to_host"
    UPLOAD = "blocking_copy_to_device"
    SHAPE = "shape_from_data"
    SYNCHRONIZE = "explicit_synchronize"
    PRINT = "printing"
    FLUSH = "allocator_flush"
    OTHER = "other"


def pattern_of(site: Site, hoistable: bool) -> Pattern:
    """Return the pattern that says most about a site."""
    if hoistable:
        return Pattern.CONSTANT
    if site.kind in READS | COPIES_OUT and site.constancy.largest >= _SPAN_READS:
        return Pattern.SPAN
    return _BY_KIND.get(site.kind, Pattern.OTHER)


_BY_KIND = {
    Kind.SCALAR_READ: Pattern.HOT_READ,
    Kind.TRUTH_VALUE: Pattern.CONDITION,
    Kind.PRINT: Pattern.PRINT,
    Kind.ALLOCATOR_FLUSH: Pattern.FLUSH,
    Kind.D2H_PAGEABLE_ASYNC: Pattern.COPY_OUT,
    Kind.H2D_PAGEABLE_ASYNC: Pattern.UPLOAD,
    **dict.fromkeys(COPIES_OUT, Pattern.COPY_OUT),
    **dict.fromkeys(UPLOADS, Pattern.UPLOAD),
    **dict.fromkeys(SHAPES, Pattern.SHAPE),
    **dict.fromkeys(EXPLICIT, Pattern.SYNCHRONIZE),
}


def suggestion(site: Site, pattern: Pattern) -> str:
    """Return one line of advice."""
    if pattern is Pattern.COPY_OUT:
        return _copy_out(site)
    if pattern is Pattern.UPLOAD:
        return _upload(site)
    if pattern is Pattern.CONSTANT:
        return _constant(site)
    if pattern is Pattern.SHAPE:
        return _SHAPES.get(site.kind, _ANY_SHAPE)
    return _FIXED[pattern]


_FIXED = {
    Pattern.SPAN: "read the whole span once (stack it, one .tolist() a step) instead of each "
    "position, or keep it on the device",
    Pattern.CONDITION: "keep the condition on the device (torch.where, a masked update), or decide "
    "once from values that the host knows",
    Pattern.HOT_READ: "keep the number on the device, or take it from what the host already knows; "
    "if it must be read, read it a step late",
    Pattern.SYNCHRONIZE: "let the stream wait instead of the host (stream.wait_event): events "
    "order work on the device by themselves",
    Pattern.PRINT: "print outside the loop, or print shapes, which cost nothing",
    Pattern.FLUSH: "leave it out of the loop: the allocator reuses its memory without it",
    Pattern.OTHER: "look at what the operator does on the host; move it out of the loop",
}
_ANY_SHAPE = (
    "use a result of fixed size (a mask, topk, a padded buffer) instead of one sized by data"
)
_SHAPES = {
    Kind.MASK_INDEX: "use torch.where or masked_fill, which keep the shape, instead of indexing "
    "with the mask",
    Kind.REPEAT_INTERLEAVE: "pass output_size, if the host knows the sum of the repeats",
}


def _constant(site: Site) -> str:
    if site.kind is Kind.TRUTH_VALUE:
        return "the same at every step so far: decide it once before the loop, if it cannot change"
    if site.kind in UPLOADS:
        return "the same data at every step: upload it once before the loop, and keep it"
    return "the same value at every step: read it once before the loop"


def _copy_out(site: Site) -> str:
    if site.kind is Kind.D2H_PAGEABLE_ASYNC:
        return "non_blocking does not help a target that is not pinned: the host waits all the same"
    if site.nbytes >= LARGE_BYTES:
        return "hand it to AsyncOutputExecutor.submit(): the copy then runs behind the next step"
    # Pinning is no advice here: for a few bytes the wait is the cost and not the copy.
    return "keep it on the device, or read it once after the loop; the wait costs, not the bytes"


def _upload(site: Site) -> str:
    if site.kind is Kind.H2D_PAGEABLE_ASYNC:
        return "forbids a graph capture: copy from a pinned tensor that stays alive"
    if site.kind is Kind.H2D_BLOCKING:
        return "the source is pinned already: pass non_blocking=True"
    if site.nbytes >= LARGE_BYTES:
        return "fill a pinned tensor and copy with non_blocking=True"
    return "make it on the device (torch.full, torch.arange with device=), or once before the loop"
