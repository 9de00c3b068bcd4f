"""The epp-fleet command."""
