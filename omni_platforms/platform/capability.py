"""What a platform can promise, as names that conformance checks both ways."""

from __future__ import annotations

from enum import Enum


class Capability(str, Enum):
    """One optional primitive of `OmniPlatform`.

    A platform that declares a capability must deliver it; one that does not
    must answer `None` from the primitives that the capability covers.
    """

    DEVICE_EVENTS = "device_events"
    """`record_device_event` returns an event that covers all work enqueued before it."""
    SIDE_STREAMS = "side_streams"
    """`create_side_stream` and `current_stream` return streams."""
    STREAM_PRIORITIES = "stream_priorities"
    """`create_side_stream(priority=...)` tells high (negative) from normal (zero)."""
    PINNED_MEMORY = "pinned_memory"
    """`pinned_empty` returns memory that the device copies to without the host waiting."""
    HOST_REGISTRATION = "host_registration"
    """`register_host_memory` pins memory that already exists."""
    HOST_MEMORY_STATS = "host_memory_stats"
    """`host_memory_stats` reports what the pinned allocator holds."""
    RELEASE_HOST_MEMORY = "release_host_memory"
    """`release_host_memory` gives cached pinned memory back to the system."""
    MEMORY_INFO = "memory_info"
    """`memory_info` reports free and total bytes."""
    DEVICE_UUID = "device_uuid"
    """`device_uuid` tells two devices of one model apart."""
    DEVICE_CAPABILITY = "device_capability"
    """`device_capability` returns `(major, minor)`."""
    GRAPH_CAPTURE = "graph_capture"
    """`is_capturing` sees a graph capture on the calling thread's stream."""
    SYNC_DEBUG = "sync_debug"
    """`sync_debug` makes the vendor's runtime report waits of the host."""
