"""The plugin types of the llm-d router that the fleet has, by its names and formulas."""
