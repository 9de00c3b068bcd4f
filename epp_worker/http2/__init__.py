"""HTTP/2 and gRPC framing of our own on asyncio.Protocol: the worker's front door."""
