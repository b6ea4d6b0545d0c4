"""REST: budgets, alerts and prices. Dollars are exact to a micro-dollar."""
