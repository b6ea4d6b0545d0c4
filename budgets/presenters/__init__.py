"""What pages of budgets say: sentences, names, curves."""
