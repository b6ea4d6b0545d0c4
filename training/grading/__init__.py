"""A grader's own error rate: people judge a random sample of what it graded."""
