"""The pages of budgets: what is spent and left, what models cost, and who is told."""
