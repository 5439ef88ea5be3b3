"""The steps of the SQL stores: the work of each verb inside a transaction, with its statements."""
