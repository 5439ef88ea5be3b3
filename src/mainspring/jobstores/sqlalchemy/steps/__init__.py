"""The steps of the SQL stores: what each verb does inside a transaction, with its statements."""
