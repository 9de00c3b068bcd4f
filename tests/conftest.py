"""For all tests: no event loop but those that pytest-asyncio runs and closes."""

import asyncio

# pytest-asyncio asks for the thread's current loop. Before the first call of set_event_loop Python
# would create one for it, which nobody closes, and warnings are errors.
asyncio.set_event_loop(None)
