"""The conformance suite for vendors' platforms, and its reports.

`omni-platforms conform NAME --report DIR` runs it, or
`pytest --pyargs omni_platforms.conformance --omni-platform NAME`.
"""
