"""Which worker serves which route group: a pure function from facts to a plan."""

from fleet.placement.facts import Candidate, Current, Decision, Plan
from fleet.placement.plan import place

__all__ = ["Candidate", "Current", "Decision", "Plan", "place"]
