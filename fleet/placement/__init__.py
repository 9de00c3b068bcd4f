"""Which worker serves which route group: a pure function from facts to a plan."""

from fleet.placement.facts import Candidate, Conditions, Current, Decision, Plan
from fleet.placement.plan import meeting, place

__all__ = ["Candidate", "Conditions", "Current", "Decision", "Plan", "meeting", "place"]
