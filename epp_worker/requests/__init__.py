"""Figures of requests as the llm-d router counts them, with the pool they belong to."""
