"""Which endpoint has which beginnings of prompts cached, as far as the picks tell."""
