"""The internal port: the leader's control stream, and what it may change here."""
