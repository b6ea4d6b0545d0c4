"""The pages of budgets: what is spent, what is left, what things cost, and who is told."""
