"""A file of requests, run by a worker class: behind `omni-platforms run`."""
