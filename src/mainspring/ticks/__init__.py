"""The four ticks of a node, and the loop that runs them. A tick does what is due and says when to come back."""
