"""The demo: real photographs restored on the platform at hand, blocking and asynchronous."""
