"""Other libraries with these executors (docs/integrations.md). Each module needs its extra."""
