"""Streams that reached the wrong worker, passed on to the owner of their group over the internal
port: one hop, the ext_proc messages as they are.
"""
