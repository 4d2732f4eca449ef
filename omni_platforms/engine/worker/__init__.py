"""What runs in a worker's process: one device, one object of the user's worker class.

Three threads, all asleep when there is nothing to do:

- the main thread (`loop.py`) runs requests and calls, in the order in which they came;
- the reader (`inbox.py`) takes messages from the parent, and answers at once what must not
  wait for a forward: dropped outputs, taken previews, questions about the state;
- the output thread (`output_thread.py`) waits for copies and sends what has arrived.
"""
