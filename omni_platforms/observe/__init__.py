"""Seeing what executors do: traces, metrics, spans, profiler ranges, a live view, logs.

Nothing of it runs unless somebody asks for it (docs/observability.md).
"""
