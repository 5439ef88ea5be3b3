"""Schedule rows and their jobs. The row says what is to be done, its job says when; both change in one transaction."""
