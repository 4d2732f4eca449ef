"""What the figures say, in plain sentences."""

from __future__ import annotations

from omni_platforms.demo.record import RunRecord

# Two equal runs on a busy machine were seen to differ by this much.
_SAME = 0.1
# The same forwards should take the same time. Encoding beside them, on shared
# cores, may slow the async run's by this factor; nothing of ours slows the
# blocking run's, so a smaller factor there already tells of another program.
_ASYNC_SLOWER = 1.5
_BLOCKING_SLOWER = 1.2
_CLEARLY_LONGER = 1.1


def explain(blocking: RunRecord, asynchronous: RunRecord) -> str:
    """Say what the executor gained on this platform, and why not more."""
    if disturbed(blocking, asynchronous):
        return (
            f"The two runs cannot be compared: a forward took {_ms(blocking.mean('forward'))} "
            f"on average with blocking output and {_ms(asynchronous.mean('forward'))} with the "
            "executor, so something else was using the machine. Run the demo again when it is "
            "quiet."
        )
    gain = asynchronous.requests_per_s / blocking.requests_per_s
    if asynchronous.mode == "blocking":
        return f"{_verdict(gain)} {_no_overlap(blocking)}"
    return " ".join([_verdict(gain), *_overlap(blocking, asynchronous)])


def disturbed(blocking: RunRecord, asynchronous: RunRecord) -> bool:
    """Whether the forwards of the two runs differ so much that a comparison means nothing."""
    one, other = blocking.mean("forward"), asynchronous.mean("forward")
    return one > _BLOCKING_SLOWER * other or other > _ASYNC_SLOWER * one


def _verdict(gain: float) -> str:
    if abs(gain - 1) <= _SAME:
        return f"The executor changed little here: {gain:.2f} times the requests a second."
    if gain < 1:
        return f"The executor was slower here: {gain:.2f} times the requests a second."
    return f"With the executor {gain:.2f} times as many requests were served a second."


def _no_overlap(blocking: RunRecord) -> str:
    return (
        "This platform has little to gain: it has no side stream, so the thread that runs "
        "the forward also copies the output, and only the encoding "
        f"({_ms(blocking.median('encode'))} of a request's {_ms(blocking.latency_median)}) "
        "moved to the background, where it shares the processor's cores with the next forward."
    )


def _overlap(blocking: RunRecord, asynchronous: RunRecord) -> list[str]:
    """Say where the blocking run lost its time, and what limits the async one."""
    copying = blocking.median("copy") + blocking.median("pack")
    sentences = [
        f"The device idled {blocking.idle_share:.0%} of the time between forwards before, "
        f"{asynchronous.idle_share:.0%} with it: a request's copying and packing "
        f"({_ms(copying)}) and encoding ({_ms(blocking.median('encode'))}) no longer stand "
        "between two forwards."
    ]
    forward, encode = asynchronous.median("forward"), asynchronous.median("encode")
    if encode > _CLEARLY_LONGER * forward:
        sentences.append(
            f"Encoding a picture ({_ms(encode)}) takes longer than restoring it "
            f"({_ms(forward)}), so the one background thread sets the pace; "
            "more --steps make the forward longer."
        )
    if asynchronous.latency_median > _CLEARLY_LONGER * blocking.latency_median:
        sentences.append(
            f"A single picture took longer to arrive ({_ms(asynchronous.latency_median)}, "
            f"{_ms(blocking.latency_median)} before), because several requests are in flight."
        )
    return sentences


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
