"""The pages of budgets: money spent and left, prices of models, alerts."""
