"""Schedule rows and their jobs. The row says what to do, its job says when; both change in one transaction."""
