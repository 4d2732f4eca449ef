"""Worker processes, one a device: messages, the worker's loop, and who talks to it."""
