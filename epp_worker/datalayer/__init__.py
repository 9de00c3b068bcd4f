"""Reading the model servers' metrics."""
