"""Decides: who leads, who is alive, which worker serves which pools; and tells gateways."""
