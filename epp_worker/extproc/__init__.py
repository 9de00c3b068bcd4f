"""The ext_proc session: a pure state machine, messages in, messages out."""
