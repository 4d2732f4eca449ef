"""What the figures say, in plain sentences."""

from __future__ import annotations

from omni_platforms.demo.record import RunRecord

# Two equal runs on a busy machine were seen to differ by this much.
_SAME = 0.1
# The same forwards should take the same time. Encoding beside them on shared
# cores costs them less than this factor; another program may cost far more.
_UNDISTURBED = 1.5


def explain(blocking: RunRecord, asynchronous: RunRecord) -> str:
    """Say what the executor gained on this platform, and why not more."""
    if disturbed(blocking, asynchronous):
        return (
            f"The two runs cannot be compared: a forward took {_ms(blocking.median('forward'))} "
            f"with blocking output and {_ms(asynchronous.median('forward'))} with the executor, "
            "so something else was using the machine. Run the demo again when it is quiet."
        )
    gain = asynchronous.requests_per_s / blocking.requests_per_s
    return f"{_verdict(gain)} {_reason(blocking, asynchronous)}"


def disturbed(blocking: RunRecord, asynchronous: RunRecord) -> bool:
    """Whether the forwards of the two runs differ so much that a comparison means nothing."""
    one, other = blocking.median("forward"), asynchronous.median("forward")
    return max(one, other) > _UNDISTURBED * min(one, other)


def _verdict(gain: float) -> str:
    if abs(gain - 1) <= _SAME:
        return f"The executor changed little here: {gain:.2f} times the requests a second."
    if gain < 1:
        return f"The executor was slower here: {gain:.2f} times the requests a second."
    return f"With the executor {gain:.2f} times as many requests were served a second."


def _reason(blocking: RunRecord, asynchronous: RunRecord) -> str:
    if asynchronous.mode == "blocking":
        return (
            "This platform has little to gain: it has no side stream, so the thread that runs "
            "the forward also copies the output, and only the encoding "
            f"({_ms(blocking.median('encode'))} of a request's "
            f"{_ms(blocking.latency_median)}) moved to the background, "
            "where it shares the processor's cores with the next forward."
        )
    idle = (
        f"The device idled {blocking.idle_share:.0%} of the time between forwards before, "
        f"{asynchronous.idle_share:.0%} with it."
    )
    forward, encode = asynchronous.median("forward"), asynchronous.median("encode")
    if encode <= forward:
        return idle
    return (
        f"{idle} Encoding a picture ({_ms(encode)}) takes longer than restoring it "
        f"({_ms(forward)}), so the one background thread sets the pace; "
        "more --steps make the forward longer."
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
